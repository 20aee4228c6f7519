//! Plans the pods of a StatefulSet: with ordinals, one after the other unless the policy is `Parallel`.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::pods::{HollowPodFields, ParentWorkload, pod_from_template, short_hash};
use crate::workload_plan::{MAX_POD_CREATES, WorkloadPlan, generation, updated_status};

const REVISION_LABEL: &str = "controller-revision-hash";

/// Adds the volumes of the set's claim templates to its pod; they replace those of the same name.
fn add_claim_volumes(pod: &mut Value, set: &Value) {
    let pod_name = pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let templates = set["spec"]["volumeClaimTemplates"].as_array();
    for template in templates.into_iter().flatten() {
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        let volume = json!({"name": name,
            "persistentVolumeClaim": {"claimName": format!("{name}-{pod_name}")}});
        match pod["spec"]["volumes"].as_array_mut() {
            Some(volumes) => {
                volumes.retain(|existing| existing["name"] != name);
                volumes.push(volume);
            }
            None => pod["spec"]["volumes"] = json!([volume]),
        }
    }
}

/// A StatefulSet whose pods are planned.
struct StatefulSetRollout<'a> {
    parent: &'a ParentWorkload<'a>,
    set: &'a Value,
    pods: &'a [&'a HollowPodFields],
    desired: i64,
    /// The name of the revision that all pods should have.
    revision: String,
}

/// Pods that may stay, counted by ordinal up to the first one that the others wait for.
#[derive(Default)]
struct SettledPods {
    count: i64,
    ready: i64,
    /// Those of the latest revision.
    updated: i64,
    /// The revision of those that the partition keeps; `None` without any.
    kept_revision: Option<String>,
}

/// Plans one StatefulSet, given the pods that belong to it.
pub(crate) fn plan_pods(
    parent: &ParentWorkload<'_>,
    set: &Value,
    pods: &[&HollowPodFields],
) -> WorkloadPlan {
    let template = &set["spec"]["template"];
    let rollout = StatefulSetRollout {
        parent,
        set,
        pods,
        desired: set["spec"]["replicas"].as_i64().unwrap_or(1).max(0),
        revision: format!(
            "{}-{}",
            parent.object.name(),
            short_hash(&template.to_string())
        ),
    };
    let mut plan = WorkloadPlan::default();
    let settled = rollout.plan_ordinals(&mut plan);
    plan.delete.extend(rollout.surplus_pods());
    rollout.plan_status(&settled, &mut plan);
    plan
}

