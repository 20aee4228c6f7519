//! Reads the state of a scenario's objects, without the fields that no rule can predict.
//!
//! Omitted everywhere: `uid`, `resourceVersion`, `creationTimestamp`, `generation`,
//! `managedFields` and the times of conditions with their `observedGeneration`; conditions
//! are sorted by type. Annotations with JSON are parsed. In addition:
//! - bindings: `spec.clusters` is sorted, because its order follows the available replicas;
//!   `spec.resource.resourceVersion`, `status.lastScheduledTime` and the times of eviction
//!   tasks are omitted; `rescheduleTriggeredAt` is `set`; an observed generation is
//!   `current` or `old`;
//! - objects in members: `status` is omitted, because the simulated member writes it (Works
//!   and bindings have the reflected status), and so are fields that a member fills in:
//!   cluster IPs of Services, labels of the Job controller, the revision of a Deployment.

use std::collections::BTreeMap;

use client::{ListOptions, ResourcePath};
use harness::ApiServerClient;
use harness::objects::{BINDINGS, CLUSTER_BINDINGS, WORKS, execution_space, gvr};
use machinery::Gvr;
use serde_json::{Map, Value, json};

use crate::scenarios::scenario_control_plane::ScenarioControlPlane;

const SERVER_SET_METADATA: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
];

/// The labels that the Job controller sets on pods.
pub(crate) const JOB_CONTROLLER_LABELS: [&str; 4] = [
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
];

/// All objects of one scenario, as read.
#[derive(Default)]
pub(crate) struct ObservedState {
    /// Bindings by name.
    pub(crate) bindings: BTreeMap<String, Value>,
    /// Works by cluster and name.
    pub(crate) works: BTreeMap<(String, String), Value>,
    /// Members' objects by cluster and `Kind/name`.
    pub(crate) objects: BTreeMap<(String, String), Value>,
    /// Templates and policies by `Kind/name`.
    pub(crate) control_objects: BTreeMap<String, Value>,
}

pub(crate) fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn object_name(object: &Value) -> String {
    text_at(object, "/metadata/name").to_owned()
}

/// Whether every namespace has this object, or a controller of the member owns it.
fn is_unmanaged(object: &Value) -> bool {
    let name = text_at(object, "/metadata/name");
    name == "kube-root-ca.crt"
        || (name == "default" && object["kind"] == "ServiceAccount")
        || object["metadata"]["ownerReferences"].is_array()
}

/// The objects of a resource in a member; none if the member does not serve it.
async fn list_if_served(member: &ApiServerClient, resource: &Gvr) -> Vec<Value> {
    let options = ListOptions::default();
    match member
        .api
        .list(ResourcePath::collection(resource, ""), &options)
        .await
    {
        Ok(list) => list.items.iter().map(|o| o.value().unwrap()).collect(),
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => panic!("{}: {error}", member.name),
    }
}

impl ObservedState {
    /// Reads the objects of the namespace, and cluster-scoped ones whose name begins with its
    /// name. Deleted policies are kept from `before`.
    pub(crate) async fn observe(
        plane: &ScenarioControlPlane,
        namespace: &str,
        kinds: &[String],
        before: BTreeMap<String, Value>,
    ) -> Self {
        let control = &plane.control;
        let mut observed = Self {
            control_objects: before,
            ..Self::default()
        };
        observed
            .control_objects
            .retain(|kind_and_name, _| kind_and_name.contains("Policy/"));
        let mine = |o: &Value| {
            let scoped = text_at(o, "/metadata/namespace");
            scoped == namespace || (scoped.is_empty() && object_name(o).starts_with(namespace))
        };
        let mut bindings = control.list(&BINDINGS, namespace).await;
        bindings.extend(control.list(&CLUSTER_BINDINGS, "").await);
        bindings.retain(|b| mine(b));
        observed.bindings = bindings.into_iter().map(|b| (object_name(&b), b)).collect();
        for member in &plane.members {
            for work in control.list(&WORKS, &execution_space(&member.name)).await {
                let marks = &work["metadata"]["annotations"];
                let of = &marks["resourcebinding.karmada.io/namespace"];
                let wide = &marks["clusterresourcebinding.karmada.io/name"];
                let wide = wide.as_str().is_some_and(|n| n.starts_with(namespace));
                if of == namespace || wide {
                    let key = (member.name.clone(), object_name(&work));
                    observed.works.insert(key, work);
                }
            }
        }
        for kind in kinds {
            let resource = gvr(&json!({ "kind": kind }));
            let kind_and_name = |o: &Value| format!("{kind}/{}", object_name(o));
            for object in control.list(resource, "").await {
                if mine(&object) {
                    observed
                        .control_objects
                        .insert(kind_and_name(&object), object);
                }
            }
            if kind.ends_with("Policy") {
                continue;
            }
            for member in &plane.members {
                for object in list_if_served(member, resource).await {
                    if mine(&object) && !is_unmanaged(&object) {
                        let key = (member.name.clone(), kind_and_name(&object));
                        observed.objects.insert(key, object);
                    }
                }
            }
        }
        observed
    }

