//! Filters the informer events of the dependencies distributor: finds the bindings that a changed
//! object affects, and decides which changes of bindings are reconciled.

use client::InformerEvent;
use controller_context::is_equal_except_status;
use flotilla_runtime::{RestMapping, is_generation_or_deletion_changed};
use karmada_api::well_known_keys::{DEPENDENCIES, DEPENDENCIES_FINALIZER};
use karmada_api::{DependentObjectReference, ResourceBinding, dependency};
use machinery::Object;

/// The dependencies that a binding's annotation records.
fn recorded_dependencies(binding: &Object) -> Vec<DependentObjectReference> {
    let Ok(view) = binding.decode::<ResourceBinding>() else {
        return Vec::new();
    };
    let recorded = view.metadata.annotations.get(DEPENDENCIES);
    let recorded = recorded.and_then(|text| dependency::parse_annotation(text).ok());
    recorded.unwrap_or_default()
}

/// `name` is empty where a dependency selects by labels.
fn dependency_index_key(api_version: &str, kind: &str, namespace: &str, name: &str) -> String {
    format!("{api_version}|{kind}|{namespace}|{name}")
}

/// The index keys of a binding: one per dependency.
pub(crate) fn dependency_index_keys(binding: &Object) -> Vec<String> {
    let all = recorded_dependencies(binding);
    let mut places: Vec<String> = all
        .iter()
        .map(|d| dependency_index_key(&d.api_version, &d.kind, &d.namespace, &d.name))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The bindings that a changed object affects; `at` looks them up by index key.
pub(crate) fn affected_bindings(
    served: &RestMapping,
    change: &InformerEvent<'_>,
    at: impl Fn(&str) -> Vec<Object>,
) -> Vec<Object> {
    let (object, (api_version, kind)) = (change.object(), served.api_version_and_kind());
    let namespace = object.namespace();
    let mut bindings = at(&dependency_index_key(
        api_version,
        kind,
        namespace,
        object.name(),
    ));
    let by_labels = at(&dependency_index_key(api_version, kind, namespace, ""));
    if bindings.is_empty() && by_labels.is_empty() {
        return bindings;
    }
    if let (Some(old), Some(new)) = (change.old, change.new)
        && is_equal_except_status(old, new)
    {
        return Vec::new();
    }
    let versions = || [change.old, change.new].into_iter().flatten();
    bindings.extend(by_labels.into_iter().filter(|binding| {
        let mut selecting = recorded_dependencies(binding)
            .into_iter()
            .filter(|d| d.refers_to_kind(api_version, kind, namespace) && d.name.is_empty());
        selecting.any(|d| versions().any(|o| d.matches(o.meta()) == Ok(true)))
    }));
    bindings
}

/// Whether a change of a binding has to be reconciled.
pub(crate) fn needs_reconcile(old: Option<&Object>, new: &Object) -> bool {
    let Ok(view) = new.decode::<ResourceBinding>() else {
        return false;
    };
    let is_ours = |b: &ResourceBinding| {
        let mut finalizers = b.metadata.finalizers.iter();
        b.spec.propagate_deps || finalizers.any(|f| f == DEPENDENCIES_FINALIZER)
    };
    let Some(old) = old else {
        // A binding without clusters is reconciled once it is scheduled.
        let waits = view.spec.clusters.is_empty() && !new.meta().deleting;
        return is_ours(&view) && !(waits && view.spec.propagate_deps);
    };
    let Ok(before) = old.decode::<ResourceBinding>() else {
        return is_ours(&view);
    };
    let recorded = |b: &ResourceBinding| b.metadata.annotations.get(DEPENDENCIES).cloned();
    // Also reconciles a binding whose recorded dependencies have changed: what changed while they
    // were being written is found by the second reconciliation.
    let moved = is_generation_or_deletion_changed(old, new) || recorded(&before) != recorded(&view);
    moved && (is_ours(&before) || is_ours(&view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::{Gvk, Gvr};
    use serde_json::{Value, json};

    fn binding(more: Value) -> Object {
        let mut value = json!({"metadata": {"name": "a", "namespace": "n", "generation": 1}});
        for (path, field) in more.as_object().unwrap() {
            let (outer, inner) = path.split_once('/').unwrap();
            value[outer][inner] = field.clone();
        }
        Object::from_value(&value).unwrap()
    }

    // proves: DEP-events
    #[test]
    fn changes_of_bindings_that_are_reconciled() {
        let on = || json!({"spec/propagateDeps": true, "spec/clusters": [{"name": "m"}]});
        let with = |path: &str, value: Value| {
            let mut all = on();
            all[path] = value;
            Some(all)
        };
        let off = json!({"spec/clusters": [{"name": "m"}]});
        let finalized = json!({"metadata/finalizers": [DEPENDENCIES_FINALIZER]});
        let recorded = json!({DEPENDENCIES: "null"});
        for (old, new, expected) in [
            (None, Some(on()), true),
            (None, Some(off.clone()), false),
            (None, with("spec/clusters", json!([])), false),
            (None, Some(finalized), true),
            (Some(on()), Some(on()), false),
            (Some(on()), with("metadata/generation", json!(2)), true),
            (
                Some(on()),
                with("metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
                true,
            ),
            (Some(on()), with("metadata/annotations", recorded), true),
            (
                Some(on()),
                with("metadata/labels", json!({"a": "b"})),
                false,
            ),
            (with("metadata/generation", json!(2)), Some(off), true),
            (
                Some(json!({})),
                Some(json!({"metadata/generation": 2})),
                false,
            ),
        ] {
            let case = format!("{old:?} {new:?}");
            let old = old.map(binding);
            assert_eq!(
                needs_reconcile(old.as_ref(), &binding(new.unwrap())),
                expected,
                "{case}"
            );
        }
    }

    // proves: DEP-comes-later
    #[test]
    fn an_object_affects_bindings_that_name_or_select_it() {
        let secrets = RestMapping {
            gvk: Gvk::from_static("", "v1", "Secret"),
            gvr: Gvr::from_static("", "v1", "secrets"),
            api_version: "v1".into(),
            namespaced: true,
        };
        let recorded = r#"[{"apiVersion":"v1","kind":"Secret","namespace":"n","name":"s"},
            {"apiVersion":"v1","kind":"Secret","namespace":"n","labelSelector":{"matchLabels":{"a":"b"}}}]"#;
        let recorded_binding = binding(json!({"metadata/annotations": {DEPENDENCIES: recorded}}));
        assert_eq!(
            dependency_index_keys(&recorded_binding),
            ["v1|Secret|n|", "v1|Secret|n|s"]
        );
        let at = |index_key: &str| {
            let is_indexed = dependency_index_keys(&recorded_binding)
                .iter()
                .any(|p| p == index_key);
            is_indexed
                .then(|| recorded_binding.clone())
                .into_iter()
                .collect()
        };
        let secret = |name: &str, a: &str, data: &str| {
            let value = json!({"metadata": {"name": name, "namespace": "n", "labels": {"a": a}}, "data": {"k": data}});
            Object::from_value(&value).unwrap()
        };
        let check = |old: Option<&Object>, new: Option<&Object>, expected: bool| {
            let change = InformerEvent {
                old,
                new,
                in_initial_list: false,
            };
            let actual = affected_bindings(&secrets, &change, at);
            assert_eq!(!actual.is_empty(), expected, "{old:?} {new:?}");
        };
        let (named, other) = (secret("s", "c", "1"), secret("t", "c", "1"));
        let selected = secret("t", "b", "1");
        check(None, Some(&named), true);
        check(Some(&named), None, true);
        check(Some(&named), Some(&named), false);
        check(Some(&named), Some(&secret("s", "c", "2")), true);
        check(None, Some(&other), false);
        check(Some(&other), Some(&selected), true);
        check(Some(&selected), Some(&other), true);
    }
}
