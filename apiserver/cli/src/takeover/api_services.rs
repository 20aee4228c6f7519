//! The APIServices of Karmada's groups in the host: whom they lead to, and giving them back.

use std::collections::BTreeSet;

use aggregation::MovedResource;
use anyhow::{Context, bail};
use client::{Api, DeleteOptions, ListOptions, ResourcePath, ignore_not_found};
use karmada_api::is_karmada_group;
use machinery::Gvr;
use machinery::conditions::is_condition_true;
use serde_json::{Value, json};

use super::session::{TakeoverSession, write_options};
use crate::conflicts::retry_on_conflict;

static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
/// The fields of the metadata that are given back.
const METADATA_FIELDS: [&str; 4] = ["name", "labels", "annotations", "ownerReferences"];

pub(super) fn name(service: &Value) -> &str {
    service["metadata"]["name"].as_str().unwrap_or_default()
}

/// The APIServices of Karmada's groups.
pub(super) async fn list(host: &dyn Api) -> anyhow::Result<Vec<Value>> {
    let all = ResourcePath::collection(&API_SERVICES, "");
    let listed = host.list(all, &ListOptions::default()).await;
    let mut services = Vec::new();
    for object in listed.context("APIServices of the host")?.items {
        let service = object.value()?;
        if service["spec"]["group"]
            .as_str()
            .is_some_and(is_karmada_group)
        {
            services.push(service);
        }
    }
    Ok(services)
}

/// Whether an APIService leads to Flotilla, which labels those that it writes.
pub(super) fn leads_to_flotilla(service: &Value, session: &TakeoverSession) -> bool {
    service["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "flotilla"
        && service["spec"]["service"]["namespace"] == *session.namespace
}

fn is_available(service: &Value) -> bool {
    is_condition_true(service, "Available")
}

/// Waits until those of all resources lead to Flotilla and are available.
pub(super) async fn wait_for_flotilla(
    session: &TakeoverSession,
    resources: &[MovedResource],
) -> anyhow::Result<()> {
    let required = resources.iter();
    let required: BTreeSet<String> = required
        .map(|r| format!("{}.{}", r.version, r.group))
        .collect();
    let waiting = "the APIServices to lead to Flotilla and to be available";
    session
        .wait_for(waiting, async || {
            let mut missing = required.clone();
            for service in list(&*session.host).await? {
                if leads_to_flotilla(&service, session) && is_available(&service) {
                    missing.remove(name(&service));
                }
            }
            Ok(missing.is_empty().then_some(()))
        })
        .await
}

/// Gives them back to those whom they led to before, and waits until they are available there.
/// An APIService that did not exist is deleted.
pub(super) async fn give_back(session: &TakeoverSession, before: &[Value]) -> anyhow::Result<()> {
    session.ensure_current().await?;
    let host = &*session.host;
    for service in list(host).await? {
        if leads_to_flotilla(&service, session) && !before.iter().any(|b| name(b) == name(&service))
        {
            let at = ResourcePath::object(&API_SERVICES, "", name(&service));
            ignore_not_found(host.delete(at, &DeleteOptions::default()).await)
                .map(drop)
                .with_context(|| format!("APIService {}", name(&service)))?;
        }
    }
    for service in before {
        // The host writes its availability meanwhile.
        retry_on_conflict(|| restore(session, service))
            .await
            .with_context(|| format!("APIService {}", name(service)))?;
    }
    session
        .wait_for("the APIServices to be available again", async || {
            let current = list(host).await?;
            let is_back = |service: &Value| {
                let mut current = current.iter();
                // One that was not available before may stay so.
                current.any(|c| {
                    name(c) == name(service)
                        && !leads_to_flotilla(c, session)
                        && (is_available(c) || !is_available(service))
                })
            };
            Ok(before.iter().all(is_back).then_some(()))
        })
        .await
}

async fn restore(session: &TakeoverSession, service: &Value) -> anyhow::Result<()> {
    let host = &*session.host;
    let at = ResourcePath::object(&API_SERVICES, "", name(service));
    let mut metadata = json!({});
    for field in METADATA_FIELDS {
        if !service["metadata"][field].is_null() {
            metadata[field] = service["metadata"][field].clone();
        }
    }
    let mut body = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": metadata, "spec": service["spec"]});
    let Some(current) = ignore_not_found(host.get(at).await)? else {
        let all = ResourcePath::collection(&API_SERVICES, "");
        host.create(all, body.into(), write_options()).await?;
        return Ok(());
    };
    let current = current.value()?;
    if !leads_to_flotilla(&current, session) {
        if current["spec"]["service"] != service["spec"]["service"] {
            bail!("it leads to another server: {}", current["spec"]["service"]);
        }
        return Ok(());
    }
    body["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    host.update(at, body.into(), write_options()).await?;
    Ok(())
}
