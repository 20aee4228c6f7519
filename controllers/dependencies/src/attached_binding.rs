//! Builds attached bindings, and merges the preferences of the independent bindings that need them.

use controller_context::{BindingDiff, set_metadata_entry};
use flotilla_runtime::RestMapping;
use karmada_api::binding::ObjectReference;
use karmada_api::well_known_keys::{BINDING_FINALIZER, BINDING_ID, DEPENDED_BY_PREFIX};
use karmada_api::{DependentObjectReference, ResourceBindingSpec, names};
use machinery::{Object, ObjectMeta};
use serde_json::{Value, json};

/// A binding whose template refers to other objects.
#[derive(Clone, Debug)]
pub(crate) struct IndependentBinding {
    pub(crate) namespace: String,
    name: String,
    id: String,
    /// `spec.clusters` of the binding.
    clusters: Value,
    preferences: DependencyPreferences,
}

/// The preferences of an independent binding that apply to its dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DependencyPreferences {
    overwrite: bool,
    preserve: bool,
}

impl DependencyPreferences {
    pub(crate) fn from_spec(spec: &ResourceBindingSpec) -> Self {
        Self {
            overwrite: spec.conflict_resolution == "Overwrite",
            preserve: spec.preserve_resources_on_deletion == Some(true),
        }
    }
}

/// The merged preferences: `Overwrite` and `true` prevail.
#[derive(Debug, PartialEq, Eq)]
struct MergedPreferences {
    conflict_resolution: &'static str,
    preserve: bool,
    /// The text of the conflict, if the preferences differ.
    conflict: Option<String>,
}

fn merge_preferences(wishes: &[DependencyPreferences]) -> MergedPreferences {
    let differ =
        |of: fn(&DependencyPreferences) -> bool| wishes.iter().any(of) && !wishes.iter().all(of);
    let mut conflicts = Vec::new();
    if differ(|w| w.overwrite) {
        conflicts.push("ConflictResolution conflicted (Overwrite vs Abort)");
    }
    if differ(|w| w.preserve) {
        conflicts.push("PreserveResourcesOnDeletion conflicted (true vs false)");
    }
    let conflict = format!(
        "Dependency policy conflict detected: {}.",
        conflicts.join("; ")
    );
    MergedPreferences {
        conflict_resolution: if wishes.iter().any(|w| w.overwrite) {
            "Overwrite"
        } else {
            "Abort"
        },
        preserve: wishes.iter().any(|w| w.preserve),
        conflict: (!conflicts.is_empty()).then_some(conflict),
    }
}

/// The required change, and the text of the conflict between the preferences.
pub(crate) type AttachedBindingUpdate = (BindingDiff, Option<String>);

/// The existing binding belongs to an earlier object of the same name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnerMismatch;

impl IndependentBinding {
    pub(crate) fn from_binding(
        binding: &Object,
        spec: &ResourceBindingSpec,
    ) -> Result<Self, serde_json::Error> {
        let head = binding.meta();
        Ok(Self {
            namespace: head.namespace.to_string(),
            name: head.name.to_string(),
            id: head.label(BINDING_ID).unwrap_or_default().to_owned(),
            clusters: serde_json::to_value(&spec.clusters)?,
            preferences: DependencyPreferences::from_spec(spec),
        })
    }

    /// The `depended-by` label key of the bindings that are attached to this one.
    fn depended_by_label(&self) -> String {
        let key = names::binding_reference_key(&self.namespace, &self.name);
        format!("{DEPENDED_BY_PREFIX}{key}")
    }

    /// The label's key and value as they are indexed.
    pub(crate) fn depended_by_index_key(&self) -> String {
        depended_by_index_key(&self.depended_by_label(), &self.id)
    }

    fn binding_snapshot(&self) -> Value {
        let mut snapshot = json!({"namespace": self.namespace, "name": self.name});
        if self.clusters.as_array().is_some_and(|c| !c.is_empty()) {
            snapshot["clusters"] = self.clusters.clone();
        }
        snapshot
    }

    fn matches_snapshot(&self, snapshot: &Value) -> bool {
        snapshot["namespace"] == *self.namespace && snapshot["name"] == *self.name
    }

