//! Builds the binding of a template from its policy and its interpreted replicas, and compares it
//! with the existing binding. Source: Karmada's `pkg/detector/detector.go` (`ApplyPolicy`,
//! `buildResourceBinding`).

use controller_context::BindingDiff;
use flotilla_runtime::RestMapping;
use karmada_api::binding::ObjectReference;
use karmada_api::placement::WorkloadAffinityTerm;
use karmada_api::policy::PropagationSpec;
use karmada_api::replica_preference::ReplicaSchedulingPreferenceSpec;
use karmada_api::well_known_keys::{
    BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER, CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME,
    OBSERVED_CAPACITY, REPLICA_PREFERENCE, is_orphaned_on_deletion,
};
use karmada_api::{Placement, names};
use machinery::{Object, ObjectMeta};
use serde_json::{Map, Value, json};

use crate::interpret_template::{InterpretedReplicas, InterpretedTemplate};
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::ParsedPolicy;

/// The fields of the spec that the detector owns: an update removes those that the desired binding
/// lacks.
const OWNED_SPEC_FIELDS: [&str; 9] = [
    "resource",
    "replicaRequirements",
    "replicas",
    "components",
    "schedulerName",
    "placement",
    "failover",
    "conflictResolution",
    "preserveResourcesOnDeletion",
];

/// Owned fields that an update of a ClusterResourceBinding leaves as they were at its creation, as
/// Karmada does.
const NAMESPACED_OWNED_SPEC_FIELDS: [&str; 3] = [
    "propagateDeps",
    "schedulePriority",
    "workloadAffinityGroups",
];

/// The binding that a template and its policy require.
#[derive(Clone, Debug)]
pub struct DesiredBinding {
    pub(crate) namespace: String,
    pub(crate) name: String,
    claim: PolicyClaim,
    owner: Value,
    finalizer: &'static str,
    /// The placement of the policy within the gate of the namespace.
    pub(crate) placement: Placement,
    /// The owned fields that are set.
    pub(crate) spec: Map<String, Value>,
    /// The policy's fields of `suspension`; null if there are none.
    suspension: Value,
    /// The value of the annotation that records the template's ReplicaSchedulingPreference.
    replica_preference: Option<String>,
}

/// The template's ReplicaSchedulingPreference; it is about replicas, and not about components.
fn counted_preference(findings: &InterpretedTemplate) -> Option<&ReplicaSchedulingPreferenceSpec> {
    match findings.replicas {
        InterpretedReplicas::Replicas(_) => findings.replica_preference.as_ref(),
        InterpretedReplicas::NotReplicated | InterpretedReplicas::Components(_) => None,
    }
}

/// The owned fields of the spec that are set.
fn desired_spec(
    served: &RestMapping,
    template: &Object,
    policy: &PropagationSpec,
    placement: &Placement,
    findings: &InterpretedTemplate,
) -> Result<Map<String, Value>, serde_json::Error> {
    let preference = counted_preference(findings);
    let resource = ObjectReference {
        api_version: served.api_version.clone(),
        kind: served.kind().to_owned(),
        namespace: template.namespace().to_owned(),
        name: template.name().to_owned(),
        uid: template.uid().to_owned(),
        resource_version: template.revision().to_string(),
    };
    let mut spec = Map::new();
    let mut set = |field: &str, value: Value| {
        if !value.is_null() && value != "" && value != json!(false) && value != json!(0) {
            spec.insert(field.to_owned(), value);
        }
    };
    set("resource", serde_json::to_value(resource)?);
    match &findings.replicas {
        InterpretedReplicas::NotReplicated => {}
        InterpretedReplicas::Replicas(replicas) => {
            let total = preference.map_or(replicas.count, |p| p.total_replicas);
            // Without replicas and requirements the binding would be that of no workload.
            let none_required = preference.map(|_| json!({}));
            let requirements = replicas.requirements.clone().or(none_required);
            set("replicas", total.into());
            set("replicaRequirements", requirements.into());
        }
        InterpretedReplicas::Components(components) if components.is_empty() => {}
        InterpretedReplicas::Components(components) => {
            set("components", serde_json::to_value(components)?);
        }
    }
    set("propagateDeps", policy.propagate_deps.into());
    set("schedulerName", policy.scheduler_name.as_str().into());
    set("placement", serde_json::to_value(placement)?);
    set("failover", policy.failover.clone().into());
    set(
        "conflictResolution",
        policy.conflict_resolution.as_str().into(),
    );
    let preserve = match is_orphaned_on_deletion(&template.annotations()) {
        true => Some(true),
        false => policy.preserve_resources_on_deletion,
    };
    if let Some(preserve) = preserve {
        spec.insert("preserveResourcesOnDeletion".into(), preserve.into());
    }
    if !template.namespace().is_empty() {
        if let Some(priority) = findings.priority {
            spec.insert("schedulePriority".into(), json!({"priority": priority}));
        }
        if findings.record_affinity_groups
            && let Some(groups) = workload_affinity_groups(placement, template.meta())
        {
            spec.insert("workloadAffinityGroups".into(), groups);
        }
    }
    Ok(spec)
}