impl StatefulSetRollout<'_> {
    /// Plans the creation and the replacement of pods, by ordinal.
    fn plan_ordinals(&self, plan: &mut WorkloadPlan) -> SettledPods {
        let parallel = self.set["spec"]["podManagementPolicy"] == "Parallel";
        let partition = self.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64();
        let partition = partition.unwrap_or(0);
        let mut settled = SettledPods::default();
        let pods: HashMap<&str, &HollowPodFields> = self
            .pods
            .iter()
            .map(|pod| (&*pod.metadata.name, *pod))
            .collect();
        for ordinal in 0..self.desired {
            let name = format!("{}-{ordinal}", self.parent.object.name());
            match pods.get(&*name) {
                Some(pod) if pod.is_deleting() => break,
                Some(pod)
                    if pod.is_finished()
                        || pod.label(REVISION_LABEL) != self.revision && ordinal >= partition =>
                {
                    // One at a time: the next pod waits until this one is recreated.
                    plan.delete.push(name);
                    break;
                }
                Some(pod) => {
                    settled.count += 1;
                    settled.ready += i64::from(pod.is_ready());
                    match pod.label(REVISION_LABEL) {
                        revision if revision == self.revision => settled.updated += 1,
                        revision => settled.kept_revision = Some(revision.to_owned()),
                    }
                    if !pod.is_ready() && !parallel {
                        break;
                    }
                }
                // Below the partition too: a hollow cluster has the latest template alone.
                None => {
                    plan.create.push(self.new_pod(&name));
                    if !parallel || plan.create.len() == MAX_POD_CREATES {
                        break;
                    }
                }
            }
        }
        settled
    }

    fn new_pod(&self, name: &str) -> Value {
        let labels = [
            (REVISION_LABEL, &*self.revision),
            ("statefulset.kubernetes.io/pod-name", name),
        ];
        let template = &self.set["spec"]["template"];
        let mut pod = pod_from_template(self.parent, template, name, &labels);
        add_claim_volumes(&mut pod, self.set);
        pod
    }

    /// The names of pods without an ordinal below the number of replicas.
    fn surplus_pods(&self) -> impl Iterator<Item = String> {
        self.pods.iter().filter_map(|pod| {
            let name = &pod.metadata.name;
            let ordinal = name.rsplit('-').next().and_then(|o| o.parse::<i64>().ok());
            let surplus = ordinal.is_none_or(|ordinal| ordinal >= self.desired);
            (surplus && !pod.is_deleting()).then(|| name.clone())
        })
    }

    fn plan_status(&self, settled: &SettledPods, plan: &mut WorkloadPlan) {
        // Pods with a higher ordinal than the replaced one still count.
        let counted: Vec<&&HollowPodFields> = self
            .pods
            .iter()
            .filter(|p| !p.is_deleting() && !plan.delete.contains(&p.metadata.name))
            .collect();
        let existing = settled.count.max(counted.len() as i64) + plan.create.len() as i64;
        let ready = counted.iter().filter(|p| p.is_ready()).count() as i64;
        let ready = settled.ready.max(ready);
        let (current_revision, current) = match &settled.kept_revision {
            Some(kept) => (kept, settled.count - settled.updated),
            None => (&self.revision, settled.updated),
        };
        let counters = [
            ("replicas", existing),
            ("readyReplicas", ready),
            ("availableReplicas", ready),
            ("currentReplicas", current),
            ("updatedReplicas", settled.updated),
            ("observedGeneration", generation(self.set)),
        ];
        let mut old = self.set["status"].clone();
        if old.is_null() {
            old = json!({});
        }
        let mut status = updated_status(&old, &["replicas", "availableReplicas"], &counters)
            .unwrap_or_else(|| old.clone());
        status["currentRevision"] = (&**current_revision).into();
        status["updateRevision"] = (&*self.revision).into();
        plan.stable =
            plan.create.is_empty() && settled.count == self.desired && ready == self.desired;
        plan.status = (status != self.set["status"]).then_some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::tests::pod;
    use machinery::Object;
    use serde_json::json;

    fn set(replicas: i64, policy: &str) -> (Value, Object) {
        let set = json!({"metadata": {"name": "s", "uid": "u", "generation": 1},
            "spec": {"replicas": replicas, "podManagementPolicy": policy, "template": {"spec": {}}}});
        let object = Object::from_value(&set).unwrap();
        (set, object)
    }

    fn check(replicas: i64, policy: &str, pods: &[(&str, &str)], create: &[&str], delete: &[&str]) {
        let (set, object) = set(replicas, policy);
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "StatefulSet",
            object: &object,
        };
        let revision = format!("s-{}", short_hash(&set["spec"]["template"].to_string()));
        let pods: Vec<HollowPodFields> = pods
            .iter()
            .map(|(name, state)| {
                let mut pod = pod(name, state);
                pod.metadata
                    .labels
                    .insert(REVISION_LABEL.into(), revision.clone());
                pod
            })
            .collect();
        let views: Vec<&HollowPodFields> = pods.iter().collect();
        let plan = plan_pods(&parent, &set, &views);
        let created: Vec<&str> = plan
            .create
            .iter()
            .map(|p| p["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            (created.as_slice(), plan.delete),
            (create, delete.iter().map(|s| (*s).to_owned()).collect())
        );
    }

    #[test]
    fn pods_are_created_in_order() {
        check(2, "OrderedReady", &[], &["s-0"], &[]);
        check(2, "OrderedReady", &[("s-0", "Pending")], &[], &[]);
        check(2, "OrderedReady", &[("s-0", "Ready")], &["s-1"], &[]);
        check(2, "Parallel", &[], &["s-0", "s-1"], &[]);
        check(
            1,
            "OrderedReady",
            &[("s-0", "Ready"), ("s-1", "Ready")],
            &[],
            &["s-1"],
        );
    }

    // proves: HOL-partition
    #[test]
    fn a_partition_keeps_the_pods_below_it() {
        let (mut set, object) = set(3, "OrderedReady");
        set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 2}});
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "StatefulSet",
            object: &object,
        };
        let revision = format!("s-{}", short_hash(&set["spec"]["template"].to_string()));
        for (last, deleted, updated) in [("old", true, Value::Null), (&*revision, false, 1.into())]
        {
            let pods = [("s-0", "old"), ("s-1", "old"), ("s-2", last)].map(|(name, revision)| {
                let mut pod = pod(name, "Ready");
                pod.metadata
                    .labels
                    .insert(REVISION_LABEL.into(), revision.into());
                pod
            });
            let plan = plan_pods(&parent, &set, &pods.iter().collect::<Vec<_>>());
            assert_eq!(plan.delete.contains(&"s-2".to_owned()), deleted);
            assert_eq!(plan.delete.len(), usize::from(deleted));
            let status = plan.status.unwrap();
            assert_eq!(status["updatedReplicas"], updated);
            assert_eq!(status["currentReplicas"], 2);
            assert_eq!(status["currentRevision"], "old");
            assert_eq!(status["updateRevision"], *revision);
        }
    }

    // proves: HOL-burst
    #[test]
    fn a_plan_creates_a_bounded_number_of_pods() {
        let (set, object) = set(i32::MAX.into(), "Parallel");
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "StatefulSet",
            object: &object,
        };
        assert_eq!(plan_pods(&parent, &set, &[]).create.len(), MAX_POD_CREATES);
    }

    #[test]
    fn pods_have_the_volumes_of_claim_templates() {
        let set = json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        let mut pod = json!({"metadata": {"name": "s-0"}, "spec": {"volumes": [{"name": "data"}, {"name": "a"}]}});
        add_claim_volumes(&mut pod, &set);
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-s-0"}});
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "a"}, claim]));
    }

    #[test]
    fn a_changed_template_replaces_one_pod_at_a_time() {
        let (set, object) = set(2, "OrderedReady");
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "StatefulSet",
            object: &object,
        };
        let old = [pod("s-0", "Ready"), pod("s-1", "Ready")];
        let plan = plan_pods(&parent, &set, &old.iter().collect::<Vec<_>>());
        assert_eq!(
            (plan.delete, plan.create.len()),
            (vec!["s-0".to_owned()], 0)
        );
    }
}
