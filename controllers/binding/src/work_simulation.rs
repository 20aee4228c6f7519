//! Tells what the controller would write for bindings whose Works another version has written: its
//! own decisions over listed objects, without a write.

use std::collections::BTreeMap;

use client::InvolvedObject;
use controller_context::{Error, binding_key_of_work};
use flotilla_runtime::{ListedCluster, RestMapping};
use interpreter::ResourceInterpreter;
use karmada_api::names::cluster_of_execution_space;
use karmada_api::well_known_keys::{BINDING_ID, CLUSTER_BINDING_ID};
use karmada_api::{FeatureGates, ResourceBinding, TargetCluster};
use machinery::Object;
use overrides::CandidateOverridePolicies;
use serde_json::Value;

use crate::gated_targets::within_gate;
use crate::manifest::{PerClusterManifestPreparer, binding_id};
use crate::work_builder::{SharedManifestInputs, WorkBuilder, parse_manifest, unknown_cluster};
use crate::work_cleanup::plan_cleanup;

/// The inputs of [`WorkSimulation::new`].
pub struct WorkSimulationOptions<'a> {
    pub interpreter: ResourceInterpreter,
    pub feature_gates: FeatureGates,
    pub clusters: &'a [Object],
    /// The override policies of all namespaces, and those of the cluster.
    pub overrides: Vec<Object>,
    pub works: Vec<Object>,
}

/// Compares the Works of bindings with what the controller would write.
pub struct WorkSimulation {
    builder: WorkBuilder,
    clusters: BTreeMap<String, ListedCluster>,
    overrides: BTreeMap<String, Vec<Object>>,
    /// By `namespace/name`.
    works: BTreeMap<String, Object>,
    /// The keys of the Works that name a binding, by its key.
    works_by_binding: BTreeMap<String, Vec<String>>,
}

/// A binding with the template that it places.
pub struct SimulatedBinding<'a> {
    pub binding: &'a Object,
    pub mapping: &'a RestMapping,
    pub template: &'a Object,
    /// The clusters to which the namespace restricts the template, if it does.
    pub namespace_gate: Option<Vec<String>>,
    /// Whether the status of the kind is collected from members.
    pub collects_status: bool,
}

/// A Work that would be written or deleted.
#[derive(Debug, PartialEq)]
pub struct SimulatedWork {
    pub cluster: String,
    pub change: WorkChange,
}

#[derive(Debug, PartialEq)]
pub enum WorkChange {
    Create,
    Update {
        before: Value,
        after: Value,
    },
    Delete,
    /// Nothing would be written, for this reason.
    Blocked(String),
}

impl WorkSimulation {
    pub fn new(options: WorkSimulationOptions<'_>) -> Self {
        let clusters = options.clusters.iter().filter_map(ListedCluster::new);
        let mut overrides: BTreeMap<String, Vec<Object>> = BTreeMap::new();
        for policy in options.overrides {
            let of_namespace = overrides.entry(policy.namespace().to_owned());
            of_namespace.or_default().push(policy);
        }
        let mut works_by_binding: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for work in &options.works {
            if let Some(binding) = binding_key_of_work(work) {
                let keys = works_by_binding.entry(binding).or_default();
                keys.push(work.meta().key());
            }
        }
        let works = options.works.into_iter();
        Self {
            builder: WorkBuilder {
                interpreter: options.interpreter,
                feature_gates: options.feature_gates,
            },
            clusters: clusters.map(|c| (c.name().to_owned(), c)).collect(),
            overrides,
            works: works.map(|work| (work.meta().key(), work)).collect(),
            works_by_binding,
        }
    }

    /// The Works of a binding that the controller would write or delete.
    pub async fn changes(&self, case: &SimulatedBinding<'_>) -> Result<Vec<SimulatedWork>, Error> {
        let binding = case.binding;
        if binding.meta().deleting {
            return Ok(Vec::new());
        }
        let view = binding.decode::<ResourceBinding>()?;
        let view = within_gate(view, case.namespace_gate.clone());
        let works = self.works_of(binding);
        let cleanup = plan_cleanup(&view.spec, &works, |_| false);
        let orphans = cleanup.orphans.into_iter().filter(|w| !w.meta().deleting);
        let orphans = orphans.filter_map(|work| cluster_of_execution_space(work.namespace()));
        let mut changes: Vec<SimulatedWork> = orphans
            .map(|cluster| SimulatedWork {
                cluster: cluster.to_owned(),
                change: WorkChange::Delete,
            })
            .collect();
        let targets = view.spec.targets();
        if cleanup.must_wait || targets.is_empty() {
            return Ok(changes);
        }
        let of = &view.spec.resource;
        of.check_scope(binding.namespace(), case.mapping.namespaced)
            .map_err(|reason| Error::Blocked(format!("spec.resource.namespace: {reason}")))?;
        let source = self.source(case, &view, &targets)?;
        for target in targets {
            let change = self.change(&source, target).await;
            let change =
                change.unwrap_or_else(|error| Some(WorkChange::Blocked(error.to_string())));
            changes.extend(change.map(|change| SimulatedWork {
                cluster: target.name.clone(),
                change,
            }));
        }
        Ok(changes)
    }

    /// The Works that carry the id of a binding and name it.
    fn works_of(&self, binding: &Object) -> Vec<Object> {
        let id = binding_id(binding);
        let keys = self.works_by_binding.get(&binding.meta().key());
        let works = keys.into_iter().flatten();
        let works = works.filter_map(|key| self.works.get(key));
        let carries_id = |work: &&Object| {
            [BINDING_ID, CLUSTER_BINDING_ID]
                .iter()
                .any(|l| work.meta().label(l) == Some(id))
        };
        works.filter(carries_id).cloned().collect()
    }

