//! Sends requests as karmadactl does, and checks the responses.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use harness::http_client::{
    HttpTestClient, HttpTestRequest, HttpTestResponse, cluster_proxy_path, within_timeout,
};

/// The Accept header of typed clients of built-in kinds, with JSON first, so that a
/// kube-apiserver responds in a form that can be compared.
pub(crate) const TYPED_ACCEPT: &str = "application/json,application/vnd.kubernetes.protobuf";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sends the requests of one command to one server.
pub(crate) struct KarmadactlRequestChecker<'a> {
    pub(crate) command: &'a str,
    pub(crate) target: &'a HttpTestClient,
}

impl KarmadactlRequestChecker<'_> {
    pub(crate) async fn request(
        &self,
        request: HttpTestRequest,
        line: &str,
        codes: &[u16],
        expected_fields: &[(&str, Value)],
    ) -> Value {
        let reply = self
            .target
            .call(request.header("user-agent", "karmadactl/v1.19"))
            .await;
        self.check(reply, line, codes, expected_fields)
    }

    fn check(
        &self,
        reply: HttpTestResponse,
        line: &str,
        codes: &[u16],
        expected_fields: &[(&str, Value)],
    ) -> Value {
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        let context = format!("{}: {line}: {}: {body}", self.command, reply.code);
        assert!(codes.contains(&reply.code), "{context}");
        // The plain text of a kube-apiserver for a group that it does not serve.
        if reply.code == 404 && body.trim_end() == "404 page not found" {
            return Value::Null;
        }
        let value: Value =
            machinery::json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {context}"));
        if reply.code >= 400 {
            assert_eq!(value["kind"], "Status", "{context}");
            assert_eq!(value["code"], reply.code, "{context}");
        }
        for (pointer, expected) in expected_fields {
            let actual = value.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(actual, expected, "{pointer} of {context}");
        }
        value
    }

    pub(crate) async fn get(
        &self,
        path: &str,
        code: u16,
        expected_fields: &[(&str, Value)],
    ) -> Value {
        self.get_as(path, TYPED_ACCEPT, code, expected_fields).await
    }

    pub(crate) async fn get_as(
        &self,
        path: &str,
        accept: &str,
        code: u16,
        expected_fields: &[(&str, Value)],
    ) -> Value {
        let request = HttpTestRequest::new(Method::GET, path).header("accept", accept);
        self.request(request, &format!("GET {path}"), &[code], expected_fields)
            .await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: Value,
        expected_fields: &[(&str, Value)],
    ) -> Value {
        let request = HttpTestRequest::new(Method::POST, path)
            .header("accept", TYPED_ACCEPT)
            .json(&body);
        self.request(request, &format!("POST {path}"), &[201], expected_fields)
            .await
    }

    /// Creates an object unless it exists.
    pub(crate) async fn ensure(&self, path: &str, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap();
        let request = HttpTestRequest::new(Method::GET, &format!("{path}/{name}"))
            .header("accept", TYPED_ACCEPT);
        let existing = self
            .request(request, &format!("GET {path}/{name}"), &[200, 404], &[])
            .await;
        if existing["kind"] == "Status" {
            self.post(path, body, &[]).await;
        }
    }

    pub(crate) async fn merge(
        &self,
        path: &str,
        patch: Value,
        code: u16,
        expected_fields: &[(&str, Value)],
    ) -> Value {
        let request = HttpTestRequest::new(Method::PATCH, path)
            .header("content-type", "application/merge-patch+json")
            .header("accept", "application/json")
            .body(harness::http_client::full_body(patch.to_string()));
        self.request(
            request,
            &format!("PATCH {path} {patch}"),
            &[code],
            expected_fields,
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        let request = HttpTestRequest::new(Method::DELETE, path)
            .header("accept", TYPED_ACCEPT)
            .json(&options);
        self.request(request, &format!("DELETE {path}"), &[200], &[])
            .await;
    }

    /// Waits until requests through the proxy of a cluster pass, and returns its API versions: a
    /// cluster that has just been joined does not have the rights to impersonate users yet.
    pub(crate) async fn wait_until_proxied(&self, cluster: &str) -> Value {
        let path = cluster_proxy_path(cluster, "/api");
        let versions = self.get_until(&path, "proxied", |r| r.code == 200).await;
        versions.json()
    }

    /// Repeats a request until `matches` holds for the response, as a command that waits does.
    pub(crate) async fn get_until(
        &self,
        path: &str,
        description: &str,
        matches: impl Fn(&HttpTestResponse) -> bool,
    ) -> HttpTestResponse {
        let context = format!("{}: {path}: {description}", self.command);
        within_timeout(&context, async {
            loop {
                let reply = self.target.get(path).await;
                if matches(&reply) {
                    return reply;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
        .await
    }
}
