//! Typed views of PropagationPolicy and OverridePolicy, and of their cluster-scoped kinds,
//! which have the same spec.

use machinery::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::affinity::{ApiLabelSelector, ClusterAffinity};
use super::placement::Placement;

/// Karmada's implicit priority of a selector: how specifically it selects a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImplicitPriority {
    Mismatch,
    /// Selects all resources of the kind.
    MatchAll,
    MatchLabelSelector,
    MatchName,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSelector {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<ApiLabelSelector>,
}

/// A selector with compiled labels, for many objects.
#[derive(Debug)]
pub struct CompiledResourceSelector<'a> {
    selector: &'a ResourceSelector,
    /// `Err`: an invalid selector, which matches nothing.
    labels: Option<Result<LabelSelector, String>>,
}

impl CompiledResourceSelector<'_> {
    /// The implicit priority for an object.
    pub fn implicit_priority(
        &self,
        api_version: &str,
        kind: &str,
        head: &machinery::ObjectMeta,
    ) -> ImplicitPriority {
        self.selector
            .implicit_priority_by(api_version, kind, head, || match &self.labels {
                None => ImplicitPriority::MatchAll,
                Some(Ok(labels)) if labels.matches(|key| head.label(key)) => {
                    ImplicitPriority::MatchLabelSelector
                }
                Some(_) => ImplicitPriority::Mismatch,
            })
    }
}

impl ResourceSelector {
    /// Compiles the label selector.
    pub fn compile(&self) -> CompiledResourceSelector<'_> {
        let labels = self.label_selector.as_ref();
        CompiledResourceSelector {
            selector: self,
            labels: labels.map(ApiLabelSelector::compile),
        }
    }

    /// The implicit priority for an object.
    pub fn implicit_priority(
        &self,
        api_version: &str,
        kind: &str,
        head: &machinery::ObjectMeta,
    ) -> ImplicitPriority {
        self.implicit_priority_by(api_version, kind, head, || {
            let Some(labels) = &self.label_selector else {
                return ImplicitPriority::MatchAll;
            };
            match labels.compile() {
                Ok(labels) if labels.matches(|key| head.label(key)) => {
                    ImplicitPriority::MatchLabelSelector
                }
                _ => ImplicitPriority::Mismatch,
            }
        })
    }

    /// Calls `by_labels` if the selector has no name.
    fn implicit_priority_by(
        &self,
        api_version: &str,
        kind: &str,
        head: &machinery::ObjectMeta,
        by_labels: impl FnOnce() -> ImplicitPriority,
    ) -> ImplicitPriority {
        if self.api_version != api_version
            || self.kind != kind
            || !(self.namespace.is_empty() || self.namespace == *head.namespace)
        {
            return ImplicitPriority::Mismatch;
        }
        match self.name.as_str() {
            "" => by_labels(),
            name if *name == *head.name => ImplicitPriority::MatchName,
            _ => ImplicitPriority::Mismatch,
        }
    }
}

/// The highest implicit priority of several selectors.
pub fn highest_implicit_priority(
    selectors: &[ResourceSelector],
    api_version: &str,
    kind: &str,
    head: &machinery::ObjectMeta,
) -> ImplicitPriority {
    selectors
        .iter()
        .map(|s| s.implicit_priority(api_version, kind, head))
        .max()
        .unwrap_or(ImplicitPriority::Mismatch)
}

/// PropagationPolicy and ClusterPropagationPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PropagationPolicy {
    pub spec: PropagationSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PropagationSpec {
    pub resource_selectors: Vec<ResourceSelector>,
    pub propagate_deps: bool,
    pub placement: Placement,
    pub priority: i64,
    /// `Always` or `Never`.
    pub preemption: String,
    pub dependent_overrides: Vec<String>,
    pub scheduler_name: String,
    /// Copied unchanged from the policy to the binding.
    pub failover: Option<Value>,
    pub conflict_resolution: String,
    /// `Lazy` or nothing.
    pub activation_preference: String,
    pub suspension: Option<Suspension>,
    pub preserve_resources_on_deletion: Option<bool>,
    pub schedule_priority: Option<SchedulePriority>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    /// For bindings only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
}

