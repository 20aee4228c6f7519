//! Asks a control plane for what the checks look at: everything at once, each question with a
//! deadline, members through the cluster proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::remote::{RemoteApi, RestConfig};
use client::{Api, ListOptions, ResourcePath, Result as ApiResult};
use clusters::AGENT_VERSION_ANNOTATION;
use futures_util::StreamExt;
use futures_util::stream;
use jiff::{SignedDuration, Timestamp};
use karmada_api::Work;
use karmada_api::resources::{CLUSTERS, WORKS};
use machinery::certificate_request::certificate_expiry;
use machinery::{Gvr, Object, time};
use serde_json::Value;

use super::metric_samples::MetricSamples;
use super::observations::{
    AgentLeaseState, ControlPlaneObservations, FailedWork, HttpAnswer, ObservedMember, QueryResult,
    UserCredential,
};

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
/// The discovery of the version of Clusters.
const KARMADA_API: &str = "/apis/cluster.karmada.io/v1alpha1";
const LEASE_NAMESPACE: &str = "karmada-cluster";
/// Members that are asked at once.
const MEMBERS_AT_ONCE: usize = 64;
/// A page of Works.
const WORKS_PER_PAGE: u64 = 1000;
/// The Works that are read for the reason why they are not applied.
const MAX_EXPLAINED_WORKS: usize = 20;
const MAX_METRICS_BYTES: usize = 64 << 20;
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The characters of an answer that are printed.
const MAX_TEXT_CHARS: usize = 200;
/// A metric of every Flotilla; those of a host that it is behind lack it.
const FLOTILLA_METRIC: &str = "karmada_build_info";

/// The questions to one control plane.
pub(super) struct Examination<'a> {
    pub(super) api: &'a RemoteApi,
    pub(super) timeout: Duration,
}