impl DesiredBinding {
    pub fn new(
        served: &RestMapping,
        template: &Object,
        policy: &ParsedPolicy,
        claim: &PolicyClaim,
        findings: InterpretedTemplate,
    ) -> Result<Self, serde_json::Error> {
        let replica_preference = counted_preference(&findings)
            .map(serde_json::to_string)
            .transpose()?;
        let placement = &policy.view.spec.placement;
        let mut placement = match counted_preference(&findings) {
            Some(preference) => preference.effective_placement(placement),
            None => placement.clone(),
        };
        if let Some(clusters) = &findings.namespace_gate {
            placement.restrict_to(clusters);
        }
        let owner = json!({
            "apiVersion": served.api_version, "kind": served.kind(),
            "name": template.name(), "uid": template.uid(),
            "controller": true, "blockOwnerDeletion": true,
        });
        Ok(Self {
            namespace: template.namespace().to_owned(),
            name: names::binding_name(served.kind(), template.name()),
            claim: claim.clone(),
            owner,
            finalizer: if template.namespace().is_empty() {
                CLUSTER_BINDING_FINALIZER
            } else {
                BINDING_FINALIZER
            },
            spec: desired_spec(served, template, &policy.view.spec, &placement, &findings)?,
            placement,
            suspension: serde_json::to_value(&policy.view.spec.suspension)?,
            replica_preference,
        })
    }

    fn annotations(&self) -> Map<String, Value> {
        let mut annotations = self.claim.annotations();
        if let Some(preference) = &self.replica_preference {
            annotations.insert(REPLICA_PREFERENCE.into(), preference.as_str().into());
        }
        annotations
    }

