//! Native rules of Pod without a controller: one replica, whose spec the member completes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::native::conditions::{
    ConditionTimes, STATUS_NOT_REPORTED, TemplateCondition, conditions_of, conjunction,
    reported_conditions, set_conditions,
};
use crate::native::{
    CollectedStatus, Error, NativeRules, TemplateReplicas, parse_collected_status, parse_object,
    retain_added_spec_fields, retain_field, retain_spec_field,
};
use crate::replica_requirements::{PodTemplateSpec, generate_replica_requirements};

pub(crate) struct NativePodRules;

/// The conditions of a pod that hold where they hold in every cluster.
const CONDITIONS: [&str; 4] = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
/// The conditions that a pod always has.
const READINESS: [&str; 2] = ["ContainersReady", "Ready"];

/// The aggregated phase is the first of these that any cluster reports.
const PHASE_PRECEDENCE: [&str; 4] = ["Failed", "Pending", "Running", "Succeeded"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodWithStatus {
    status: ObservedPodStatus,
}

#[derive(Deserialize)]
struct PodTemplateWithStatus {
    status: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObservedPodStatus {
    phase: String,
    conditions: Vec<ObservedPodCondition>,
    container_statuses: Vec<ReflectedContainerStatus>,
    init_container_statuses: Vec<ReflectedContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObservedPodCondition {
    #[serde(rename = "type")]
    condition_type: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReflectedContainerStatus {
    ready: bool,
    state: Map<String, Value>,
}

impl ReflectedContainerStatus {
    /// The container status as it is aggregated: only `ready` and `state`. The other fields are
    /// those that the Go type always encodes.
    fn into_aggregated(self) -> Value {
        json!({"name": "", "state": self.state, "lastState": {}, "ready": self.ready,
               "restartCount": 0, "image": "", "imageID": ""})
    }
}

/// The conditions of a pod that is in several clusters.
fn pod_conditions(items: &[CollectedStatus<'_>]) -> Vec<TemplateCondition> {
    let condition_of = |kind: &'static str| {
        let reports = reported_conditions(items, kind);
        conjunction(kind, &reports).or_else(|| {
            READINESS
                .contains(&kind)
                .then(|| TemplateCondition::new(kind, "False", STATUS_NOT_REPORTED, String::new()))
        })
    };
    CONDITIONS.into_iter().filter_map(condition_of).collect()
}

/// The elements of a list in the spec.
fn spec_list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    let list = object["spec"][field].as_array();
    list.into_iter().flatten()
}

impl NativeRules for NativePodRules {
    fn replicas(&self, object: &Object) -> Result<Option<TemplateReplicas>, Error> {
        let pod: PodTemplateSpec = parse_object(object, "replicas")?;
        Ok(Some(TemplateReplicas {
            count: 1,
            requirements: generate_replica_requirements(&pod.spec),
        }))
    }

    /// Retains what the member's scheduler and admission plugins set. Karmada retains only the
    /// fields named here, and so fails to update a pod to which the member added others.
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        for field in ["nodeName", "serviceAccountName", "volumes"] {
            retain_spec_field(desired, field, observed["spec"].get(field));
        }
        for list in ["containers", "initContainers"] {
            for current in spec_list(observed, list) {
                let containers = desired.get_mut("spec").and_then(|spec| spec.get_mut(list));
                let containers = containers.and_then(Value::as_array_mut);
                let mut containers = containers.into_iter().flatten();
                if let Some(container) = containers.find(|c| c["name"] == current["name"]) {
                    retain_field(container, "volumeMounts", current.get("volumeMounts"));
                }
            }
        }
        retain_added_spec_fields(desired, observed);
        Ok(())
    }

    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let pod: PodWithStatus = parse_object(observed, "health")?;
        let ready = |c: &ObservedPodCondition| c.condition_type == "Ready" && c.status == "True";
        Ok(Some(match pod.status.phase.as_str() {
            "Succeeded" => true,
            "Running" => pod.status.conditions.iter().any(ready),
            _ => false,
        }))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if items.is_empty() {
            return Ok(None);
        }
        let mut phases = BTreeSet::new();
        let (mut containers, mut inits) = (Vec::new(), Vec::new());
        for item in items {
            let Some(reported) = item.status else {
                // No status was collected yet.
                phases.insert("Pending".to_owned());
                continue;
            };
            let status: ObservedPodStatus = parse_collected_status(item, reported)?;
            phases.insert(status.phase);
            containers.extend(
                status
                    .container_statuses
                    .into_iter()
                    .map(ReflectedContainerStatus::into_aggregated),
            );
            inits.extend(
                status
                    .init_container_statuses
                    .into_iter()
                    .map(ReflectedContainerStatus::into_aggregated),
            );
        }
        let mut out = Map::new();
        if let Some(phase) = PHASE_PRECEDENCE.into_iter().find(|p| phases.contains(*p)) {
            out.insert("phase".into(), phase.into());
        }
        for (field, list) in [
            ("containerStatuses", containers),
            ("initContainerStatuses", inits),
        ] {
            if !list.is_empty() {
                out.insert(field.into(), list.into());
            }
        }
        let template: PodTemplateWithStatus = parse_object(template, "status")?;
        let old = conditions_of(template.status.as_ref());
        let times = ConditionTimes {
            now,
            has_update_time: false,
        };
        set_conditions(&mut out, old, pod_conditions(items), &CONDITIONS, times);
        Ok(Some(Value::Object(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::{aggregate_statuses, object};

    // proves: NAT-pod
    #[test]
    fn a_pod_is_one_replica() {
        let pod = object(json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}));
        let actual = NativePodRules.replicas(&pod).unwrap().unwrap();
        assert_eq!(actual.count, 1);
        assert_eq!(
            actual.requirements,
            Some(json!({"resourceRequest": {"cpu": "1"}}))
        );
        assert_eq!(NativePodRules.replica_field(), None);
    }

    // proves: NAT-pod-health
    #[test]
    fn health_is_readiness_or_success() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let table = [
            (json!({"phase": "Running", "conditions": ready}), true),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
                false,
            ),
            (json!({"phase": "Running"}), false),
            (json!({"phase": "Succeeded"}), true),
            (json!({"phase": "Pending", "conditions": ready}), false),
            (json!({"phase": "Failed"}), false),
            (json!({}), false),
        ];
        for (status, healthy) in table {
            let pod = object(json!({"metadata": {"name": "p"}, "status": status}));
            assert_eq!(
                NativePodRules.interpret_health(&pod).unwrap(),
                Some(healthy),
                "{status}"
            );
        }
    }

    // proves: NAT-pod-retain
    #[test]
    fn fields_that_the_member_added_are_retained() {
        let mount = json!([{"name": "token", "mountPath": "/t"}]);
        let observed = json!({"spec": {"nodeName": "n1", "serviceAccountName": "default",
            "volumes": [{"name": "token"}], "tolerations": [{"key": "k"}], "restartPolicy": "Always",
            "containers": [{"name": "c", "image": "old", "volumeMounts": mount}, {"name": "gone"}],
            "initContainers": [{"name": "i", "volumeMounts": mount}]}});
        let mut desired = json!({"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "new"}, {"name": "sidecar", "volumeMounts": [1]}],
            "initContainers": [{"name": "i"}]}});
        NativePodRules.retain(&mut desired, &observed).unwrap();
        assert_eq!(
            desired,
            json!({"spec": {"nodeName": "n1", "serviceAccountName": "default", "volumes": [{"name": "token"}],
                "tolerations": [{"key": "k"}], "restartPolicy": "Never", "containers": [{"name": "c", "image": "new", "volumeMounts": mount}, {"name": "sidecar", "volumeMounts": [1]}],
                "initContainers": [{"name": "i", "volumeMounts": mount}]}})
        );
        // Fields that the member does not have are removed.
        let mut desired = json!({"spec": {"nodeName": "n2", "volumes": [1], "containers": []}});
        NativePodRules
            .retain(&mut desired, &json!({"spec": {}}))
            .unwrap();
        assert_eq!(desired, json!({"spec": {"containers": []}}));
    }

    fn without_conditions(status: Option<Value>) -> Option<Value> {
        let mut status = status?;
        status.as_object_mut()?.remove("conditions");
        Some(status)
    }

    // proves: NAT-pod-phase
    #[test]
    fn aggregated_phase_follows_the_precedence() {
        let pod = json!({"metadata": {"name": "p"}});
        let phases = |all: &[&str]| {
            let items: Vec<Value> = all
                .iter()
                .map(|p| {
                    if p.is_empty() {
                        Value::Null
                    } else {
                        json!({"phase": p})
                    }
                })
                .collect();
            without_conditions(aggregate_statuses(&NativePodRules, &pod, &items))
        };
        assert_eq!(phases(&[]), None);
        for (all, one) in [
            (&["Running", "Failed"][..], "Failed"),
            (&["Running", "Pending"], "Pending"),
            (&["Running", ""], "Pending"),
            (&["Succeeded", "Running"], "Running"),
            (&["Succeeded", "Succeeded"], "Succeeded"),
            (&["Failed", ""], "Failed"),
        ] {
            assert_eq!(phases(all), Some(json!({"phase": one})), "{all:?}");
        }
        assert_eq!(phases(&["Unknown"]), Some(json!({})));
        let state = json!({"running": {"startedAt": "t"}});
        let one = json!({"phase": "Running", "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "c", "ready": true, "state": state, "image": "i", "restartCount": 3}],
            "initContainerStatuses": [{"name": "i"}]});
        let shown = |ready: bool, state: &Value| json!({"name": "", "state": state, "lastState": {}, "ready": ready, "restartCount": 0, "image": "", "imageID": ""});
        assert_eq!(
            without_conditions(aggregate_statuses(
                &NativePodRules,
                &pod,
                &[one.clone(), one]
            )),
            Some(
                json!({"phase": "Running", "containerStatuses": [shown(true, &state), shown(true, &state)],
                "initContainerStatuses": [shown(false, &json!({})), shown(false, &json!({}))]})
            )
        );
    }
}
