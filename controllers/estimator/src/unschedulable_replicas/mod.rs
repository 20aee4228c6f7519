//! Counts the pods of a Deployment that the member's scheduler has failed to place for long.
//!
//! The member is asked when the descheduler asks, since few Deployments lack replicas; so
//! pods need not be kept. Source of the rules: Karmada's `pkg/estimator/server/replica`.

use std::time::Duration;

use client::{Api, ListOptions, ResourcePath};
use jiff::{SignedDuration, Timestamp};
use machinery::selector::LabelSelector;
use machinery::{Gvr, Object, time};
use serde_json::Value;

use crate::protobuf::ObjectReferenceMessage;

static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static REPLICA_SETS: Gvr = Gvr::from_static("apps", "v1", "replicasets");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");
const LIST_PAGE_LIMIT: u64 = 500;
const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

/// The pods of the workload's newest ReplicaSet that have been unschedulable for longer than
/// `threshold`.
pub(crate) async fn count_unschedulable_replicas(
    api: &dyn Api,
    workload: &ObjectReferenceMessage,
    threshold: Duration,
    now: Timestamp,
) -> Result<i32, String> {
    let ObjectReferenceMessage {
        api_version,
        kind,
        namespace,
        name,
    } = workload;
    if (api_version.as_str(), kind.as_str()) != ("apps/v1", "Deployment") {
        return Err(format!(
            "kind({kind}) of workload({namespace}/{name}) is not supported"
        ));
    }
    let text = |e: client::Error| e.to_string();
    let path = ResourcePath::object(&DEPLOYMENTS, namespace, name);
    let deployment = api.get(path).await.map_err(text)?;
    let value = deployment.value().map_err(|e| e.to_string())?;
    let selector = LabelSelector::from_value(&value["spec"]["selector"])?.to_string();
    let replica_sets = list_selected(api, &REPLICA_SETS, namespace, &selector).await?;
    let Some(newest) = newest_replica_set(&deployment, &value, &replica_sets)? else {
        return Ok(0);
    };
    let pods = list_selected(api, &PODS, namespace, &selector).await?;
    let threshold = SignedDuration::try_from(threshold).unwrap_or(SignedDuration::MAX);
    let mut unschedulable = 0;
    for pod in pods.iter().filter(|pod| is_controlled_by(pod, newest)) {
        let pod = pod.value().map_err(|e| e.to_string())?;
        if is_unschedulable_for(&pod, threshold, now) {
            unschedulable += 1;
        }
    }
    Ok(unschedulable)
}

async fn list_selected(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    selector: &str,
) -> Result<Vec<Object>, String> {
    let mut options = ListOptions {
        label_selector: selector.to_owned(),
        limit: LIST_PAGE_LIMIT,
        ..ListOptions::default()
    };
    let mut objects = Vec::new();
    loop {
        let path = ResourcePath::collection(resource, namespace);
        let page = api.list(path, &options).await.map_err(|e| e.to_string())?;
        objects.extend(page.items);
        if page.continue_token.is_empty() {
            return Ok(objects);
        }
        options.continue_token = page.continue_token;
    }
}

fn is_controlled_by(object: &Object, owner: &Object) -> bool {
    object
        .meta()
        .controller()
        .is_some_and(|reference| *reference.uid == *owner.uid())
}

/// The ReplicaSet with the Deployment's own template; of several, the one created first.
fn newest_replica_set<'a>(
    deployment: &Object,
    value: &Value,
    replica_sets: &'a [Object],
) -> Result<Option<&'a Object>, String> {
    let template = template_without_hash(value);
    let mut newest: Option<(String, &Object)> = None;
    for set in replica_sets
        .iter()
        .filter(|set| is_controlled_by(set, deployment))
    {
        let value = set.value().map_err(|e| e.to_string())?;
        if template_without_hash(&value) != template {
            continue;
        }
        let created = value["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap_or_default();
        let is_earlier = newest.as_ref().is_none_or(|(first, earliest)| {
            (created, set.name()) < (first.as_str(), earliest.name())
        });
        if is_earlier {
            newest = Some((created.to_owned(), set));
        }
    }
    Ok(newest.map(|(_, set)| set))
}

fn template_without_hash(workload: &Value) -> Value {
    let mut template = workload["spec"]["template"].clone();
    let labels = template.pointer_mut("/metadata/labels");
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH_LABEL);
    }
    template
}

fn is_unschedulable_for(pod: &Value, threshold: SignedDuration, now: Timestamp) -> bool {
    let phase = pod["status"]["phase"].as_str();
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut scheduled = conditions.filter(|condition| condition["type"] == "PodScheduled");
    scheduled.next().is_some_and(|condition| {
        let since = condition["lastTransitionTime"]
            .as_str()
            .and_then(|text| time::parse(text).ok());
        let is_due = since.is_none_or(|since| now.duration_since(since) > threshold);
        condition["status"] == "False" && condition["reason"] == "Unschedulable" && is_due
    })
}

#[cfg(test)]
mod tests;
