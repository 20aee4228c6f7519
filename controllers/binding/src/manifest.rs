//! Builds the manifest of a template for one cluster before overrides, and the labels and
//! annotations of its Work. Source: Karmada's `pkg/controllers/binding/common.go`.

use std::collections::HashMap;

use controller_context::set_metadata_entry;
use karmada_api::well_known_keys::{
    BINDING_ID, BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME,
    CONFLICT_RESOLUTION, TEMPLATE_GENERATION,
};
use karmada_api::{ResourceBindingSpec, TargetCluster};
use machinery::{Gvk, Object};
use overrides::CandidateOverridePolicies;
use rollout::StagedRevisions;
use scheduler::core::webster::{TieBreak, apportion};
use serde_json::{Map, Value};

/// A version of a template, and the clusters whose Works are made from it.
pub(crate) struct WorkSource<'a> {
    pub(crate) template: &'a Object,
    pub(crate) overrides: CandidateOverridePolicies,
    /// The revision, if the template is staged.
    pub(crate) revision: Option<StagedRevision<'a>>,
    pub(crate) targets: Vec<&'a TargetCluster>,
}

/// A revision of a staged template.
#[derive(Clone, Copy)]
pub(crate) struct StagedRevision<'a> {
    pub(crate) name: &'a str,
    /// What the clusters may have.
    pub(crate) staged: &'a StagedRevisions,
}

/// Prepares the manifest of each target cluster of a binding.
#[derive(Debug)]
pub(crate) struct PerClusterManifestPreparer<'a> {
    pub(crate) kind: Gvk,
    pub(crate) template_uid: &'a str,
    template_generation: i64,
    binding: &'a Object,
    spec: &'a ResourceBindingSpec,
    /// `spec.completions` of a divided Job, by cluster.
    completions: Option<HashMap<String, i64>>,
}

impl<'a> PerClusterManifestPreparer<'a> {
    pub(crate) fn new(
        kind: Gvk,
        template: &'a Object,
        tree: &Value,
        binding: &'a Object,
        spec: &'a ResourceBindingSpec,
        targets: &[&TargetCluster],
    ) -> Self {
        Self {
            completions: divide_completions(&kind, template.uid(), tree, spec, targets),
            kind,
            template_uid: template.uid(),
            template_generation: template.meta().generation,
            binding,
            spec,
        }
    }

    /// Whether each cluster has its own number of replicas.
    pub(crate) fn is_workload(&self) -> bool {
        self.spec.is_workload()
    }

    /// Sets the cluster's share of a Job's completions. The manifest is pruned only after the
    /// overrides, which may name fields that pruning removes.
    pub(crate) fn set_completions(
        &self,
        copy: &mut Value,
        target: &TargetCluster,
    ) -> Result<(), String> {
        if let Some(completions) = &self.completions {
            let Some(share) = completions.get(&target.name) else {
                return Err(format!("no completions found for cluster {}", target.name));
            };
            if let Some(slot) = copy.pointer_mut("/spec/completions") {
                *slot = (*share).into();
            }
        }
        Ok(())
    }

    /// Labels and annotates the overridden manifest; returns the labels and annotations of its
    /// Work.
    pub(crate) fn label_manifest(
        &self,
        copy: &mut Value,
    ) -> (Map<String, Value>, Map<String, Value>) {
        let head = self.binding.meta();
        let id = binding_id(self.binding);
        let cluster_scoped = head.namespace.is_empty();
        let label = if cluster_scoped {
            CLUSTER_BINDING_ID
        } else {
            BINDING_ID
        };
        set_metadata_entry(copy, "labels", label, id);
        let labels = Map::from_iter([(label.to_owned(), id.into())]);
        if self.template_generation > 0 {
            let generation = self.template_generation.to_string();
            set_metadata_entry(copy, "annotations", TEMPLATE_GENERATION, &generation);
        }
        let names: &[(&str, &str)] = if cluster_scoped {
            &[(CLUSTER_BINDING_NAME, &head.name)]
        } else {
            &[
                (BINDING_NAMESPACE, &head.namespace),
                (BINDING_NAME, &head.name),
            ]
        };
        let mut annotations = Map::new();
        for (key, value) in names {
            set_metadata_entry(copy, "annotations", key, value);
            annotations.insert((*key).to_owned(), (*value).into());
        }
        let own = copy
            .get("metadata")
            .and_then(|m| m.get("annotations"))
            .and_then(|a| a.get(CONFLICT_RESOLUTION))
            .and_then(Value::as_str);
        let conflicts = match own {
            Some("overwrite") => "overwrite",
            Some("abort") => "abort",
            _ if self.spec.conflict_resolution == "Overwrite" => "overwrite",
            _ => "abort",
        };
        set_metadata_entry(copy, "annotations", CONFLICT_RESOLUTION, conflicts);
        annotations.insert(CONFLICT_RESOLUTION.into(), conflicts.into());
        (labels, annotations)
    }