    /// The new binding.
    pub fn to_new_binding(&self) -> Value {
        let kind = if self.namespace.is_empty() {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        };
        let mut metadata = json!({
            "name": self.name, "labels": self.claim.labels(),
            "annotations": self.annotations(),
            "finalizers": [self.finalizer], "ownerReferences": [self.owner],
        });
        if !self.namespace.is_empty() {
            metadata["namespace"] = self.namespace.as_str().into();
        }
        let mut spec = self.spec.clone();
        if !self.suspension.is_null() {
            spec.insert("suspension".into(), self.suspension.clone());
        }
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// Compares the existing binding with the desired one; fields of other owners stay as they are.
    pub fn diff(&self, existing: &Value) -> BindingDiff {
        let mut new = existing.clone();
        let metadata = &mut new["metadata"];
        merge_entries(&mut metadata["labels"], self.claim.labels());
        merge_entries(&mut metadata["annotations"], self.annotations());
        if self.replica_preference.is_none() {
            remove_key(&mut metadata["annotations"], REPLICA_PREFERENCE);
            remove_key(&mut metadata["annotations"], OBSERVED_CAPACITY);
        }
        if !self.claim.is_cluster_scoped() {
            remove_key(&mut metadata["labels"], CLUSTER_POLICY_ID);
            remove_key(&mut metadata["annotations"], CLUSTER_POLICY_NAME);
        }
        let finalizers = &mut metadata["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == self.finalizer)
        {
            list.push(self.finalizer.into());
        }
        metadata["ownerReferences"] = json!([self.owner]);
        self.update_spec(&mut new["spec"]);
        BindingDiff::between(existing, new)
    }

    fn update_spec(&self, spec: &mut Value) {
        if !spec.is_object() {
            *spec = json!({});
        }
        let Some(spec) = spec.as_object_mut() else {
            return;
        };
        let of_namespaces = if self.namespace.is_empty() {
            &[][..]
        } else {
            &NAMESPACED_OWNED_SPEC_FIELDS
        };
        for &field in OWNED_SPEC_FIELDS.iter().chain(of_namespaces) {
            match self.spec.get(field) {
                Some(value) => spec.insert(field.into(), value.clone()),
                None => spec.remove(field),
            };
        }
        // The policy does not own `suspension.scheduling`.
        let scheduling = spec
            .get("suspension")
            .and_then(|s| s.get("scheduling"))
            .cloned();
        let mut suspension = self.suspension.clone();
        if let Some(scheduling) = scheduling {
            if !suspension.is_object() {
                suspension = json!({});
            }
            suspension["scheduling"] = scheduling;
        }
        if suspension.is_null() {
            spec.remove("suspension");
        } else {
            spec.insert("suspension".into(), suspension);
        }
    }
}

/// The workload affinity groups of a template, read from its labels.
fn workload_affinity_groups(placement: &Placement, template: &ObjectMeta) -> Option<Value> {
    let affinity = placement.workload_affinity.as_ref()?;
    let of = |term: &Option<WorkloadAffinityTerm>| {
        let key = &term.as_ref()?.group_by_label_key;
        Some(format!("{key}={}", template.label(key)?))
    };
    let named = [
        ("affinityGroup", of(&affinity.affinity)),
        ("antiAffinityGroup", of(&affinity.anti_affinity)),
    ];
    let groups: Map<String, Value> = named
        .into_iter()
        .filter_map(|(field, group)| Some((field.to_owned(), group?.into())))
        .collect();
    (!groups.is_empty()).then_some(Value::Object(groups))
}

fn merge_entries(map: &mut Value, more: Map<String, Value>) {
    match map.as_object_mut() {
        Some(map) => map.extend(more),
        None => *map = Value::Object(more),
    }
}

fn remove_key(map: &mut Value, key: &str) {
    if let Some(map) = map.as_object_mut() {
        map.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interpreter::TemplateReplicas;
    use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME, POLICY_NAMESPACE};
    use machinery::{Gvk, Gvr};

    fn desired_binding(policy: Value, revision: &str) -> DesiredBinding {
        let template = json!({"metadata": {"name": "Web", "namespace": "n", "uid": "u", "resourceVersion": revision}});
        let findings = InterpretedTemplate {
            replicas: InterpretedReplicas::Replicas(TemplateReplicas {
                count: 2,
                requirements: Some(json!({"resourceRequest": {"cpu": "1"}})),
            }),
            ..InterpretedTemplate::default()
        };
        desired_binding_of(template, policy, findings)
    }

    fn desired_binding_of(
        template: Value,
        policy: Value,
        findings: InterpretedTemplate,
    ) -> DesiredBinding {
        let served = RestMapping {
            gvk: Gvk::from_static("apps", "v1", "Deployment"),
            gvr: Gvr::from_static("apps", "v1", "deployments"),
            api_version: "apps/v1".into(),
            namespaced: true,
        };
        let template = Object::from_value(&template).unwrap();
        let label = if template.namespace().is_empty() {
            CLUSTER_POLICY_ID
        } else {
            POLICY_ID
        };
        let policy = json!({"metadata": {"name": "p", "namespace": template.namespace(), "labels": {label: "1"}}, "spec": policy});
        let policy = ParsedPolicy::new(Object::from_value(&policy).unwrap()).unwrap();
        let claim = PolicyClaim::by_policy(&policy.object).unwrap();
        DesiredBinding::new(&served, &template, &policy, &claim, findings).unwrap()
    }

    // proves: DET-made, DET-owner
    #[test]
    fn a_new_binding_has_karmadas_form() {
        let policy = json!({"placement": {"clusterAffinity": {"clusterNames": ["m"]}}, "schedulerName": "default-scheduler",
            "conflictResolution": "Abort", "suspension": {"dispatching": true}, "preserveResourcesOnDeletion": false});
        assert_eq!(
            desired_binding(policy, "7").to_new_binding(),
            json!({
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {
                    "name": "web-deployment", "namespace": "n", "labels": {POLICY_ID: "1"},
                    "annotations": {POLICY_NAMESPACE: "n", POLICY_NAME: "p"},
                    "finalizers": ["karmada.io/binding-controller"],
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "Web", "uid": "u",
                                         "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": {
                    "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "Web", "uid": "u", "resourceVersion": "7"},
                    "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
                    "placement": {"clusterAffinity": {"clusterNames": ["m"]}}, "schedulerName": "default-scheduler",
                    "conflictResolution": "Abort", "suspension": {"dispatching": true}, "preserveResourcesOnDeletion": false,
                },
            })
        );
    }

    // proves: DET-update-none
    #[test]
    fn an_update_changes_owned_fields_only() {
        let mut existing =
            desired_binding(json!({"conflictResolution": "Abort"}), "7").to_new_binding();
        let same = |existing: &Value| {
            desired_binding(json!({"conflictResolution": "Abort"}), "7").diff(existing)
        };
        existing["spec"]["clusters"] = json!([{"name": "m"}]);
        existing["spec"]["requiredBy"] = json!([]);
        existing["metadata"]["labels"]["own"] = "x".into();
        assert_eq!(same(&existing), BindingDiff::Unchanged);
        let newer = desired_binding(json!({"conflictResolution": "Abort"}), "8").diff(&existing);
        let BindingDiff::ObjectVersion(newer) = newer else {
            panic!("{newer:?}")
        };
        assert_eq!(newer["spec"]["resource"]["resourceVersion"], "8");
        existing["spec"]["suspension"] = json!({"scheduling": true, "dispatching": true});
        existing["spec"]["failover"] = json!({});
        existing["metadata"]["labels"][CLUSTER_POLICY_ID] = "c".into();
        let BindingDiff::Changed(new) = same(&existing) else {
            panic!("no difference")
        };
        assert_eq!(new["spec"]["suspension"], json!({"scheduling": true}));
        assert_eq!(new["spec"].get("failover"), None);
        assert_eq!(new["spec"]["clusters"], json!([{"name": "m"}]));
        assert_eq!(
            new["metadata"]["labels"],
            json!({"own": "x", POLICY_ID: "1"})
        );
    }

    /// An existing binding with every field set, and the result of the update.
    // proves: DET-update-fields, DET-update-others, DET-update-merged
    #[test]
    fn an_update_replaces_owned_fields_and_keeps_the_others() {
        let before = json!({
            "metadata": {
                "name": "web-deployment", "namespace": "n", "labels": {"own": "1", POLICY_ID: "0"},
                "annotations": {"own": "1", POLICY_NAME: "old", CLUSTER_POLICY_NAME: "c"},
                "finalizers": ["own"], "ownerReferences": [{"uid": "other"}],
            },
            "spec": {
                "resource": {"uid": "before"}, "replicas": 9, "replicaRequirements": {"resourceRequest": {"cpu": "9"}},
                "components": [{"name": "x"}], "propagateDeps": true, "schedulerName": "other", "placement": {"spreadConstraints": []},
                "failover": {}, "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true,
                "schedulePriority": {"priority": 9}, "workloadAffinityGroups": {"affinityGroup": "a=b"},
                "suspension": {"dispatching": true, "scheduling": true},
                "clusters": [{"name": "m"}], "gracefulEvictionTasks": [{"fromCluster": "x"}],
                "requiredBy": [{"name": "r"}], "rescheduleTriggeredAt": "2026-01-01T00:00:00Z",
            },
            "status": {"schedulerObservedGeneration": 1},
        });
        let policy = json!({"schedulerName": "default-scheduler", "conflictResolution": "Abort"});
        let BindingDiff::Changed(after) = desired_binding(policy, "7").diff(&before) else {
            panic!("no difference")
        };
        assert_eq!(
            after,
            json!({
                "metadata": {
                    "name": "web-deployment", "namespace": "n", "labels": {"own": "1", POLICY_ID: "1"},
                    "annotations": {"own": "1", POLICY_NAMESPACE: "n", POLICY_NAME: "p"},
                    "finalizers": ["own", "karmada.io/binding-controller"],
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "Web", "uid": "u",
                                         "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": {
                    "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "Web", "uid": "u", "resourceVersion": "7"},
                    "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}, "placement": {},
                    "schedulerName": "default-scheduler", "conflictResolution": "Abort",
                    "suspension": {"scheduling": true},
                    "clusters": [{"name": "m"}], "gracefulEvictionTasks": [{"fromCluster": "x"}],
                    "requiredBy": [{"name": "r"}], "rescheduleTriggeredAt": "2026-01-01T00:00:00Z",
                },
                "status": {"schedulerObservedGeneration": 1},
            })
        );
    }

    // proves: DET-workload-groups
    #[test]
    fn workload_affinity_groups_follow_from_template_labels() {
        let template =
            |labels: Value| json!({"metadata": {"name": "a", "namespace": "n", "labels": labels}});
        let both = json!({"affinity": {"groupByLabelKey": "app"}, "antiAffinity": {"groupByLabelKey": "tier"}});
        let one = json!({"affinity": {"groupByLabelKey": "app"}});
        for (affinity, labels, grouped, expected) in [
            (
                &both,
                json!({"app": "x", "tier": "y"}),
                true,
                json!({"affinityGroup": "app=x", "antiAffinityGroup": "tier=y"}),
            ),
            (
                &both,
                json!({"tier": ""}),
                true,
                json!({"antiAffinityGroup": "tier="}),
            ),
            (&both, json!({}), true, Value::Null),
            (
                &one,
                json!({"app": "x", "tier": "y"}),
                true,
                json!({"affinityGroup": "app=x"}),
            ),
            (&both, json!({"app": "x"}), false, Value::Null),
            (&Value::Null, json!({"app": "x"}), true, Value::Null),
        ] {
            let policy = json!({"placement": {"workloadAffinity": affinity}});
            let findings = InterpretedTemplate {
                record_affinity_groups: grouped,
                ..InterpretedTemplate::default()
            };
            let binding =
                desired_binding_of(template(labels.clone()), policy, findings).to_new_binding();
            assert_eq!(
                binding["spec"]["workloadAffinityGroups"], expected,
                "{affinity} {labels}"
            );
        }
    }

    // proves: DET-wide-update
    #[test]
    fn a_cluster_binding_keeps_some_fields_of_its_creation() {
        let policy = |context: bool| json!({"propagateDeps": context, "schedulerName": "s", "placement": {"workloadAffinity": {"affinity": {"groupByLabelKey": "app"}}}});
        let findings = |priority: i64| InterpretedTemplate {
            priority: Some(priority),
            record_affinity_groups: true,
            ..InterpretedTemplate::default()
        };
        let of_cluster = json!({"metadata": {"name": "a", "uid": "u", "labels": {"app": "x"}}});
        let created = desired_binding_of(of_cluster.clone(), policy(true), findings(7));
        let created = created.to_new_binding();
        assert_eq!(created["kind"], "ClusterResourceBinding");
        assert_eq!(created["spec"]["propagateDeps"], true);
        assert_eq!(created["spec"].get("schedulePriority"), None);
        assert_eq!(created["spec"].get("workloadAffinityGroups"), None);
        let later = desired_binding_of(of_cluster, policy(false), findings(8)).diff(&created);
        assert_eq!(later, BindingDiff::Unchanged);

        let mut local = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"app": "x"}}});
        let created = desired_binding_of(local.clone(), policy(true), findings(0)).to_new_binding();
        assert_eq!(created["spec"]["schedulePriority"], json!({"priority": 0}));
        local["metadata"]["labels"]["app"] = "y".into();
        let later = desired_binding_of(local, policy(false), findings(8)).diff(&created);
        let BindingDiff::Changed(later) = later else {
            panic!("{later:?}")
        };
        assert_eq!(later["spec"].get("propagateDeps"), None);
        assert_eq!(later["spec"]["schedulePriority"], json!({"priority": 8}));
        assert_eq!(
            later["spec"]["workloadAffinityGroups"],
            json!({"affinityGroup": "app=y"})
        );
    }

