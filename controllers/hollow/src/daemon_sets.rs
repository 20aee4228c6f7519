//! Plans the pods of a DaemonSet: one on every node.

use serde_json::Value;

use crate::pods::{
    HollowPodFields, ParentWorkload, pod_from_template, pod_name_suffix, short_hash,
};
use crate::workload_plan::{WorkloadPlan, generation, updated_status};

const REVISION_LABEL: &str = "controller-revision-hash";
const REQUIRED_COUNTERS: &[&str] = &[
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
];

/// Plans one DaemonSet, given the names of all nodes.
pub(crate) fn plan_pods(
    parent: &ParentWorkload<'_>,
    set: &Value,
    pods: &[&HollowPodFields],
    nodes: &[String],
) -> WorkloadPlan {
    let template = &set["spec"]["template"];
    let revision = short_hash(&template.to_string());
    let mut plan = WorkloadPlan::default();
    let (mut current, mut updated, mut ready) = (0, 0, 0);
    for (nth, node) in nodes.iter().enumerate() {
        let mut on_node = pods
            .iter()
            .filter(|p| p.spec.node_name == *node && !p.is_deleting());
        match on_node.next() {
            Some(pod) if pod.is_finished() || pod.label(REVISION_LABEL) != revision => {
                // It runs on the node until it is deleted.
                plan.delete.push(pod.metadata.name.clone());
                current += 1;
                ready += i64::from(pod.is_ready());
            }
            Some(pod) => {
                current += 1;
                updated += 1;
                ready += i64::from(pod.is_ready());
            }
            None => {
                let name = format!(
                    "{}-{}",
                    parent.object.name(),
                    pod_name_suffix(&format!("{}{revision}", parent.object.uid()), nth as u64)
                );
                let mut pod =
                    pod_from_template(parent, template, &name, &[(REVISION_LABEL, &revision)]);
                pod["spec"]["nodeName"] = node.as_str().into();
                plan.create.push(pod);
                current += 1;
                updated += 1;
            }
        }
    }
    let desired = nodes.len() as i64;
    let counters = [
        ("currentNumberScheduled", current),
        ("desiredNumberScheduled", desired),
        ("numberMisscheduled", 0),
        ("numberReady", ready),
        ("numberAvailable", ready),
        ("numberUnavailable", desired - ready),
        ("updatedNumberScheduled", updated),
        ("observedGeneration", generation(set)),
    ];
    plan.stable = plan.create.is_empty() && plan.delete.is_empty() && ready == desired;
    plan.status = updated_status(&set["status"], REQUIRED_COUNTERS, &counters);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Object;
    use serde_json::json;

    #[test]
    fn every_node_has_one_pod() {
        let set = json!({"metadata": {"name": "d", "uid": "u", "generation": 1}, "spec": {"template": {"spec": {}}}});
        let object = Object::from_value(&set).unwrap();
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "DaemonSet",
            object: &object,
        };
        let nodes = ["a".to_owned(), "b".to_owned()];
        let first = plan_pods(&parent, &set, &[], &nodes);
        assert_eq!(
            first
                .create
                .iter()
                .map(|p| p["spec"]["nodeName"].as_str().unwrap())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        let mut pods: Vec<HollowPodFields> = first
            .create
            .iter()
            .map(|p| serde_json::from_value(p.clone()).unwrap())
            .collect();
        let again = plan_pods(&parent, &set, &pods.iter().collect::<Vec<_>>(), &nodes);
        assert!(again.create.is_empty() && again.delete.is_empty());
        assert_eq!(again.status.unwrap()["numberUnavailable"], 2);
        pods[0].metadata.labels.clear();
        let outdated = plan_pods(&parent, &set, &pods.iter().collect::<Vec<_>>(), &nodes);
        assert_eq!(outdated.delete.len(), 1);
        let status = outdated.status.unwrap();
        assert_eq!(status["currentNumberScheduled"], 2);
        assert_eq!(status["updatedNumberScheduled"], 1);
        assert!(!outdated.stable);
    }
}
