//! Computes the expected state from Karmada's rules and the expectations of a scenario, as a
//! tree like that of [`ObservedState::normalized_tree`].
//!
//! Ids that only the server knows are taken from the observed policies, templates, bindings
//! and Works. The rules are a second implementation of Karmada's: names (`pkg/util/names`),
//! claims of policies (`pkg/detector/claim.go`), bindings (`pkg/util/helper/binding.go`),
//! Works with the labels and annotations of their manifests
//! (`pkg/controllers/binding/common.go`, `pkg/util/work.go`), conditions and aggregated
//! status (`pkg/util/helper/workstatus.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::expectation_rules::{
    condition_or_usual, fully_applied_condition, joined_keys, merge_patch, object_field, pruned,
    replica_requirements, target_clusters,
};
use crate::expected_names;
use crate::observed_state::{ObservedState, text_at};
use crate::scenario::{ExpectedCondition, TemplateExpectation};

const POLICY_PREFIX: &str = "propagationpolicy.karmada.io";
const CLUSTER_POLICY_PREFIX: &str = "clusterpropagationpolicy.karmada.io";

/// The expected tree; an error names an object that does not exist yet.
pub(crate) fn expected_tree(
    namespace: &str,
    expected: &BTreeMap<String, TemplateExpectation>,
    seen: &ObservedState,
) -> Result<Value, String> {
    let mut tree = json!({"bindings": {}, "works": {}, "members": {}});
    for (place, expected) in expected {
        let (kind, name) = place.split_once('/').ok_or("not Kind/name")?;
        let frame = ExpectedStateBuilder {
            namespace,
            kind_and_name: place,
            kind,
            name,
            expected,
            observed: seen,
        };
        frame.add_to_tree(&mut tree)?;
    }
    Ok(tree)
}

struct ExpectedStateBuilder<'a> {
    namespace: &'a str,
    kind_and_name: &'a str,
    kind: &'a str,
    name: &'a str,
    expected: &'a TemplateExpectation,
    observed: &'a ObservedState,
}

/// Labels or annotations.
type MetadataMap = Map<String, Value>;

/// The expected status of the manifest in one cluster.
struct ExpectedManifestState {
    applied: bool,
    message: String,
    health: String,
    report: Value,
}