    /// The objects as one normalized tree for the comparison.
    pub(crate) fn normalized_tree(&self) -> Value {
        let mut tree = json!({"bindings": {}, "works": {}, "members": {}});
        for (name, binding) in &self.bindings {
            tree["bindings"][name] = normalized_binding(binding.clone());
        }
        for ((cluster, name), work) in &self.works {
            tree["works"][cluster][name] = normalized_work(work.clone());
        }
        for ((cluster, kind_and_name), object) in &self.objects {
            tree["members"][cluster][kind_and_name] = normalized_member_object(object.clone());
        }
        tree
    }
}

fn normalize(object: &mut Value) {
    remove_fields(&mut object["metadata"], SERVER_SET_METADATA);
    if let Some(time) = object["metadata"].get_mut("deletionTimestamp") {
        *time = "set".into();
    }
    if let Some(Value::Array(all)) = object.pointer_mut("/status/conditions") {
        for condition in &mut *all {
            let condition = condition.as_object_mut().unwrap();
            condition.retain(|key, _| ["type", "status", "reason", "message"].contains(&&**key));
        }
        all.sort_by_key(|c| text_at(c, "/type").to_owned());
    }
}

/// Parses annotations whose values are JSON.
fn parse_annotations(object: &mut Value, keys: &[&str]) {
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else {
        return;
    };
    for key in keys {
        if let Some(text) = annotations.get_mut(*key) {
            *text =
                machinery::json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
        }
    }
}

pub(crate) fn normalized_binding(mut binding: Value) -> Value {
    let generation = binding["metadata"]["generation"].clone();
    normalize(&mut binding);
    // Whether the scheduler has moved the template does not belong to its state.
    if let Some(annotations) = binding.pointer_mut("/metadata/annotations") {
        remove_fields(annotations, &["flotilla.io/scheduled-from"]);
    }
    parse_annotations(
        &mut binding,
        &[
            "policy.karmada.io/applied-placement",
            "resourcebinding.karmada.io/dependencies",
        ],
    );
    remove_fields(&mut binding["spec"]["resource"], &["resourceVersion"]);
    if let Some(Value::Array(clusters)) = binding["spec"].get_mut("clusters") {
        clusters.sort_by_key(|c| text_at(c, "/name").to_owned());
    }
    if let Some(Value::Array(all)) = binding["spec"].get_mut("requiredBy") {
        for required in all {
            if let Some(Value::Array(clusters)) = required.get_mut("clusters") {
                clusters.sort_by_key(|c| text_at(c, "/name").to_owned());
            }
        }
    }
    if let Some(time) = binding["spec"].get_mut("rescheduleTriggeredAt") {
        *time = "set".into();
    }
    if let Some(Value::Array(tasks)) = binding["spec"].get_mut("gracefulEvictionTasks") {
        tasks
            .iter_mut()
            .for_each(|t| remove_fields(t, &["creationTimestamp"]));
    }
    if let Some(Value::Object(status)) = binding.get_mut("status") {
        status.remove("lastScheduledTime");
        if let Some(observed) = status.get_mut("schedulerObservedGeneration") {
            let word = if *observed == generation {
                "current"
            } else {
                "old"
            };
            *observed = word.into();
        }
        if let Some(Value::Array(all)) = status.get_mut("aggregatedStatus") {
            for item in all {
                normalize_report(&mut item["status"]);
                remove_null(item, "status");
            }
        }
    }
    binding
}