    // proves: DET-keeps-scheduling-suspension, DET-suspension
    #[test]
    fn suspended_scheduling_survives_a_policy_update() {
        for (policy, existing, expected) in [
            (
                json!({"dispatching": true}),
                Value::Null,
                json!({"dispatching": true}),
            ),
            (
                json!({"dispatching": true}),
                json!({"scheduling": true}),
                json!({"dispatching": true, "scheduling": true}),
            ),
            (
                json!({}),
                json!({"dispatching": true, "scheduling": false}),
                json!({"scheduling": false}),
            ),
            (json!({}), Value::Null, json!({})),
            (
                Value::Null,
                json!({"dispatching": true, "scheduling": true}),
                json!({"scheduling": true}),
            ),
            (Value::Null, json!({"dispatching": true}), Value::Null),
        ] {
            let policy_binding = desired_binding(json!({"suspension": policy}), "7");
            let mut binding = policy_binding.to_new_binding();
            binding["spec"]["suspension"] = existing.clone();
            let after = match policy_binding.diff(&binding) {
                BindingDiff::Unchanged => binding,
                BindingDiff::ObjectVersion(after) | BindingDiff::Changed(after) => after,
            };
            assert_eq!(after["spec"]["suspension"], expected, "{policy} {existing}");
        }
    }
}