impl ExpectedStateBuilder<'_> {
    fn add_to_tree(&self, tree: &mut Value) -> Result<(), String> {
        if self.expected.unbound {
            for (cluster, object) in &self.expected.members {
                tree["members"][cluster][self.kind_and_name] = object.clone();
            }
            return Ok(());
        }
        let name = expected_names::binding_name(self.kind, self.name);
        let live = self.observed.bindings.get(&name);
        let live = live.ok_or_else(|| format!("no binding {name}"))?;
        let mut reports = Vec::new();
        for cluster in self.clusters() {
            let copied = self.manifest_state(&cluster);
            let mut report = json!({"clusterName": cluster});
            if copied.applied {
                report["applied"] = true.into();
            }
            if !copied.applied && !copied.message.is_empty() {
                report["appliedMessage"] = copied.message.clone().into();
            }
            report["health"] = copied.health.clone().into();
            if !copied.report.is_null() {
                report["status"] = copied.report.clone();
            }
            reports.push(report);
            self.add_work(tree, live, &cluster, &copied)?;
        }
        let mut binding = self.binding(live, reports)?;
        if let Some(patch) = &self.expected.binding {
            merge_patch(&mut binding, patch);
        }
        tree["bindings"][&name] = binding;
        Ok(())
    }

    fn is_cluster_scoped(&self) -> bool {
        text_at(self.template(), "/metadata/namespace").is_empty()
    }

    /// The template as read; null when it is deleted.
    fn template(&self) -> &Value {
        self.observed
            .control_objects
            .get(self.kind_and_name)
            .unwrap_or(&Value::Null)
    }

    fn policy(&self) -> Result<Option<&Value>, String> {
        let of = self.expected.by.as_ref().or(self.expected.left.as_ref());
        let Some(by) = of else {
            return Ok(None);
        };
        let policy = self.observed.control_objects.get(by);
        policy.map(Some).ok_or_else(|| format!("no {by}"))
    }

    /// The clusters with a Work.
    fn clusters(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.expected.clusters.0.keys().cloned().collect();
        for required in self.expected.required.values() {
            all.extend(required.0.keys().cloned());
        }
        for (cluster, work) in &self.expected.works {
            if work.is_null() {
                all.remove(cluster);
            } else {
                all.insert(cluster.clone());
            }
        }
        all
    }

    /// The claim, as labels and annotations.
    fn claim(&self) -> Result<(MetadataMap, MetadataMap), String> {
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        if let Some(policy) = self.policy()? {
            let wide = policy["kind"] == "ClusterPropagationPolicy";
            let group = if wide {
                CLUSTER_POLICY_PREFIX
            } else {
                POLICY_PREFIX
            };
            let key = format!("{group}/permanent-id");
            let id = policy["metadata"]["labels"][&key].clone();
            labels.insert(key, id);
            let name = policy["metadata"]["name"].clone();
            annotations.insert(format!("{group}/name"), name);
            if !wide {
                annotations.insert(format!("{group}/namespace"), self.namespace.into());
            }
        }
        Ok((labels, annotations))
    }

    fn binding(&self, live: &Value, reports: Vec<Value>) -> Result<Value, String> {
        let template = self.template();
        let (mut labels, mut annotations) = match self.expected.left {
            Some(_) => Default::default(),
            None => self.claim()?,
        };
        let (kind, prefix) = self.binding_kind();
        let id = format!("{prefix}/permanent-id");
        labels.insert(id.clone(), live["metadata"]["labels"][&id].clone());
        for binding in self.expected.required.keys() {
            let (ns, name) = binding.split_once('/').ok_or("not namespace/name")?;
            let independent = self.observed.bindings.get(name).unwrap_or(&Value::Null);
            let key = format!(
                "resourcebinding.karmada.io/depended-by-{}",
                expected_names::binding_reference_key(ns, name)
            );
            let of = &independent["metadata"]["labels"]["resourcebinding.karmada.io/permanent-id"];
            labels.insert(key, of.clone());
        }
        let policy = self.policy()?;
        let placement = policy.map(|p| &p["spec"]["placement"]);
        if let (Some(placement), true) = (placement, self.is_scheduled()) {
            annotations.insert(
                "policy.karmada.io/applied-placement".into(),
                placement.clone(),
            );
        }
        let mut finalizers = vec![if self.is_cluster_scoped() {
            "karmada.io/cluster-resource-binding-controller"
        } else {
            "karmada.io/binding-controller"
        }];
        if let Some(dependencies) = &self.expected.dependencies {
            let key = "resourcebinding.karmada.io/dependencies";
            // Go encodes a nil slice as null.
            let none = dependencies.as_array().is_some_and(Vec::is_empty);
            let encoded = if none { &Value::Null } else { dependencies };
            annotations.insert(key.into(), encoded.clone());
            finalizers.push("karmada.io/binding-dependencies-distributor");
        }
        let mut metadata = json!({
            "name": expected_names::binding_name(self.kind, self.name), "labels": labels,
            "annotations": annotations, "finalizers": finalizers,
            "ownerReferences": [{
                "apiVersion": template["apiVersion"], "kind": self.kind, "name": self.name,
                "uid": template["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        });
        if annotations_empty(&metadata) {
            metadata.as_object_mut().unwrap().remove("annotations");
        }
        if !self.is_cluster_scoped() {
            metadata["namespace"] = self.namespace.into();
        }
        Ok(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": kind, "metadata": metadata,
            "spec": self.binding_spec(policy), "status": self.binding_status(reports),
        }))
    }

    fn binding_kind(&self) -> (&'static str, &'static str) {
        if self.is_cluster_scoped() {
            (
                "ClusterResourceBinding",
                "clusterresourcebinding.karmada.io",
            )
        } else {
            ("ResourceBinding", "resourcebinding.karmada.io")
        }
    }

    fn binding_spec(&self, policy: Option<&Value>) -> Value {
        let template = self.template();
        let mut resource = json!({
            "apiVersion": template["apiVersion"], "kind": self.kind, "name": self.name,
            "uid": template["metadata"]["uid"],
        });
        if !self.is_cluster_scoped() {
            resource["namespace"] = self.namespace.into();
        }
        let mut spec = json!({"resource": resource, "conflictResolution": "Abort"});
        if let Some(policy) = policy {
            if let (Some(replicas), true) = (self.replicas(), self.kind != "DaemonSet") {
                spec["replicas"] = replicas.into();
                let asked = replica_requirements(template);
                if !asked.is_null() {
                    spec["replicaRequirements"] = asked;
                }
            }
            let copied = [
                "conflictResolution",
                "failover",
                "placement",
                "preserveResourcesOnDeletion",
                "schedulerName",
                "suspension",
            ];
            for key in copied {
                if let Some(value) = policy["spec"].get(key) {
                    spec[key] = value.clone();
                }
            }
            if policy["spec"]["propagateDeps"] == true {
                spec["propagateDeps"] = true.into();
            }
        }
        if !self.expected.clusters.0.is_empty() {
            spec["clusters"] = target_clusters(&self.expected.clusters);
        }
        let required: Vec<Value> = self
            .expected
            .required
            .iter()
            .filter_map(|(binding, clusters)| {
                let (ns, name) = binding.split_once('/')?;
                Some(json!({"namespace": ns, "name": name, "clusters": target_clusters(clusters)}))
            })
            .collect();
        if !required.is_empty() && policy.is_none() {
            spec["preserveResourcesOnDeletion"] = false.into();
        }
        if !required.is_empty() {
            spec["requiredBy"] = required.into();
        }
        spec
    }

    /// Whether the scheduler has decided, even that no cluster fits.
    fn is_scheduled(&self) -> bool {
        let of = self.expected.by.as_ref().or(self.expected.left.as_ref());
        of.is_some() && !matches!(self.expected.scheduled, Some(ExpectedCondition::Absent(_)))
    }

    fn binding_status(&self, reports: Vec<Value>) -> Value {
        let mut status = json!({});
        let mut conditions = Vec::new();
        let all = reports.iter().all(|r| r["applied"] == true);
        let usual = (!reports.is_empty()).then(|| fully_applied_condition(all));
        conditions.extend(condition_or_usual(
            "FullyApplied",
            self.expected.applied.as_ref(),
            usual,
        ));
        if self.is_scheduled() {
            let success = json!({"type": "Scheduled", "status": "True", "reason": "Success",
                "message": "Binding has been scheduled successfully."});
            let scheduled =
                condition_or_usual("Scheduled", self.expected.scheduled.as_ref(), Some(success));
            if scheduled.as_ref().is_some_and(|s| s["status"] == "True") {
                status["schedulerObservedGeneration"] = "current".into();
            }
            conditions.extend(scheduled);
        }
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        if !reports.is_empty() {
            status["aggregatedStatus"] = reports.into();
        }
        status
    }

    /// The replicas of the template; none for kinds without replicas.
    fn replicas(&self) -> Option<i64> {
        let spec = &self.template()["spec"];
        match self.kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" => {
                Some(spec["replicas"].as_i64().unwrap_or(0))
            }
            "Job" => {
                let parallel = spec["parallelism"].as_i64().unwrap_or(1);
                let completions = spec["completions"].as_i64();
                Some(completions.map_or(parallel, |c| parallel.min(c)))
            }
            "Pod" => Some(1),
            _ => None,
        }
    }

    /// The replicas that are assigned to a cluster.
    fn assigned_replicas(&self, cluster: &str) -> Option<i64> {
        let own = self.expected.clusters.0.get(cluster).copied();
        own.flatten()
    }

    fn is_suspended(&self, cluster: &str) -> bool {
        let Ok(Some(policy)) = self.policy() else {
            return false;
        };
        let suspension = &policy["spec"]["suspension"];
        let listed = suspension["dispatchingOnClusters"]["clusterNames"].as_array();
        suspension["dispatching"] == true
            || listed.is_some_and(|all| all.iter().any(|c| c == cluster))
    }

    fn manifest_state(&self, cluster: &str) -> ExpectedManifestState {
        let held = self.is_suspended(cluster) && !self.expected.stays.iter().any(|c| c == cluster);
        let refused = self.expected.unapplied.get(cluster);
        if held || refused.is_some() {
            return ExpectedManifestState {
                applied: false,
                message: refused.cloned().unwrap_or_default(),
                health: "Unknown".into(),
                report: Value::Null,
            };
        }
        let health = self.expected.health.get(cluster).cloned();
        let report = self.expected.reports.get(cluster).cloned();
        ExpectedManifestState {
            applied: true,
            message: "Manifest has been successfully applied".into(),
            health: health.unwrap_or_else(|| "Healthy".into()),
            report: report.unwrap_or_else(|| self.report(cluster)),
        }
    }

    /// The reflected status of an object whose pods are all ready.
    fn report(&self, cluster: &str) -> Value {
        let key = (cluster.to_owned(), self.kind_and_name.to_owned());
        let there = self.observed.objects.get(&key).unwrap_or(&Value::Null);
        let generation = &there["metadata"]["generation"];
        let replicas = there["spec"]["replicas"].as_i64().unwrap_or(0);
        let of_template = &self.template()["metadata"]["generation"];
        let mut report = json!({"generation": generation, "observedGeneration": generation,
            "resourceTemplateGeneration": of_template});
        let counters: &[&str] = match self.kind {
            "Deployment" => &[
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
            ],
            "StatefulSet" => &[
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "currentReplicas",
            ],
            "ReplicaSet" => &["replicas", "readyReplicas", "availableReplicas"],
            _ => return Value::Null,
        };
        for counter in counters {
            if replicas > 0 {
                report[counter] = replicas.into();
            }
        }
        report
    }

    /// The manifest for a cluster, without Karmada's labels and annotations.
    fn manifest(&self, cluster: &str) -> Value {
        let mut copy = pruned(self.template());
        if let Some(replicas) = self.assigned_replicas(cluster) {
            let field = if self.kind == "Job" {
                "parallelism"
            } else {
                "replicas"
            };
            if copy["spec"][field].is_number() {
                copy["spec"][field] = replicas.into();
            }
        }
        if let Some(patch) = self.expected.copies.get(cluster) {
            merge_patch(&mut copy, patch);
        }
        for (pointer, value) in self.expected.sets.get(cluster).into_iter().flatten() {
            if let Some(place) = copy.pointer_mut(pointer) {
                *place = value.clone();
            }
        }
        copy
    }

    fn add_work(
        &self,
        tree: &mut Value,
        binding: &Value,
        cluster: &str,
        copied: &ExpectedManifestState,
    ) -> Result<(), String> {
        let mut manifest = self.manifest(cluster);
        if self.expected.left.is_some() {
            let (labels, annotations) = self.claim()?;
            object_field(&mut manifest["metadata"], "labels").extend(labels);
            object_field(&mut manifest["metadata"], "annotations").extend(annotations);
        }
        let scope = if self.is_cluster_scoped() {
            ""
        } else {
            self.namespace
        };
        let name =
            expected_names::work_name(self.kind, scope, text_at(&manifest, "/metadata/name"));
        let live = self.observed.works.get(&(cluster.to_owned(), name.clone()));
        let live = live.ok_or_else(|| format!("no work {cluster}/{name}"))?;
        let (_, prefix) = self.binding_kind();
        let id = format!("{prefix}/permanent-id");
        let mut labels = Map::new();
        labels.insert(id.clone(), binding["metadata"]["labels"][&id].clone());
        let own = "work.karmada.io/permanent-id";
        labels.insert(own.into(), live["metadata"]["labels"][own].clone());
        let mut annotations = Map::new();
        annotations.insert(
            format!("{prefix}/name"),
            expected_names::binding_name(self.kind, self.name).into(),
        );
        if !self.is_cluster_scoped() {
            annotations.insert(format!("{prefix}/namespace"), self.namespace.into());
        }
        let key = "work.karmada.io/conflict-resolution";
        annotations.insert(key.into(), self.conflict_resolution(&manifest, binding));
        let space = format!("karmada-es-{cluster}");
        self.add_metadata(&mut manifest, &labels, &annotations, &space, &name);
        let mut work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": space, "labels": labels,
                "annotations": annotations, "finalizers": ["karmada.io/execution-controller"]},
            "spec": {
                "preserveResourcesOnDeletion":
                    binding["spec"]["preserveResourcesOnDeletion"] == true,
                "suspendDispatching": self.is_suspended(cluster),
                "workload": {"manifests": [manifest]},
            },
            "status": self.work_status(cluster, copied),
        });
        if let Some(patch) = self.expected.works.get(cluster) {
            merge_patch(&mut work, patch);
        }
        tree["works"][cluster][&name] = work;
        self.add_member_object(tree, cluster, copied.applied, &manifest);
        Ok(())
    }

    fn add_member_object(&self, tree: &mut Value, cluster: &str, applied: bool, manifest: &Value) {
        let place = format!("{}/{}", self.kind, text_at(manifest, "/metadata/name"));
        match self.expected.members.get(cluster) {
            Some(Value::Null) => {}
            Some(patch) if !applied => tree["members"][cluster][place] = patch.clone(),
            None if !applied => {}
            patch => {
                let mut object = manifest.clone();
                if self.kind == "Job" {
                    object["spec"].as_object_mut().unwrap().remove("selector");
                }
                if let Some(patch) = patch {
                    merge_patch(&mut object, patch);
                }
                tree["members"][cluster][place] = object;
            }
        }
    }

    /// The conflict resolution from the template's annotation, or else from the binding.
    fn conflict_resolution(&self, manifest: &Value, binding: &Value) -> Value {
        let own = &manifest["metadata"]["annotations"]["work.karmada.io/conflict-resolution"];
        if own == "overwrite" || own == "abort" {
            return own.clone();
        }
        let overwrite = binding["spec"]["conflictResolution"] == "Overwrite";
        if overwrite { "overwrite" } else { "abort" }.into()
    }

    /// Adds Karmada's labels and annotations to a manifest.
    fn add_metadata(
        &self,
        manifest: &mut Value,
        of_work: &Map<String, Value>,
        with: &Map<String, Value>,
        space: &str,
        name: &str,
    ) {
        let template = &self.template()["metadata"];
        let labels = object_field(&mut manifest["metadata"], "labels");
        labels.extend(of_work.clone());
        labels.insert("karmada.io/managed".into(), "true".into());
        let label_keys = joined_keys(labels);
        let annotations = object_field(&mut manifest["metadata"], "annotations");
        annotations.extend(with.clone());
        annotations.insert("work.karmada.io/namespace".into(), space.into());
        annotations.insert("work.karmada.io/name".into(), name.into());
        let group = "resourcetemplate.karmada.io";
        annotations.insert(format!("{group}/uid"), template["uid"].clone());
        if let Some(generation) = template["generation"].as_i64() {
            let key = format!("{group}/generation");
            annotations.insert(key, generation.to_string().into());
        }
        annotations.insert(format!("{group}/managed-labels"), label_keys.into());
        annotations.insert(format!("{group}/managed-annotations"), Value::Null);
        let annotation_keys = joined_keys(annotations);
        annotations.insert(
            format!("{group}/managed-annotations"),
            annotation_keys.into(),
        );
    }

    fn work_status(&self, cluster: &str, copied: &ExpectedManifestState) -> Value {
        let mut conditions = Vec::new();
        if copied.applied {
            conditions.push(json!({"type": "Applied", "status": "True",
                "reason": "AppliedSuccessful", "message": copied.message}));
        } else if !copied.message.is_empty() {
            conditions.push(json!({"type": "Applied", "status": "False",
                "reason": "AppliedFailed", "message": copied.message}));
        }
        conditions.push(if self.is_suspended(cluster) {
            json!({"type": "Dispatching", "status": "False", "reason": "SuspendDispatching",
                "message": "Work dispatching is in a suspended state."})
        } else {
            json!({"type": "Dispatching", "status": "True", "reason": "Dispatching",
                "message": "Work is being dispatched to member clusters."})
        });
        let mut status = json!({ "conditions": conditions });
        if copied.applied {
            status["manifestStatuses"] = json!([self.manifest_status(cluster, copied)]);
        }
        status
    }

    fn manifest_status(&self, cluster: &str, copied: &ExpectedManifestState) -> Value {
        let api = text_at(self.template(), "/apiVersion");
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        let copy = self.manifest(cluster);
        let mut identifier = json!({"ordinal": 0, "version": version, "kind": self.kind,
            "resource": "", "name": copy["metadata"]["name"]});
        if !group.is_empty() {
            identifier["group"] = group.into();
        }
        if !self.is_cluster_scoped() {
            identifier["namespace"] = self.namespace.into();
        }
        let mut status = json!({"identifier": identifier, "health": copied.health});
        if !copied.report.is_null() {
            status["status"] = copied.report.clone();
        }
        status
    }
}

fn annotations_empty(metadata: &Value) -> bool {
    metadata["annotations"]
        .as_object()
        .is_some_and(Map::is_empty)
}
