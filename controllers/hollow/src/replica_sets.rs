//! Plans the pods of a ReplicaSet.

use serde_json::Value;

use crate::pods::{HollowPodFields, ParentWorkload, pod_from_template, pod_name_suffix};
use crate::workload_plan::{WorkloadPlan, generation, updated_status};

/// Plans one ReplicaSet, given the pods that belong to it.
pub(crate) fn plan_pods(
    parent: &ParentWorkload<'_>,
    set: &Value,
    pods: &[&HollowPodFields],
) -> WorkloadPlan {
    let desired = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
    let mut alive: Vec<&HollowPodFields> = pods
        .iter()
        .copied()
        .filter(|p| !p.is_deleting() && !p.is_finished())
        .collect();
    // Pods that are not ready are deleted first, as in Kubernetes.
    alive.sort_by_key(|p| (p.is_ready(), p.metadata.name.clone()));
    let mut plan = WorkloadPlan::default();
    if alive.len() > desired {
        plan.delete = alive
            .drain(..alive.len() - desired)
            .map(|p| p.metadata.name.clone())
            .collect();
    }
    let mut nth = 0;
    while alive.len() + plan.create.len() < desired {
        let name = format!(
            "{}-{}",
            parent.object.name(),
            pod_name_suffix(parent.object.uid(), nth)
        );
        nth += 1;
        if pods.iter().all(|p| p.metadata.name != name) {
            plan.create.push(pod_from_template(
                parent,
                &set["spec"]["template"],
                &name,
                &[],
            ));
        }
    }
    let ready = alive.iter().filter(|p| p.is_ready()).count() as i64;
    let counters = [
        ("replicas", (alive.len() + plan.create.len()) as i64),
        (
            "fullyLabeledReplicas",
            (alive.len() + plan.create.len()) as i64,
        ),
        ("readyReplicas", ready),
        ("availableReplicas", ready),
        ("observedGeneration", generation(set)),
    ];
    plan.stable = plan.create.is_empty() && ready == desired as i64;
    plan.status = updated_status(&set["status"], &["replicas"], &counters);
    plan
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

    #[test]
    fn pods_are_created_and_deleted_to_the_desired_number() {
        check(2, &[], 2, &[], 0);
        check(2, &[pod("a", "Ready")], 1, &[], 1);
        check(1, &[pod("a", "Ready"), pod("b", "Pending")], 0, &["b"], 1);
        check(0, &[pod("a", "Ready")], 0, &["a"], 0);
        check(1, &[pod("a", "Failed")], 1, &[], 0);
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