pub(crate) fn normalized_work(mut work: Value) -> Value {
    normalize(&mut work);
    parse_annotations(
        &mut work,
        &[
            "policy.karmada.io/applied-overrides",
            "policy.karmada.io/applied-cluster-overrides",
        ],
    );
    if let Some(Value::Array(all)) = work.pointer_mut("/status/manifestStatuses") {
        for item in all {
            normalize_report(&mut item["status"]);
            remove_null(item, "status");
        }
    }
    // Karmada sets no others.
    if let Some(Value::Array(all)) = work.pointer_mut("/status/conditions") {
        all.retain(|c| c["type"] == "Applied" || c["type"] == "Dispatching");
    }
    work
}

fn normalized_member_object(mut object: Value) -> Value {
    normalize(&mut object);
    remove_fields(&mut object, &["status"]);
    if let Some(Value::Object(marks)) = object.pointer_mut("/metadata/annotations") {
        marks.remove("deployment.kubernetes.io/revision");
    }
    if object["kind"] == "Service" && object["spec"]["clusterIP"] != "None" {
        remove_fields(&mut object["spec"], &["clusterIP", "clusterIPs"]);
    }
    if object["kind"] == "Job" {
        remove_fields(&mut object["spec"], &["selector"]);
        remove_fields(
            &mut object["spec"]["template"]["metadata"]["labels"],
            &JOB_CONTROLLER_LABELS,
        );
    }
    object
}

fn normalize_report(report: &mut Value) {
    if let Value::Object(fields) = report {
        fields.retain(|key, _| !key.ends_with("Time") && key != "conditions");
    }
}

fn remove_fields(object: &mut Value, keys: &[&str]) {
    if let Value::Object(fields) = object {
        fields.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

fn remove_null(object: &mut Value, key: &str) {
    if object[key].is_null() {
        remove_fields(object, &[key]);
    }
}

/// The differences of two trees, one line each.
pub(crate) fn differences(expected: &Value, observed: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", Some(expected), Some(observed), &mut differences);
    differences
}

/// The fields of `expected` that `observed` lacks or that differ, one line each.
pub(crate) fn missing_fields(expected: &Value, observed: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    compare_subset("", expected, Some(observed), &mut missing);
    missing
}

fn compare_subset(
    at: &str,
    expected: &Value,
    observed: Option<&Value>,
    differences: &mut Vec<String>,
) {
    match (expected, observed) {
        (Value::Object(expected), Some(Value::Object(observed))) => {
            for (key, expected) in expected {
                compare_subset(
                    &format!("{at}/{key}"),
                    expected,
                    observed.get(key),
                    differences,
                );
            }
        }
        (Value::Array(expected), Some(Value::Array(observed)))
            if expected.len() == observed.len() =>
        {
            for (i, (expected, observed)) in expected.iter().zip(observed).enumerate() {
                compare_subset(&format!("{at}/{i}"), expected, Some(observed), differences);
            }
        }
        (Value::Null, None) => {}
        (Value::String(word), Some(Value::String(_))) if word == "set" => {}
        (expected, observed) => compare(at, Some(expected), observed, differences),
    }
}

fn compare(
    at: &str,
    expected: Option<&Value>,
    observed: Option<&Value>,
    differences: &mut Vec<String>,
) {
    match (expected, observed) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Map<String, Value> = a.clone();
            keys.extend(b.clone());
            for key in keys.keys() {
                compare(&format!("{at}/{key}"), a.get(key), b.get(key), differences);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}/{i}"), Some(a), Some(b), differences);
            }
        }
        (expected, observed) if expected == observed => {}
        (expected, observed) => {
            let show = |v: Option<&Value>| v.map_or("nothing".to_owned(), Value::to_string);
            differences.push(format!(
                "{at}: expected {}, observed {}",
                show(expected),
                show(observed)
            ));
        }
    }
}