    /// Adds the preserved labels of a failed copy to its replacement. This applies only if the
    /// manifest is the only copy, in a cluster that had none when the last one was evicted.
    pub(crate) fn inject_preserved_labels(&self, copy: &mut Value, cluster: &str) {
        let tasks = &self.spec.graceful_eviction_tasks;
        let Some(last) = tasks.last().filter(|task| task.purges_directly()) else {
            return;
        };
        let had_one = last.clusters_before_failover.iter().any(|c| c == cluster);
        if self.spec.targets().len() > 1 || had_one {
            return;
        }
        for (key, value) in &last.preserved_label_state {
            set_metadata_entry(copy, "labels", key, value);
        }
    }

    pub(crate) fn suspends_dispatching(&self, cluster: &str) -> bool {
        let suspension = self.spec.suspension.as_ref();
        suspension.is_some_and(|s| s.suspends(cluster))
    }

    pub(crate) fn preserves_on_deletion(&self) -> bool {
        self.spec.preserve_resources_on_deletion.unwrap_or(false)
    }
}

/// The value that identifies the Works of a binding: its permanent id, or its uid if admission has
/// not set an id.
pub(crate) fn binding_id(binding: &Object) -> &str {
    let head = binding.meta();
    let label = if head.namespace.is_empty() {
        CLUSTER_BINDING_ID
    } else {
        BINDING_ID
    };
    head.label(label)
        .filter(|id| !id.is_empty())
        .unwrap_or(&head.uid)
}