    /// Fails if a dependency is not of the binding's namespace: a binding propagates nothing of
    /// another one.
    pub(crate) fn check_dependency(
        &self,
        served: &RestMapping,
        dependency: &DependentObjectReference,
    ) -> Result<(), String> {
        if served.namespaced && dependency.namespace == self.namespace {
            return Ok(());
        }
        let DependentObjectReference {
            kind,
            namespace,
            name,
            ..
        } = dependency;
        Err(format!(
            "the dependency {kind} {namespace}/{name} is not propagated, because it is not of the namespace {}",
            self.namespace
        ))
    }

    /// The new attached binding of an object.
    pub(crate) fn new_attached_binding(&self, served: &RestMapping, object: &Object) -> Value {
        let agreed = merge_preferences(&[self.preferences]);
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": names::binding_name(served.kind(), object.name()), "namespace": self.namespace,
                "labels": {self.depended_by_label(): self.id}, "finalizers": [BINDING_FINALIZER],
                "ownerReferences": [{
                    "apiVersion": served.api_version, "kind": served.kind(),
                    "name": object.name(), "uid": object.uid(),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "resource": object_reference(served, object), "requiredBy": [self.binding_snapshot()],
                "conflictResolution": agreed.conflict_resolution,
                "preserveResourcesOnDeletion": agreed.preserve,
            },
        })
    }

    /// Adds this independent binding to an existing binding. `wish_of` returns the preferences of
    /// the other independent bindings, by namespace and name, if they exist.
    pub(crate) fn attach(
        &self,
        existing: &Value,
        served: &RestMapping,
        object: &Object,
        wish_of: impl Fn(&str, &str) -> Option<DependencyPreferences>,
    ) -> Result<AttachedBindingUpdate, OwnerMismatch> {
        let owners = existing["metadata"]["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|o| o["controller"] == true);
        if owner.is_some_and(|owner| owner["uid"] != *object.uid()) {
            return Err(OwnerMismatch);
        }
        let mut body = existing.clone();
        set_metadata_entry(&mut body, "labels", &self.depended_by_label(), &self.id);
        let mut required = required_by(existing);
        match required.iter_mut().find(|s| self.matches_snapshot(s)) {
            Some(snapshot) => *snapshot = self.binding_snapshot(),
            None => required.push(self.binding_snapshot()),
        }
        let wishes = self.all_preferences(&required, wish_of);
        let spec = &mut body["spec"];
        spec["requiredBy"] = required.into();
        let conflict = write_preferences(spec, &wishes);
        spec["resource"] = object_reference(served, object);
        Ok((BindingDiff::between(existing, body), conflict))
    }

    /// Removes this independent binding from an attached binding.
    pub(crate) fn detach(
        &self,
        existing: &Value,
        wish_of: impl Fn(&str, &str) -> Option<DependencyPreferences>,
    ) -> Value {
        let mut body = existing.clone();
        let labels = body.pointer_mut("/metadata/labels");
        if let Some(labels) = labels.and_then(Value::as_object_mut) {
            labels.remove(&self.depended_by_label());
        }
        let mut required = required_by(existing);
        required.retain(|snapshot| !self.matches_snapshot(snapshot));
        let wishes = self.all_preferences(&required, wish_of);
        let spec = &mut body["spec"];
        if !required.is_empty() {
            spec["requiredBy"] = required.into();
            write_preferences(spec, &wishes);
            return body;
        }
        let own = if has_placement(spec) {
            &["requiredBy"][..]
        } else {
            &[
                "requiredBy",
                "conflictResolution",
                "preserveResourcesOnDeletion",
            ]
        };
        if let Some(spec) = spec.as_object_mut() {
            own.iter().for_each(|field| drop(spec.remove(*field)));
        }
        body
    }

    fn all_preferences(
        &self,
        required: &[Value],
        wish_of: impl Fn(&str, &str) -> Option<DependencyPreferences>,
    ) -> Vec<DependencyPreferences> {
        let text = |snapshot: &Value, field: &str| snapshot[field].as_str().map(str::to_owned);
        let wish = |snapshot: &Value| {
            if self.matches_snapshot(snapshot) {
                return Some(self.preferences);
            }
            let namespace = text(snapshot, "namespace").unwrap_or_default();
            wish_of(&namespace, &text(snapshot, "name")?)
        };
        required.iter().filter_map(wish).collect()
    }
}

