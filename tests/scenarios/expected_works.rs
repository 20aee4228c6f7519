//! The expected Works of a template, and its objects in members: manifests with Karmada's
//! labels and annotations (`pkg/controllers/binding/common.go`, `pkg/util/work.go`),
//! conditions and reflected status.

use serde_json::{Map, Value, json};

use crate::scenarios::expectation_rules::{joined_keys, merge_patch, object_field, pruned};
use crate::scenarios::expected_names;
use crate::scenarios::expected_state::ExpectedStateBuilder;
use crate::scenarios::observed_state::text_at;

/// The expected status of the manifest in one cluster.
pub(crate) struct ExpectedManifestState {
    pub(crate) applied: bool,
    pub(crate) message: String,
    pub(crate) health: String,
    pub(crate) report: Value,
}

impl ExpectedStateBuilder<'_> {
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

    pub(crate) fn manifest_state(&self, cluster: &str) -> ExpectedManifestState {
        let is_held =
            self.is_suspended(cluster) && !self.expected.stays.iter().any(|c| c == cluster);
        let failure_message = self.expected.unapplied.get(cluster);
        if is_held || failure_message.is_some() {
            return ExpectedManifestState {
                applied: false,
                message: failure_message.cloned().unwrap_or_default(),
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
            if let Some(value_of_field) = copy.pointer_mut(pointer) {
                *value_of_field = value.clone();
            }
        }
        copy
    }

    pub(crate) fn add_work(
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
        let kind_and_name = format!("{}/{}", self.kind, text_at(manifest, "/metadata/name"));
        match self.expected.members.get(cluster) {
            Some(Value::Null) => {}
            Some(patch) if !applied => tree["members"][cluster][kind_and_name] = patch.clone(),
            None if !applied => {}
            patch => {
                let mut object = manifest.clone();
                if self.kind == "Job" {
                    object["spec"].as_object_mut().unwrap().remove("selector");
                }
                if let Some(patch) = patch {
                    merge_patch(&mut object, patch);
                }
                tree["members"][cluster][kind_and_name] = object;
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
