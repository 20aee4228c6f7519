//! Plans the pods of a DaemonSet: one on every node.

use serde_json::Value;

use crate::plan::{Plan, generation, status_with};
use crate::pods::{Parent, PodView, from_template, short_hash, suffix};

const REVISION: &str = "controller-revision-hash";
const ALWAYS: &[&str] = &[
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
];

/// Plans one DaemonSet, given the names of all nodes.
pub(crate) fn decide(
    parent: &Parent<'_>,
    set: &Value,
    pods: &[&PodView],
    nodes: &[String],
) -> Plan {
    let template = &set["spec"]["template"];
    let revision = short_hash(&template.to_string());
    let mut plan = Plan::default();
    let (mut current, mut updated, mut ready) = (0, 0, 0);
    for (nth, node) in nodes.iter().enumerate() {
        let mut on_node = pods
            .iter()
            .filter(|p| p.spec.node_name == *node && !p.deleting());
        match on_node.next() {
            Some(pod) if pod.finished() || pod.label(REVISION) != revision => {
                plan.delete.push(pod.metadata.name.clone())
            }
            Some(pod) => {
                current += 1;
                updated += 1;
                ready += i64::from(pod.ready());
            }
            None => {
                let name = format!(
                    "{}-{}",
                    parent.object.name(),
                    suffix(&format!("{}{revision}", parent.object.uid()), nth as u64)
                );
                let mut pod = from_template(parent, template, &name, &[(REVISION, &revision)]);
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
    plan.settled = plan.create.is_empty() && ready == desired;
    plan.status = status_with(&set["status"], ALWAYS, &counters);
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
        let parent = Parent {
            api_version: "apps/v1",
            kind: "DaemonSet",
            object: &object,
        };
        let nodes = ["a".to_owned(), "b".to_owned()];
        let first = decide(&parent, &set, &[], &nodes);
        assert_eq!(
            first
                .create
                .iter()
                .map(|p| p["spec"]["nodeName"].as_str().unwrap())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        let mut made: Vec<PodView> = first
            .create
            .iter()
            .map(|p| serde_json::from_value(p.clone()).unwrap())
            .collect();
        let again = decide(&parent, &set, &made.iter().collect::<Vec<_>>(), &nodes);
        assert!(again.create.is_empty() && again.delete.is_empty());
        assert_eq!(again.status.unwrap()["numberUnavailable"], 2);
        made[0].metadata.labels.clear();
        assert_eq!(
            decide(&parent, &set, &made.iter().collect::<Vec<_>>(), &nodes)
                .delete
                .len(),
            1
        );
    }
}