/// Writes the merged preferences unless a policy has set them; returns the text of the conflict.
fn write_preferences(spec: &mut Value, wishes: &[DependencyPreferences]) -> Option<String> {
    if has_placement(spec) {
        return None;
    }
    let agreed = merge_preferences(wishes);
    spec["conflictResolution"] = agreed.conflict_resolution.into();
    spec["preserveResourcesOnDeletion"] = agreed.preserve.into();
    agreed.conflict
}

fn has_placement(spec: &Value) -> bool {
    spec.get("placement").is_some_and(|p| !p.is_null())
}

fn required_by(binding: &Value) -> Vec<Value> {
    let list = binding["spec"]["requiredBy"].as_array();
    list.cloned().unwrap_or_default()
}

fn object_reference(served: &RestMapping, object: &Object) -> Value {
    let reference = ObjectReference {
        api_version: served.api_version.clone(),
        kind: served.kind().to_owned(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.revision().to_string(),
    };
    json!(reference)
}

fn depended_by_index_key(label: &str, id: &str) -> String {
    format!("{label}={id}")
}

/// The index keys of an attached binding.
pub(crate) fn depended_by_index_keys(binding: &Object) -> Vec<String> {
    let labels = binding.meta().labels.iter();
    labels
        .filter(|(key, _)| key.starts_with(DEPENDED_BY_PREFIX))
        .map(|(key, id)| depended_by_index_key(key, id))
        .collect()
}

/// Whether no dependency refers to the object of an attached binding any more; `head` is the
/// object's metadata, if the object exists.
pub(crate) fn is_orphan(
    of: &ObjectReference,
    head: Option<&ObjectMeta>,
    dependencies: &[DependentObjectReference],
) -> Result<bool, String> {
    for one in dependencies {
        if !one.refers_to_kind(&of.api_version, &of.kind, &of.namespace) {
            continue;
        }
        let meant = match one.compile_label_selector()? {
            Some(labels) => head.is_some_and(|head| labels.matches(|key| head.label(key))),
            None => one.name == of.name,
        };
        if meant {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::{Gvk, Gvr};

    fn secrets() -> RestMapping {
        RestMapping {
            gvk: Gvk::from_static("", "v1", "Secret"),
            gvr: Gvr::from_static("", "v1", "secrets"),
            api_version: "v1".into(),
            namespaced: true,
        }
    }

    fn secret(version: &str) -> Object {
        let value = json!({"metadata": {"name": "S:1", "namespace": "n", "uid": "u", "resourceVersion": version}});
        Object::from_value(&value).unwrap()
    }

    fn independent_binding(name: &str, cluster: &str, spec: Value) -> IndependentBinding {
        let mut all = json!({"clusters": [{"name": cluster, "replicas": 2}]});
        all.as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let binding = json!({"metadata": {"name": name, "namespace": "n", "labels": {BINDING_ID: format!("id-{name}")}}});
        let binding = Object::from_value(&binding).unwrap();
        IndependentBinding::from_binding(&binding, &serde_json::from_value(all).unwrap()).unwrap()
    }

    fn no_preferences(_: &str, _: &str) -> Option<DependencyPreferences> {
        None
    }

    fn expect_changed(
        joined: Result<AttachedBindingUpdate, OwnerMismatch>,
    ) -> (Value, Option<String>) {
        match joined {
            Ok((BindingDiff::Changed(body), conflict)) => (body, conflict),
            other => panic!("{other:?}"),
        }
    }

    // proves: DEP-attached, DEP-required-by
    #[test]
    fn an_attached_binding_has_karmadas_form() {
        let attached = independent_binding("web-deployment", "m1", json!({}))
            .new_attached_binding(&secrets(), &secret("7"));
        let key = names::binding_reference_key("n", "web-deployment");
        assert_eq!(
            attached,
            json!({
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {
                    "name": "s.1-secret", "namespace": "n",
                    "labels": {format!("resourcebinding.karmada.io/depended-by-{key}"): "id-web-deployment"},
                    "finalizers": ["karmada.io/binding-controller"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "S:1", "uid": "u",
                                         "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": {
                    "resource": {"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "S:1", "uid": "u", "resourceVersion": "7"},
                    "requiredBy": [{"namespace": "n", "name": "web-deployment", "clusters": [{"name": "m1", "replicas": 2}]}],
                    "conflictResolution": "Abort", "preserveResourcesOnDeletion": false,
                },
            })
        );
        let placed_nowhere =
            independent_binding("a", "m1", json!({"clusters": []})).binding_snapshot();
        assert_eq!(placed_nowhere, json!({"namespace": "n", "name": "a"}));
    }

    // proves: DEP-own-namespace
    #[test]
    fn a_dependency_of_another_namespace_is_refused() {
        let referrer = independent_binding("a", "m1", json!({}));
        let check = |namespaced: bool, namespace: &str, expected: bool| {
            let served = RestMapping {
                namespaced,
                ..secrets()
            };
            let dependency = DependentObjectReference {
                kind: "Secret".into(),
                namespace: namespace.into(),
                ..DependentObjectReference::default()
            };
            let allowed = referrer.check_dependency(&served, &dependency).is_ok();
            assert_eq!(allowed, expected, "{namespaced} {namespace:?}");
        };
        check(true, "n", true);
        check(true, "kube-system", false);
        check(true, "", false);
        check(false, "n", false);
        check(false, "", false);
    }

    // proves: DEP-shared, DEP-required-by, DEP-conflict-resolution, DEP-preserve, DEP-conflict-warning, DEP-last-leaves
    #[test]
    fn independent_bindings_attach_and_detach() {
        let first = independent_binding("a", "m1", json!({}));
        let second = independent_binding("b", "m2", json!({"conflictResolution": "Overwrite"}));
        let attached = first.new_attached_binding(&secrets(), &secret("7"));
        let wish_of = |_: &str, name: &str| (name == "a").then_some(first.preferences);
        let (both, conflict) =
            expect_changed(second.attach(&attached, &secrets(), &secret("7"), wish_of));
        assert_eq!(
            both["spec"]["requiredBy"],
            json!([first.binding_snapshot(), second.binding_snapshot()])
        );
        assert_eq!(both["spec"]["conflictResolution"], "Overwrite");
        assert_eq!(
            conflict.as_deref(),
            Some(
                "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort)."
            )
        );
        let again = second.attach(&both, &secrets(), &secret("7"), wish_of);
        assert_eq!(
            again,
            Ok((BindingDiff::Unchanged, conflict)),
            "reported again"
        );

        let moved = independent_binding("a", "m3", json!({"preserveResourcesOnDeletion": true}));
        let wish_of = |_: &str, name: &str| (name == "b").then_some(second.preferences);
        let (moved_to, conflict) =
            expect_changed(moved.attach(&both, &secrets(), &secret("7"), wish_of));
        assert_eq!(
            moved_to["spec"]["requiredBy"],
            json!([moved.binding_snapshot(), second.binding_snapshot()])
        );
        assert_eq!(moved_to["spec"]["preserveResourcesOnDeletion"], true);
        assert!(conflict.is_some_and(|c| c.ends_with(
            "(Overwrite vs Abort); PreserveResourcesOnDeletion conflicted (true vs false)."
        )));

        let one_left = moved.detach(&moved_to, wish_of);
        assert_eq!(
            one_left["spec"]["requiredBy"],
            json!([second.binding_snapshot()])
        );
        assert_eq!(one_left["spec"]["conflictResolution"], "Overwrite");
        assert_eq!(one_left["spec"]["preserveResourcesOnDeletion"], false);
        let labels = one_left["metadata"]["labels"].as_object().unwrap();
        assert_eq!(labels.len(), 1);
        let none_left = second.detach(&one_left, no_preferences);
        assert_eq!(
            none_left["spec"],
            json!({"resource": attached["spec"]["resource"]})
        );
        assert_eq!(none_left["metadata"]["labels"], json!({}));
    }

    // proves: DEP-gone-referrer
    #[test]
    fn deleted_bindings_have_no_preferences() {
        let first = independent_binding("a", "m1", json!({"conflictResolution": "Overwrite"}));
        let attached = first.new_attached_binding(&secrets(), &secret("7"));
        let second = independent_binding("b", "m2", json!({}));
        let (both, conflict) =
            expect_changed(second.attach(&attached, &secrets(), &secret("7"), no_preferences));
        assert_eq!(both["spec"]["conflictResolution"], "Abort");
        assert_eq!(conflict, None);
    }

    // proves: DEP-own-policy
    #[test]
    fn a_binding_with_a_policy_keeps_the_policys_preferences() {
        let binding = json!({"metadata": {"name": "s.1-secret", "namespace": "n"},
            "spec": {"placement": {}, "clusters": [{"name": "m9"}], "conflictResolution": "Abort", "resource": {}}});
        let independent =
            independent_binding("a", "m1", json!({"conflictResolution": "Overwrite"}));
        let (body, conflict) =
            expect_changed(independent.attach(&binding, &secrets(), &secret("7"), no_preferences));
        assert_eq!(body["spec"]["conflictResolution"], "Abort");
        assert_eq!(body["spec"].get("preserveResourcesOnDeletion"), None);
        assert_eq!(body["spec"]["clusters"], binding["spec"]["clusters"]);
        assert_eq!(
            body["spec"]["requiredBy"],
            json!([independent.binding_snapshot()])
        );
        assert_eq!(conflict, None);
        let left = independent.detach(&body, no_preferences);
        assert_eq!(left["spec"]["conflictResolution"], "Abort");
        assert_eq!(left["spec"].get("requiredBy"), None);
    }

    // proves: DEP-foreign
    #[test]
    fn versions_and_owners_are_distinguished() {
        let independent = independent_binding("a", "m1", json!({}));
        let attached = independent.new_attached_binding(&secrets(), &secret("7"));
        let newer = independent.attach(&attached, &secrets(), &secret("8"), no_preferences);
        let Ok((BindingDiff::ObjectVersion(newer), None)) = newer else {
            panic!("{newer:?}")
        };
        assert_eq!(newer["spec"]["resource"]["resourceVersion"], "8");
        let another = json!({"metadata": {"name": "S:1", "namespace": "n", "uid": "v"}});
        let another = Object::from_value(&another).unwrap();
        let actual = independent.attach(&attached, &secrets(), &another, no_preferences);
        assert_eq!(actual, Err(OwnerMismatch));
    }

    // proves: DEP-orphan
    #[test]
    fn an_object_that_no_dependency_matches_is_an_orphan() {
        let dependency =
            |value: Value| serde_json::from_value::<DependentObjectReference>(value).unwrap();
        let named = |name: &str| {
            dependency(
                json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": name}),
            )
        };
        let labelled = dependency(
            json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n",
            "labelSelector": {"matchLabels": {"a": "b"}}}),
        );
        let elsewhere = dependency(
            json!({"apiVersion": "v1", "kind": "Secret", "namespace": "m", "name": "s"}),
        );
        let of = ObjectReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: "n".into(),
            name: "s".into(),
            ..ObjectReference::default()
        };
        let head = |labels: Value| {
            Object::from_value(&json!({"metadata": {"name": "s", "labels": labels}})).unwrap()
        };
        let check =
            |dependencies: &[DependentObjectReference], object: Option<Object>, orphan: bool| {
                let actual = is_orphan(&of, object.as_ref().map(Object::meta), dependencies);
                assert_eq!(actual, Ok(orphan), "{dependencies:?}");
            };
        check(&[], None, true);
        check(&[named("t"), named("s")], None, false);
        check(&[named("t"), elsewhere], None, true);
        let labelled = [labelled];
        check(&labelled, None, true);
        check(&labelled, Some(head(json!({"a": "b"}))), false);
        check(&labelled, Some(head(json!({"a": "c"}))), true);
    }
}