/// Divides the completions of a divided Job in proportion to its replicas.
fn divide_completions(
    kind: &Gvk,
    uid: &str,
    tree: &Value,
    spec: &ResourceBindingSpec,
    targets: &[&TargetCluster],
) -> Option<HashMap<String, i64>> {
    let divided = spec
        .placement
        .as_ref()
        .and_then(|p| p.replica_scheduling.as_ref())
        .is_some_and(|r| r.replica_scheduling_type == "Divided");
    if kind.kind != "Job" || spec.replicas <= 0 || !divided {
        return None;
    }
    let total = tree.pointer("/spec/completions")?.as_i64()?;
    // Without replicas in any cluster there is no ratio, and each copy keeps the total.
    if targets.iter().all(|t| t.replicas <= 0) {
        return None;
    }
    let weights: Vec<(&str, i64)> = targets
        .iter()
        .map(|t| (t.name.as_str(), t.replicas))
        .collect();
    let shares = apportion(&weights, total, TieBreak::from_uid(uid));
    let named = weights.iter().zip(shares);
    Some(
        named
            .map(|((name, _), share)| ((*name).to_owned(), share))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use serde_json::json;

    const JOB: Gvk = Gvk::from_static("batch", "v1", "Job");

    fn object(value: &Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn spec(more: Value) -> ResourceBindingSpec {
        let mut all = json!({"replicas": 3, "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}],
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    /// The manifest for a cluster, and the labels and annotations of its Work.
    fn copy(
        kind: &Gvk,
        tree: &Value,
        spec: &ResourceBindingSpec,
        binding: &Value,
        cluster: &str,
    ) -> (Value, Value, Value) {
        let (template, binding) = (object(tree), object(binding));
        let targets = spec.targets();
        let common = PerClusterManifestPreparer::new(
            kind.clone(),
            &template,
            tree,
            &binding,
            spec,
            &targets,
        );
        let mut copy = tree.clone();
        let target = targets.iter().find(|t| t.name == cluster).unwrap();
        if common.is_workload() {
            let interpreter = interpreter::ResourceInterpreter::default();
            let revised = interpreter.revise_replica(kind, copy, target.replicas);
            copy = revised.now_or_never().unwrap().unwrap();
        }
        common.set_completions(&mut copy, target).unwrap();
        let (labels, annotations) = common.label_manifest(&mut copy);
        (copy, labels.into(), annotations.into())
    }

    fn binding() -> Value {
        json!({"metadata": {"name": "x-job", "namespace": "n", "uid": "u", "labels": {BINDING_ID: "id"}}})
    }

    // proves: WRK-job-completions, WRK-job-only, WRK-revise, WRK-revise-workload
    #[test]
    fn a_divided_job_has_its_share_of_pods_and_completions() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "n", "uid": "t"},
            "spec": {"parallelism": 3, "completions": 9}});
        let check = |spec: ResourceBindingSpec, cluster: &str, expected: Value| {
            assert_eq!(
                copy(&JOB, &job, &spec, &binding(), cluster).0["spec"],
                expected
            );
        };
        check(
            spec(json!({})),
            "a",
            json!({"parallelism": 2, "completions": 6}),
        );
        check(
            spec(json!({})),
            "b",
            json!({"parallelism": 1, "completions": 3}),
        );
        let duplicated = json!({"placement": {}, "clusters": [{"name": "a", "replicas": 3}]});
        check(
            spec(duplicated),
            "a",
            json!({"parallelism": 3, "completions": 9}),
        );
        // Without replicas there is no ratio to divide by.
        let without = json!({"clusters": [{"name": "a"}, {"name": "b"}]});
        check(
            spec(without),
            "a",
            json!({"parallelism": 0, "completions": 9}),
        );
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "n"},
            "spec": {"replicas": 3, "completions": 9}});
        let kind = Gvk::from_static("apps", "v1", "Deployment");
        let (other, ..) = copy(&kind, &web, &spec(json!({})), &binding(), "a");
        assert_eq!(other["spec"], json!({"replicas": 2, "completions": 9}));
        // The binding of a workload always has replicas.
        check(
            spec(json!({"replicas": 0})),
            "a",
            json!({"parallelism": 3, "completions": 9}),
        );
        let attached = json!({"placement": null, "clusters": [{"name": "a", "replicas": 3}]});
        check(
            spec(attached),
            "a",
            json!({"parallelism": 3, "completions": 9}),
        );
    }

    // proves: NAT-revise-existing, WRK-job-queue
    #[test]
    fn a_work_queue_job_keeps_no_completions() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "n"},
            "spec": {"parallelism": 3}});
        let (copy, ..) = copy(&JOB, &job, &spec(json!({})), &binding(), "a");
        assert_eq!(copy["spec"], json!({"parallelism": 2}));
    }

    /// Both clusters are eligible for the remaining completion; the uid decides which one gets it.
    // proves: WRK-job-ties
    #[test]
    fn the_uid_of_a_job_decides_between_equals() {
        let shares = |uid: &str| {
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "n", "uid": uid},
                "spec": {"parallelism": 2, "completions": 5}});
            let even = json!({"replicas": 2, "clusters": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}]});
            let spec = spec(even);
            ["a", "b"].map(|cluster| {
                let (copy, ..) = copy(&JOB, &job, &spec, &binding(), cluster);
                copy["spec"]["completions"].as_i64().unwrap()
            })
        };
        let all: Vec<[i64; 2]> = (0..16).map(|n| shares(&format!("uid-{n}"))).collect();
        for uid in ["uid-0", "uid-1"] {
            assert_eq!(shares(uid), shares(uid));
        }
        assert!(all.contains(&[3, 2]) && all.contains(&[2, 3]), "{all:?}");
    }

    // proves: WRK-preserved-labels
    #[test]
    fn preserved_labels_are_injected_into_the_replacement() {
        let task = |mode: &str, before: &[&str]| {
            json!({"fromCluster": "x", "purgeMode": mode, "clustersBeforeFailover": before,
                   "preservedLabelState": {"state": mode}})
        };
        let on = |clusters: &[&str]| {
            let all = clusters.iter().map(|c| json!({"name": c}));
            all.collect::<Value>()
        };
        let direct = task("Directly", &["x"]);
        let table = [
            (on(&["a"]), json!([direct]), true),
            (on(&["a"]), json!([]), false),
            (on(&["a", "b"]), json!([direct]), false),
            (on(&["a"]), json!([task("Gracefully", &["x"])]), false),
            (on(&["a"]), json!([task("Directly", &["x", "a"])]), false),
            // Only the last task counts.
            (on(&["a"]), json!([direct, task("Never", &["x"])]), false),
            (on(&["a"]), json!([task("Never", &["x"]), direct]), true),
        ];
        for (clusters, tasks, injected) in table {
            let spec = spec(json!({"clusters": clusters, "gracefulEvictionTasks": tasks}));
            let (template, binding) = (object(&json!({})), object(&binding()));
            let common =
                PerClusterManifestPreparer::new(JOB, &template, &json!({}), &binding, &spec, &[]);
            let mut copy = json!({"metadata": {"labels": {"own": "1"}}});
            common.inject_preserved_labels(&mut copy, "a");
            let mut expected = json!({"own": "1"});
            if injected {
                expected["state"] = "Directly".into();
            }
            assert_eq!(copy["metadata"]["labels"], expected, "{clusters} {tasks}");
        }
    }

    // proves: WRK-suspend-all, WRK-suspend-cluster, WRK-preserve
    #[test]
    fn dispatching_suspension_and_preservation() {
        let suspends = |suspension: Value, cluster: &str| {
            let spec = spec(json!({"suspension": suspension}));
            let (template, binding) = (object(&json!({})), object(&binding()));
            let common =
                PerClusterManifestPreparer::new(JOB, &template, &json!({}), &binding, &spec, &[]);
            common.suspends_dispatching(cluster)
        };
        for (suspension, expected) in [
            (Value::Null, [false, false]),
            (json!({"dispatching": true}), [true, true]),
            (json!({"dispatching": false}), [false, false]),
            (json!({"scheduling": true}), [false, false]),
            (
                json!({"dispatchingOnClusters": {"clusterNames": ["b"]}}),
                [false, true],
            ),
            (
                json!({"dispatching": false, "dispatchingOnClusters": {"clusterNames": ["a"]}}),
                [true, false],
            ),
        ] {
            let actual = ["a", "b"].map(|cluster| suspends(suspension.clone(), cluster));
            assert_eq!(actual, expected, "{suspension}");
        }
        let kept = |preserve: Value| {
            let spec = spec(json!({"preserveResourcesOnDeletion": preserve}));
            let (template, binding) = (object(&json!({})), object(&binding()));
            PerClusterManifestPreparer::new(JOB, &template, &json!({}), &binding, &spec, &[])
                .preserves_on_deletion()
        };
        let actual = [Value::Null, json!(false), json!(true)].map(kept);
        assert_eq!(actual, [false, false, true]);
    }

    // proves: WRK-marks, WRK-resolution-template, WRK-resolution-binding, WRK-generation, BND-wide
    #[test]
    fn manifests_and_works_are_labeled_and_annotated() {
        let tree = |annotations: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n", "generation": 4, "annotations": annotations}});
        let kind = Gvk::from_static("", "v1", "ConfigMap");
        let check = |annotations: Value, resolution: &str, expected: &str| {
            let spec = spec(json!({"conflictResolution": resolution}));
            let (copy, labels, work) = copy(&kind, &tree(annotations), &spec, &binding(), "a");
            assert_eq!(labels, json!({BINDING_ID: "id"}));
            assert_eq!(
                work,
                json!({BINDING_NAMESPACE: "n", BINDING_NAME: "x-job", CONFLICT_RESOLUTION: expected})
            );
            let marks = &copy["metadata"]["annotations"];
            assert_eq!(marks[CONFLICT_RESOLUTION], expected);
            assert_eq!(marks[TEMPLATE_GENERATION], "4");
            assert_eq!(copy["metadata"]["labels"], json!({BINDING_ID: "id"}));
        };
        check(json!({}), "Abort", "abort");
        check(json!({}), "Overwrite", "overwrite");
        check(json!({CONFLICT_RESOLUTION: "abort"}), "Overwrite", "abort");
        check(json!({CONFLICT_RESOLUTION: "other"}), "", "abort");
        let never_generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}});
        let (bare, ..) = copy(&kind, &never_generated, &spec(json!({})), &binding(), "a");
        assert_eq!(
            bare["metadata"]["annotations"].get(TEMPLATE_GENERATION),
            None
        );
        let cluster_scoped = json!({"metadata": {"name": "x-clusterrole", "uid": "u", "labels": {CLUSTER_BINDING_ID: "c"}}});
        let (_, labels, work) = copy(
            &kind,
            &tree(json!({})),
            &spec(json!({})),
            &cluster_scoped,
            "a",
        );
        assert_eq!(labels, json!({CLUSTER_BINDING_ID: "c"}));
        assert_eq!(work[CLUSTER_BINDING_NAME], "x-clusterrole");
    }
}
