//! Templates and policies as a scenario writes them, so that the expected state is not
//! derived from the server's objects.
//!
//! written object + defaults of its kind + fields that only the server sets ──► the object
//!
//! The defaults are a second implementation (Kubernetes `pkg/apis/*/v1/defaults.go`, Karmada
//! `pkg/webhook`). Only the server sets ids, times, labels and annotations of claims, the
//! status, the cluster IP of a Service and the selector of a Job.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::scenarios::expectation_rules::merge_patch;
use crate::scenarios::observed_state::text_at;

/// Defaults of a container that no scenario writes.
fn default_container() -> Value {
    json!({
        "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

fn pod_spec() -> Value {
    json!({
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    })
}

/// The defaults of the spec of a kind.
fn default_spec(kind: &str) -> Value {
    match kind {
        "Deployment" => json!({
            "replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"spec": pod_spec()},
        }),
        "StatefulSet" => json!({
            "replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy":
                {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"spec": pod_spec()},
        }),
        "Job" => json!({
            "backoffLimit": 6, "completionMode": "NonIndexed", "manualSelector": false,
            "parallelism": 1, "podReplacementPolicy": "TerminatingOrFailed", "suspend": false,
            "template": {"spec": pod_spec()},
        }),
        "Service" => json!({
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
        }),
        "PropagationPolicy" | "ClusterPropagationPolicy" => json!({
            "conflictResolution": "Abort", "preemption": "Never", "priority": 0,
            "schedulerName": "default-scheduler",
        }),
        _ => json!({}),
    }
}

/// Fills missing fields with defaults.
fn fill_defaults(object: &mut Value, defaults: &Value) {
    let (Some(fields), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else {
        return;
    };
    for (name, default) in defaults {
        match fields.get_mut(name) {
            Some(own) => fill_defaults(own, default),
            None => drop(fields.insert(name.clone(), default.clone())),
        }
    }
}

fn for_each_item(object: &mut Value, list: &str, change: impl Fn(&mut Value)) {
    if let Some(Value::Array(all)) = object.pointer_mut(list) {
        all.iter_mut().for_each(change);
    }
}

/// Fills defaults inside lists, and defaults that depend on another field.
fn fill_list_defaults(object: &mut Value, kind: &str) {
    for_each_item(object, "/spec/template/spec/containers", |c| {
        fill_defaults(c, &default_container());
    });
    if kind == "Service" {
        for_each_item(object, "/spec/ports", |port| {
            let target = port["port"].clone();
            fill_defaults(port, &json!({"protocol": "TCP", "targetPort": target}));
        });
    }
    if kind == "Job" && object["spec"].get("completions").is_none() {
        let one = object["spec"]["parallelism"] == 1;
        if one {
            object["spec"]["completions"] = 1.into();
        }
    }
    if kind == "Secret" {
        fill_defaults(object, &json!({"type": "Opaque"}));
    }
    if kind == "PropagationPolicy" {
        let namespace = object["metadata"]["namespace"].clone();
        for_each_item(object, "/spec/resourceSelectors", |selector| {
            fill_defaults(selector, &json!({ "namespace": namespace }));
        });
    }
    for_each_item(object, "/spec/placement/spreadConstraints", |constraint| {
        if constraint.get("spreadByLabel").is_none() {
            fill_defaults(constraint, &json!({"spreadByField": "cluster"}));
        }
        fill_defaults(constraint, &json!({"minGroups": 1}));
    });
    if let Some(strategy) = object.pointer_mut("/spec/placement/replicaScheduling")
        && strategy["replicaSchedulingType"] == "Divided"
    {
        fill_defaults(strategy, &json!({"replicaDivisionPreference": "Weighted"}));
    }
}

/// Copies the fields that only the server sets.
fn copy_server_fields(object: &mut Value, live: &Value, kind: &str) {
    let mut metadata = live["metadata"].clone();
    merge_patch(&mut metadata, &object["metadata"]);
    object["metadata"] = metadata;
    if let Some(status) = live.get("status") {
        object["status"] = status.clone();
    }
    let places: &[&str] = match kind {
        "Service" => &["/spec/clusterIP", "/spec/clusterIPs"],
        "Job" => &["/spec/selector", "/spec/template/metadata"],
        _ => &[],
    };
    for pointer in places {
        let value = live.pointer(pointer).cloned().unwrap_or(Value::Null);
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
            fields.insert(field.to_owned(), value);
        }
    }
}

/// All objects that a scenario has written, by `Kind/name`.
#[derive(Default)]
pub(crate) struct WrittenObjects(BTreeMap<String, Value>);

impl WrittenObjects {
    /// Records an object, or a merge patch of one.
    pub(crate) fn apply(&mut self, object: &Value) {
        let kind_and_name = format!(
            "{}/{}",
            text_at(object, "/kind"),
            text_at(object, "/metadata/name")
        );
        let own = self
            .0
            .entry(kind_and_name)
            .or_insert_with(|| Map::new().into());
        merge_patch(own, object);
    }

    pub(crate) fn scale(&mut self, kind_and_name: &str, replicas: i64) {
        if let Some(object) = self.0.get_mut(kind_and_name) {
            merge_patch(object, &json!({"spec": {"replicas": replicas}}));
        }
    }

    /// Removes a deleted object. Policies are kept, because Works keep their labels and
    /// annotations.
    pub(crate) fn delete(&mut self, kind_and_name: &str) {
        if !kind_and_name.contains("Policy/") {
            self.0.remove(kind_and_name);
        }
    }

    /// The written object with the defaults and fields that the server must have set; an object
    /// that the scenario did not write is returned as read.
    pub(crate) fn with_defaults(&self, kind_and_name: &str, live: &Value) -> Value {
        let Some(own) = self.0.get(kind_and_name) else {
            return live.clone();
        };
        let kind = text_at(own, "/kind");
        let mut object = own.clone();
        let defaults = default_spec(kind);
        if defaults
            .as_object()
            .is_some_and(|fields| !fields.is_empty())
        {
            fill_defaults(&mut object, &json!({ "spec": defaults }));
        }
        fill_list_defaults(&mut object, kind);
        copy_server_fields(&mut object, live, kind);
        object
    }
}
