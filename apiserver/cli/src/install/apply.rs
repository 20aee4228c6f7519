//! Applies the manifests to a cluster and waits for the Deployment.

use std::time::Duration;

use anyhow::{Context, bail};
use client::{Api, Error, Patch, ResourcePath, WriteOptions};
use machinery::{Gvr, Object};
use serde_json::Value;
use tokio::time::Instant;

use super::manifests::{NAME, resource};
use crate::output;

pub(super) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
const POLL_INTERVAL: Duration = Duration::from_millis(500);

fn metadata_field<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Applies objects in order, and prints the result of each.
pub(super) async fn apply_all(
    host: &dyn Api,
    objects: Vec<Value>,
    dry_run: bool,
) -> anyhow::Result<()> {
    for mut object in objects {
        if object["kind"] == "PodDisruptionBudget" {
            object["apiVersion"] = disruption_budget_version(host).await?.into();
        }
        let resource = resource(&object)?;
        let (namespace, name) = (
            metadata_field(&object, "namespace"),
            metadata_field(&object, "name"),
        );
        let description = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
        let at = ResourcePath::object(&resource, namespace, name);
        let outcome = apply_object(host, at, &object, dry_run).await;
        match outcome {
            // In a dry run the namespace of the object is not created.
            Err(Error::Status(status)) if dry_run && status.code == 404 => {
                output::print_progress(format!("{description} not checked: {status}"));
            }
            outcome => {
                let done = outcome.with_context(|| description.clone())?;
                output::print_progress(format!("{description} {done}"));
            }
        }
    }
    Ok(())
}

/// The version in which the cluster serves PodDisruptionBudgets; before Kubernetes 1.21
/// it is v1beta1.
async fn disruption_budget_version(host: &dyn Api) -> anyhow::Result<&'static str> {
    match host.get_raw("/apis/policy/v1").await {
        Ok(_) => Ok("policy/v1"),
        Err(e) if e.is_not_found() => Ok("policy/v1beta1"),
        Err(e) => Err(e).context("the versions of policy"),
    }
}

async fn apply_object(
    host: &dyn Api,
    at: ResourcePath<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<&'static str, Error> {
    let options = WriteOptions {
        dry_run,
        field_manager: "flotilla-install".into(),
        ..WriteOptions::default()
    };
    let existing = match host.get(at).await {
        Ok(existing) => existing,
        Err(e) if e.is_not_found() => {
            let all = ResourcePath::collection(at.resource, at.namespace);
            host.create(all, object.clone().into(), &options).await?;
            return Ok("created");
        }
        Err(e) => return Err(e),
    };
    let patch = Patch::Merge(object.clone());
    let patched = host.patch(at, patch, &options).await?;
    Ok(if patched.revision() == existing.revision() {
        "unchanged"
    } else {
        "configured"
    })
}

/// Waits until the Deployment has all its replicas.
pub(super) async fn wait_until_available(
    host: &dyn Api,
    namespace: &str,
    wait: Duration,
) -> anyhow::Result<()> {
    output::print_progress(format!(
        "waiting up to {} s for Deployment {NAME}",
        wait.as_secs()
    ));
    let until = Instant::now() + wait;
    loop {
        let existing = host
            .get(ResourcePath::object(&DEPLOYMENTS, namespace, NAME))
            .await?;
        let [desired, ready] = replicas(&existing)?;
        if ready >= desired {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!(
                "{ready} of {desired} replicas are available after {} s; see kubectl -n {namespace} describe pods",
                wait.as_secs()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The desired replicas, and those that are available and updated.
fn replicas(deployment: &Object) -> anyhow::Result<[i64; 2]> {
    let value = deployment.value()?;
    let status = &value["status"];
    let observed = status["observedGeneration"] == value["metadata"]["generation"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let ready = number("availableReplicas").min(number("updatedReplicas"));
    let desired = value["spec"]["replicas"].as_i64().unwrap_or(1);
    Ok([desired, if observed { ready } else { 0 }])
}