    fn source<'a>(
        &self,
        case: &'a SimulatedBinding<'_>,
        view: &'a ResourceBinding,
        targets: &[&TargetCluster],
    ) -> Result<SharedManifestInputs<'a>, Error> {
        let (mapping, template) = (case.mapping, case.template);
        let tree = parse_manifest(mapping, template)?;
        // Cluster policies are those of no namespace.
        let namespaces = match template.namespace() {
            "" => vec![""],
            namespace => vec!["", namespace],
        };
        let overrides = namespaces.iter().filter_map(|n| self.overrides.get(*n));
        let overrides: Vec<Object> = overrides.flatten().cloned().collect();
        Ok(SharedManifestInputs {
            mapping,
            template,
            tree_bytes: 0,
            collects_status: case.collects_status,
            builder: PerClusterManifestPreparer::new(
                mapping.gvk.clone(),
                template,
                &tree,
                case.binding,
                &view.spec,
                targets,
            ),
            overrides: CandidateOverridePolicies::of_objects(&overrides),
            revision: None,
            template_reference: InvolvedObject::new(&mapping.api_version, mapping.kind(), template),
        })
    }

    async fn change(
        &self,
        source: &SharedManifestInputs<'_>,
        target: &TargetCluster,
    ) -> Result<Option<WorkChange>, Error> {
        let cluster = self.clusters.get(&target.name);
        let cluster = cluster.ok_or_else(|| unknown_cluster(&target.name))?;
        let copy = parse_manifest(source.mapping, source.template)?;
        let attributes = cluster.attributes();
        let built = self.builder.build(source, copy, target, &attributes).await;
        let (_, desired) = built.map_err(Error::blocked)?;
        let existing = self.works.get(&desired.key());
        let Some(after) = desired.into_body(existing, source.builder.template_uid)? else {
            return Ok(None);
        };
        Ok(Some(match existing {
            None => WorkChange::Create,
            Some(before) => WorkChange::Update {
                before: before.value()?,
                after,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use machinery::{Gvk, Gvr};
    use serde_json::json;

    fn object(value: &Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn work(cluster: &str, manifest: &Value) -> Value {
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": karmada_api::names::work_name("ConfigMap", "c", "n"),
                "namespace": format!("karmada-es-{cluster}"),
                "labels": {BINDING_ID: "id"}, "finalizers": ["karmada.io/execution-controller"],
                "annotations": {"resourcebinding.karmada.io/namespace": "n",
                    "resourcebinding.karmada.io/name": "c-configmap"}},
            "spec": {"workload": {"manifests": [manifest]}}})
    }

    /// The changes for a ConfigMap in the clusters `a` and `b`, with an override for `b`.
    fn changes(works: &[Value]) -> Vec<SimulatedWork> {
        let clusters = ["a", "b", "c"].map(|name| object(&json!({"metadata": {"name": name}})));
        let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "o", "namespace": "n"},
            "spec": {"overrideRules": [{"targetCluster": {"clusterNames": ["b"]},
                "overriders": {"plaintext": [{"path": "/data/k", "operator": "replace", "value": "b"}]}}]}});
        let simulation = WorkSimulation::new(WorkSimulationOptions {
            interpreter: ResourceInterpreter::default(),
            feature_gates: FeatureGates::default(),
            clusters: &clusters,
            overrides: vec![object(&policy)],
            works: works.iter().map(object).collect(),
        });
        let template = object(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "n", "uid": "t"}, "data": {"k": "v"}}));
        let binding = object(&json!({"apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {"name": "c-configmap", "namespace": "n", "uid": "u", "labels": {BINDING_ID: "id"}},
            "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"},
                "clusters": [{"name": "a"}, {"name": "b"}]}}));
        let mapping = RestMapping {
            gvk: Gvk::from_static("", "v1", "ConfigMap"),
            gvr: Gvr::from_static("", "v1", "configmaps"),
            api_version: "v1".into(),
            namespaced: true,
        };
        let case = SimulatedBinding {
            binding: &binding,
            mapping: &mapping,
            template: &template,
            namespace_gate: None,
            collects_status: true,
        };
        simulation.changes(&case).now_or_never().unwrap().unwrap()
    }

    // proves: TKO-manifests
    #[test]
    fn works_that_are_up_to_date_are_not_written() {
        let stale = ["a", "b"].map(|cluster| work(cluster, &json!({})));
        let updated: Vec<Value> = changes(&stale)
            .into_iter()
            .map(|written| match written.change {
                WorkChange::Update { after, .. } => after,
                other => json!(format!("{other:?}")),
            })
            .collect();
        let data = |work: &Value| work["spec"]["workload"]["manifests"][0]["data"]["k"].clone();
        assert_eq!(updated.iter().map(data).collect::<Vec<_>>(), ["v", "b"]);
        assert_eq!(changes(&updated), []);

        let mut works = vec![updated[1].clone(), work("c", &json!({}))];
        works[0]["metadata"]["labels"] = json!({BINDING_ID: "another"});
        let written = changes(&works);
        let named = |work: &SimulatedWork| match &work.change {
            WorkChange::Blocked(reason) => {
                assert!(reason.contains("permanent id"), "{reason}");
                format!("{} blocked", work.cluster)
            }
            change => format!("{} {change:?}", work.cluster),
        };
        let named: Vec<String> = written.iter().map(named).collect();
        assert_eq!(named, ["c Delete", "a Create", "b blocked"]);
    }
}
