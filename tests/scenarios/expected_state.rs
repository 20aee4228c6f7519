//! Computes the expected state from Karmada's rules and the expectations of a scenario, as a
//! tree like that of [`ObservedState::normalized_tree`].
//!
//! Ids that only the server knows are taken from the observed policies, templates, bindings
//! and Works. The rules are a second implementation of Karmada's: names (`pkg/util/names`),
//! claims of policies (`pkg/detector/claim.go`), bindings (`pkg/util/helper/binding.go`),
//! conditions and aggregated status (`pkg/util/helper/workstatus.go`), and the Works of
//! [`crate::scenarios::expected_works`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::scenarios::expectation_rules::{
    condition_or_usual, fully_applied_condition, merge_patch, replica_requirements, target_clusters,
};
use crate::scenarios::expected_names;
use crate::scenarios::observed_state::{ObservedState, text_at};
use crate::scenarios::scenario::{ExpectedCondition, TemplateExpectation};

const POLICY_PREFIX: &str = "propagationpolicy.karmada.io";
const CLUSTER_POLICY_PREFIX: &str = "clusterpropagationpolicy.karmada.io";

/// The expected tree; an error names an object that does not exist yet.
pub(crate) fn expected_tree(
    namespace: &str,
    expected: &BTreeMap<String, TemplateExpectation>,
    observed: &ObservedState,
) -> Result<Value, String> {
    let mut tree = json!({"bindings": {}, "works": {}, "members": {}});
    for (kind_and_name, expected) in expected {
        let (kind, name) = kind_and_name.split_once('/').ok_or("not Kind/name")?;
        let frame = ExpectedStateBuilder {
            namespace,
            kind_and_name,
            kind,
            name,
            expected,
            observed,
        };
        frame.add_to_tree(&mut tree)?;
    }
    Ok(tree)
}

pub(crate) struct ExpectedStateBuilder<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) kind_and_name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) expected: &'a TemplateExpectation,
    pub(crate) observed: &'a ObservedState,
}

/// Labels or annotations.
pub(crate) type MetadataMap = Map<String, Value>;

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

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        text_at(self.template(), "/metadata/namespace").is_empty()
    }

    /// The template as read; null when it is deleted.
    pub(crate) fn template(&self) -> &Value {
        self.observed
            .control_objects
            .get(self.kind_and_name)
            .unwrap_or(&Value::Null)
    }

    pub(crate) fn policy(&self) -> Result<Option<&Value>, String> {
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
    pub(crate) fn claim(&self) -> Result<(MetadataMap, MetadataMap), String> {
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

    pub(crate) fn binding_kind(&self) -> (&'static str, &'static str) {
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
                let requirements = replica_requirements(template);
                if !requirements.is_null() {
                    spec["replicaRequirements"] = requirements;
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
}

fn annotations_empty(metadata: &Value) -> bool {
    metadata["annotations"]
        .as_object()
        .is_some_and(Map::is_empty)
}