impl Suspension {
    /// Whether dispatching to a cluster is suspended.
    pub fn suspends(&self, cluster: &str) -> bool {
        let listed = |s: &SuspendClusters| s.cluster_names.iter().any(|n| n == cluster);
        self.dispatching == Some(true) || self.dispatching_on_clusters.as_ref().is_some_and(listed)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendClusters {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulePriority {
    pub priority_class_source: String,
    pub priority_class_name: String,
}

/// OverridePolicy and ClusterOverridePolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OverridePolicy {
    pub spec: OverrideSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSpec {
    /// Empty: selects all resources.
    pub resource_selectors: Vec<ResourceSelector>,
    pub override_rules: Vec<RuleWithCluster>,
    /// The deprecated form of a single rule, with `overriders`.
    pub target_cluster: Option<ClusterAffinity>,
    pub overriders: Overriders,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleWithCluster {
    pub target_cluster: Option<ClusterAffinity>,
    pub overriders: Overriders,
}

/// Serializes as in Go: an annotation of the Work records it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overriders {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandArgsOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandArgsOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaintextOverrider {
    pub path: String,
    /// `add`, `remove` or `replace`.
    pub operator: String,
    /// Serialized as null if absent, as Karmada's clients do.
    pub value: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageOverrider {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// `Registry`, `Repository` or `Tag`.
    pub component: String,
    pub operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImagePredicate {
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandArgsOverrider {
    pub container_name: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelAnnotationOverrider {
    pub operator: String,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub value: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldOverrider {
    pub field_path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<FieldPatchOperation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<FieldPatchOperation>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldPatchOperation {
    pub sub_path: String,
    pub operator: String,
    /// Serialized as null if absent, as Karmada's clients do.
    pub value: Value,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: DET-match, DET-match-name
    #[test]
    fn a_name_precedes_labels_and_labels_precede_the_kind() {
        let object = machinery::Object::from_value(
            &json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "1"}}}),
        )
        .unwrap();
        let check = |selector: Value, expected: ImplicitPriority| {
            let mut all = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            if let (Some(all), Some(extra_fields)) = (all.as_object_mut(), selector.as_object()) {
                all.extend(extra_fields.clone());
            }
            let parsed: ResourceSelector = serde_json::from_value(all).unwrap();
            assert_eq!(
                parsed
                    .compile()
                    .implicit_priority("v1", "ConfigMap", object.meta()),
                expected,
                "{selector}"
            );
            assert_eq!(
                parsed.implicit_priority("v1", "ConfigMap", object.meta()),
                expected,
                "{selector}"
            );
        };
        check(json!({}), ImplicitPriority::MatchAll);
        check(json!({"name": "a"}), ImplicitPriority::MatchName);
        check(
            json!({"name": "a", "labelSelector": {"matchLabels": {"x": "2"}}}),
            ImplicitPriority::MatchName,
        );
        check(json!({"name": "b"}), ImplicitPriority::Mismatch);
        check(
            json!({"namespace": "m", "name": "a"}),
            ImplicitPriority::Mismatch,
        );
        check(
            json!({"labelSelector": {"matchLabels": {"x": "1"}}}),
            ImplicitPriority::MatchLabelSelector,
        );
        check(json!({"namespace": "n"}), ImplicitPriority::MatchAll);
        check(json!({"kind": "Secret"}), ImplicitPriority::Mismatch);
        check(json!({"apiVersion": "v2"}), ImplicitPriority::Mismatch);
        let invalid = json!({"matchExpressions": [{"key": "x", "operator": "Near"}]});
        check(
            json!({"labelSelector": invalid}),
            ImplicitPriority::Mismatch,
        );
    }

    // proves: DET-match-closest
    #[test]
    fn the_highest_implicit_priority_counts() {
        let object = machinery::Object::from_value(&json!({"metadata": {"name": "a"}})).unwrap();
        let selectors = |all: Value| -> Vec<ResourceSelector> {
            let mut all = all;
            for selector in all.as_array_mut().into_iter().flatten() {
                selector["apiVersion"] = "v1".into();
                selector["kind"] = "X".into();
            }
            serde_json::from_value(all).unwrap()
        };
        for (all, expected) in [
            (json!([]), ImplicitPriority::Mismatch),
            (json!([{"name": "b"}]), ImplicitPriority::Mismatch),
            (json!([{}, {"name": "b"}]), ImplicitPriority::MatchAll),
            (
                json!([{}, {"labelSelector": {}}]),
                ImplicitPriority::MatchLabelSelector,
            ),
            (
                json!([{"name": "a"}, {}, {"name": "b"}]),
                ImplicitPriority::MatchName,
            ),
        ] {
            let actual =
                highest_implicit_priority(&selectors(all.clone()), "v1", "X", object.meta());
            assert_eq!(actual, expected, "{all}");
        }
    }
}