impl Examination<'_> {
    pub(super) async fn gather(&self) -> ControlPlaneObservations {
        let config = self.api.config();
        let (readiness, karmada_api, server_version, metrics, members, leases, failed_works) = tokio::join!(
            self.get("/readyz?verbose", MAX_ANSWER_BYTES),
            self.get(KARMADA_API, MAX_ANSWER_BYTES),
            self.server_version(),
            self.metrics(),
            self.members(),
            self.leases(),
            self.failed_works(),
        );
        ControlPlaneObservations {
            server: config.server.to_string(),
            now: Timestamp::now(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            readiness,
            karmada_api,
            server_version,
            metrics,
            members,
            leases,
            failed_works,
            user_credentials: user_credentials(config),
        }
    }

    /// An answer within the deadline.
    async fn answer<T>(&self, question: impl Future<Output = ApiResult<T>>) -> QueryResult<T> {
        match tokio::time::timeout(self.timeout, question).await {
            Ok(answer) => answer.map_err(|e| one_line(&e.to_string())),
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs_f64())),
        }
    }

    async fn get(&self, path: &str, most: usize) -> QueryResult<HttpAnswer> {
        let timestamp = Timestamp::now();
        let began = tokio::time::Instant::now();
        let response = self.answer(self.api.get_response(path, most)).await?;
        let date = response.headers().get("date");
        let date = date.and_then(|value| value.to_str().ok());
        Ok(HttpAnswer {
            code: response.status().as_u16(),
            body: String::from_utf8_lossy(response.body()).into_owned(),
            date: date.and_then(|date| httpdate::parse_http_date(date).ok()?.try_into().ok()),
            asked: timestamp,
            took: began.elapsed(),
        })
    }

    async fn server_version(&self) -> QueryResult<String> {
        let body = self.answer(self.api.get_raw("/version")).await?;
        let version: Value = machinery::json::from_slice(&body).map_err(|e| e.to_string())?;
        let version = version["gitVersion"].as_str();
        Ok(version.ok_or("it has no gitVersion")?.to_owned())
    }

    async fn metrics(&self) -> QueryResult<MetricSamples> {
        let answer = self.get("/metrics", MAX_METRICS_BYTES).await?;
        if answer.code != 200 {
            return Err(format!("/metrics answers {}", answer.code));
        }
        let samples = MetricSamples::parse_checked(&answer.body);
        if samples.of(FLOTILLA_METRIC).next().is_none() {
            return Err("the server is the host of Flotilla and shows its own".to_owned());
        }
        Ok(samples)
    }

    async fn members(&self) -> QueryResult<Vec<ObservedMember>> {
        let at = ResourcePath::collection(&CLUSTERS, "");
        let options = ListOptions::default();
        let listed = self.answer(self.api.list(at, &options)).await?;
        let queries = stream::iter(listed.items.into_iter().map(|cluster| self.member(cluster)));
        let mut members: Vec<ObservedMember> =
            queries.buffer_unordered(MEMBERS_AT_ONCE).collect().await;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(members)
    }

    async fn member(&self, cluster: Object) -> ObservedMember {
        let name = cluster.name().to_owned();
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/readyz");
        let answer = self.get(&path, MAX_ANSWER_BYTES).await;
        let answer = answer.map(|answer| HttpAnswer {
            body: one_line(&status_message(&answer.body)),
            ..answer
        });
        ObservedMember {
            name,
            cluster: cluster.value().unwrap_or_default(),
            answer,
        }
    }

    async fn leases(&self) -> QueryResult<BTreeMap<String, AgentLeaseState>> {
        let at = ResourcePath::collection(&LEASES, LEASE_NAMESPACE);
        let options = ListOptions::default();
        let listed = self.answer(self.api.list(at, &options)).await?;
        let lease = |lease: Object| {
            let value = lease.value().unwrap_or_default();
            let annotation = &value["metadata"]["annotations"][AGENT_VERSION_ANNOTATION];
            let renewed = value["spec"]["renewTime"].as_str();
            let lasts = value["spec"]["leaseDurationSeconds"].as_i64();
            let observations = AgentLeaseState {
                renewed: renewed.and_then(|text| time::parse(text).ok()),
                lasts: lasts.map(SignedDuration::from_secs),
                agent_version: annotation.as_str().map(str::to_owned),
            };
            (lease.name().to_owned(), observations)
        };
        Ok(listed.items.into_iter().map(lease).collect())
    }

    /// The Works that are not applied, read as Tables, which lack the manifests.
    async fn failed_works(&self) -> QueryResult<Vec<FailedWork>> {
        let at = ResourcePath::collection(&WORKS, "");
        let mut options = ListOptions {
            limit: WORKS_PER_PAGE,
            ..ListOptions::default()
        };
        let mut failed = Vec::new();
        loop {
            let page = self.answer(self.api.get_table(at, &options, false)).await?;
            let (works, next) = failed_works_of_page(&page)?;
            failed.extend(works);
            if next.is_empty() {
                break;
            }
            options.continue_token = next;
        }
        for work in failed.iter_mut().take(MAX_EXPLAINED_WORKS) {
            let at = ResourcePath::object(&WORKS, &work.namespace, &work.name);
            let read = self.answer(self.api.get(at)).await.ok();
            let view = read.and_then(|object| object.decode::<Work>().ok());
            let condition = view.as_ref().and_then(|work| work.condition("Applied"));
            work.message = condition.map(|c| one_line(&c.message)).unwrap_or_default();
        }
        Ok(failed)
    }
}

/// A page of Works in a Table: those that are not applied, and the token of the next page.
fn failed_works_of_page(page: &[u8]) -> Result<(Vec<FailedWork>, String), String> {
    let table: Value = machinery::json::from_slice(page).map_err(|e| e.to_string())?;
    let columns = table["columnDefinitions"].as_array();
    let applied = columns.and_then(|all| all.iter().position(|c| c["name"] == "APPLIED"));
    let applied = applied.ok_or("the table of works has no column APPLIED")?;
    let rows = table["rows"].as_array().into_iter().flatten();
    let failed =
        rows.filter(|row| matches!(row["cells"][applied].as_str(), Some("False" | "Unknown")));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let failed = failed.map(|row| {
        let head = &row["object"]["metadata"];
        FailedWork {
            namespace: text(&head["namespace"]),
            name: text(&head["name"]),
            message: String::new(),
        }
    });
    Ok((failed.collect(), text(&table["metadata"]["continue"])))
}

