//! Plans the pods of a ReplicaSet.

use std::collections::HashSet;

use jiff::Timestamp;
use machinery::conditions::set_json_condition;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use crate::pods::{HollowPodFields, ParentWorkload, pod_from_template, pod_name_suffix};
use crate::workload_plan::{
    MAX_POD_CREATES, REPLICA_FAILURE, WorkloadPlan, find_condition, generation, remove_condition,
    updated_status,
};

/// Plans one ReplicaSet, given the pods that belong to it.
pub(crate) fn plan_pods(
    parent: &ParentWorkload<'_>,
    set: &Value,
    pods: &[&HollowPodFields],
) -> WorkloadPlan {
    let desired = desired_replicas(set);
    let mut alive: Vec<&HollowPodFields> = alive_pods(pods).collect();
    // Pods that are not ready are deleted first, as in Kubernetes.
    alive.sort_by_key(|p| (p.is_ready(), p.metadata.name.clone()));
    let mut plan = WorkloadPlan::default();
    if alive.len() > desired {
        plan.delete = alive
            .drain(..alive.len() - desired)
            .map(|p| p.metadata.name.clone())
            .collect();
    }
    let names: HashSet<&str> = pods.iter().map(|p| &*p.metadata.name).collect();
    let missing = desired.saturating_sub(alive.len()).min(MAX_POD_CREATES);
    let mut nth = 0;
    while plan.create.len() < missing {
        let name = format!(
            "{}-{}",
            parent.object.name(),
            pod_name_suffix(parent.object.uid(), nth)
        );
        nth += 1;
        if !names.contains(&*name) {
            plan.create.push(pod_from_template(
                parent,
                &set["spec"]["template"],
                &name,
                &[],
            ));
        }
    }
    let ready = alive.iter().filter(|p| p.is_ready()).count();
    plan.stable = plan.create.is_empty() && ready == desired;
    let mut status = counted_status(set, alive.len() + plan.create.len(), ready);
    remove_condition(&mut status, REPLICA_FAILURE);
    plan.status = (status != set["status"]).then_some(status);
    plan
}

/// The status of a ReplicaSet after a pod could not be created or deleted; `None` if it does not change.
pub(crate) fn failure_status(
    set: &Value,
    pods: &[&HollowPodFields],
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let alive = alive_pods(pods).count();
    let ready = alive_pods(pods).filter(|p| p.is_ready()).count();
    let mut status = counted_status(set, alive, ready);
    // As in Kubernetes, the first failure stays until all went well.
    if find_condition(&status, REPLICA_FAILURE).is_none() {
        let reason = match alive > desired_replicas(set) {
            true => "FailedDelete",
            false => "FailedCreate",
        };
        let condition = json!({"type": REPLICA_FAILURE, "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": rfc3339_seconds(now)});
        set_json_condition(&mut status["conditions"], condition);
    }
    (status != set["status"]).then_some(status)
}

fn desired_replicas(set: &Value) -> usize {
    usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0)
}

fn alive_pods<'a>(pods: &[&'a HollowPodFields]) -> impl Iterator<Item = &'a HollowPodFields> {
    let all = pods.iter().copied();
    all.filter(|p| !p.is_deleting() && !p.is_finished())
}

fn counted_status(set: &Value, alive: usize, ready: usize) -> Value {
    let counters = [
        ("replicas", alive as i64),
        ("fullyLabeledReplicas", alive as i64),
        ("readyReplicas", ready as i64),
        ("availableReplicas", ready as i64),
        ("observedGeneration", generation(set)),
    ];
    let before = &set["status"];
    updated_status(before, &["replicas"], &counters).unwrap_or_else(|| before.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::tests::pod;
    use machinery::Object;
    use serde_json::json;

    fn check(desired: i64, pods: &[HollowPodFields], create: usize, delete: &[&str], ready: i64) {
        let set = json!({"metadata": {"name": "s", "uid": "u", "generation": 1}, "spec": {"replicas": desired, "template": {"spec": {}}}});
        let object = Object::from_value(&set).unwrap();
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            object: &object,
        };
        let views: Vec<&HollowPodFields> = pods.iter().collect();
        let plan = plan_pods(&parent, &set, &views);
        assert_eq!(
            (plan.create.len(), plan.delete),
            (create, delete.iter().map(|s| (*s).to_owned()).collect())
        );
        assert_eq!(
            plan.status.unwrap()["readyReplicas"].as_i64().unwrap_or(0),
            ready
        );
    }

    // proves: HOL-burst
    #[test]
    fn pods_are_created_and_deleted_to_the_desired_number() {
        check(2, &[], 2, &[], 0);
        check(2, &[pod("a", "Ready")], 1, &[], 1);
        check(1, &[pod("a", "Ready"), pod("b", "Pending")], 0, &["b"], 1);
        check(0, &[pod("a", "Ready")], 0, &["a"], 0);
        check(1, &[pod("a", "Failed")], 1, &[], 0);
        check(i32::MAX.into(), &[pod("a", "Ready")], 500, &[], 1);
    }

    #[test]
    fn a_failure_is_a_condition_until_all_went_well() {
        let mut set = json!({"metadata": {"name": "s", "uid": "u"},
            "spec": {"replicas": 2, "template": {"spec": {}}}});
        let pod = pod("a", "Ready");
        let fail =
            |set: &Value, reason: &str| failure_status(set, &[&pod], reason, Timestamp::UNIX_EPOCH);
        let failed = fail(&set, "over quota").unwrap();
        let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "over quota", "lastTransitionTime": "1970-01-01T00:00:00Z"});
        assert_eq!(
            (&failed["replicas"], &failed["conditions"]),
            (&json!(1), &json!([condition]))
        );
        set["status"] = failed;
        assert_eq!(fail(&set, "over quota again"), None);
        set["spec"]["replicas"] = 1.into();
        let object = Object::from_value(&set).unwrap();
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            object: &object,
        };
        let status = plan_pods(&parent, &set, &[&pod]).status.unwrap();
        assert_eq!(
            (&status["replicas"], status.get("conditions")),
            (&json!(1), None)
        );
        set["spec"]["replicas"] = 0.into();
        set["status"] = Value::Null;
        let failed = fail(&set, "not deleted").unwrap();
        assert_eq!(failed["conditions"][0]["reason"], "FailedDelete");
    }

    #[test]
    fn a_repeated_plan_names_the_same_pods() {
        let set = json!({"metadata": {"name": "s", "uid": "u"}, "spec": {"replicas": 2, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}});
        let object = Object::from_value(&set).unwrap();
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            object: &object,
        };
        assert_eq!(
            plan_pods(&parent, &set, &[]).create,
            plan_pods(&parent, &set, &[]).create
        );
    }
}