/// The message of a Status, or the text itself.
fn status_message(body: &str) -> String {
    let status: Option<Value> = machinery::json::from_str(body).ok();
    let message = status
        .as_ref()
        .and_then(|status| status["message"].as_str());
    message.unwrap_or(body).to_owned()
}

/// The beginning of a text, without line feeds and other control characters.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let shown = line.chars().filter(|c| !c.is_control());
    shown.take(MAX_TEXT_CHARS).collect()
}

/// The expiring credentials in the kubeconfig. Files and programs that are read at each
/// use renew themselves.
fn user_credentials(config: &RestConfig) -> Vec<UserCredential> {
    let auth = &config.auth;
    let certificate = auth.client_certificate.as_ref().and_then(|pair| {
        let pem = String::from_utf8_lossy(&pair.certificate);
        certificate_expiry(&pem)
    });
    let token = auth.token.as_ref().filter(|_| auth.token_file.is_none());
    let token = token.and_then(|token| token_expiry(&token.0));
    let credentials = [("client certificate", certificate), ("token", token)];
    let expiring = credentials.into_iter().filter_map(|(kind, seconds)| {
        let expires = Timestamp::from_second(seconds?).ok()?;
        Some(UserCredential { kind, expires })
    });
    expiring.collect()
}

/// The end of a JSON Web Token; none for another token.
fn token_expiry(token: &str) -> Option<i64> {
    let payload = token.trim().split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = machinery::json::from_slice(&payload).ok()?;
    claims["exp"].as_f64().map(|seconds| seconds as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_expire_are_those_of_the_kubeconfig_itself() {
        let mut config = RestConfig::new("https://127.0.0.1:1").unwrap();
        assert!(user_credentials(&config).is_empty());
        let payload = URL_SAFE_NO_PAD.encode(r#"{"exp":1700000000}"#);
        config.auth.token = Some(client::remote::Redacted(format!("h.{payload}.s")));
        let credentials = user_credentials(&config);
        assert_eq!(credentials.len(), 1);
        assert_eq!(credentials[0].kind, "token");
        assert_eq!(credentials[0].expires.as_second(), 1_700_000_000);
        config.auth.token_file = Some("token".into());
        assert!(user_credentials(&config).is_empty());
    }

    #[test]
    fn works_that_are_not_applied_are_found_in_tables() {
        let row = |name: &str, applied: Value| {
            serde_json::json!({"cells": [name, "ConfigMap", applied, "1s"],
                "object": {"metadata": {"name": name, "namespace": "karmada-es-m1"}}})
        };
        let columns = ["Name", "WORKLOAD-KIND", "APPLIED", "AGE"];
        let columns = columns.map(|name| serde_json::json!({"name": name}));
        let rows = [
            row("a", "True".into()),
            row("b", "False".into()),
            row("c", Value::Null),
        ];
        let table = serde_json::json!({"metadata": {"continue": "next"}, "columnDefinitions": columns, "rows": rows});
        let (failed, next) = failed_works_of_page(table.to_string().as_bytes()).unwrap();
        let names: Vec<&str> = failed.iter().map(|work| work.name.as_str()).collect();
        assert_eq!((names, next.as_str()), (vec!["b"], "next"));
        assert!(failed_works_of_page(b"{}").is_err());
    }

    #[test]
    fn answers_are_shortened_to_a_line() {
        let status = r#"{"kind":"Status","message":"no\nway"}"#;
        assert_eq!(one_line(&status_message(status)), "no way");
        assert_eq!(one_line(&"x".repeat(1000)).len(), MAX_TEXT_CHARS);
    }
}
