//! Filters the informer events of the binding controller. Source: Karmada's
//! `pkg/controllers/binding`.

use client::InformerEvent;
use flotilla_runtime::is_generation_or_deletion_changed;
use machinery::{Gvk, Object, ObjectMeta};
use overrides::{may_select, overrides_retained_fields, selects};

/// Whether a binding has to be reconciled; a change of its status alone is ignored.
pub(crate) fn needs_reconcile(change: &InformerEvent<'_>) -> bool {
    change.new.is_some_and(|new| {
        change
            .old
            .is_none_or(|old| is_generation_or_deletion_changed(old, new))
    })
}

/// Whether the spec of an override policy has changed, or whether it wins over what members
/// retain. Policies that exist at startup are read when the bindings are reconciled.
pub(crate) fn is_spec_change(change: &InformerEvent<'_>) -> bool {
    if let (Some(old), Some(new)) = (change.old, change.new) {
        return old.meta().generation != new.meta().generation
            || overrides_retained_fields(old) != overrides_retained_fields(new);
    }
    !change.in_initial_list
}

/// Whether any version of an override policy selects a template. `relabelled`: other policies may
/// have changed the labels by which it is selected.
pub(crate) fn any_version_selects(
    versions: &[Object],
    kind: &Gvk,
    template: &ObjectMeta,
    relabelled: bool,
) -> bool {
    let selects = if relabelled { may_select } else { selects };
    let mut versions = versions.iter();
    versions.any(|policy| selects(policy, kind, template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(value: Value) -> Object {
        Object::from_value(&value).unwrap()
    }

    fn change<'a>(
        old: Option<&'a Object>,
        new: Option<&'a Object>,
        initial: bool,
    ) -> InformerEvent<'a> {
        InformerEvent {
            old,
            new,
            in_initial_list: initial,
        }
    }

    // proves: BND-events
    #[test]
    fn a_binding_is_reconciled_when_its_spec_or_deletion_timestamp_changes() {
        let at = |generation: i64, status: &str| {
            let metadata = json!({"name": "b", "namespace": "n", "generation": generation});
            object(json!({"metadata": metadata, "status": status}))
        };
        let (first, status_changed, second) = (at(1, ""), at(1, "told"), at(2, ""));
        let mut going = first.value().unwrap();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let going = object(going);
        for (old, new, due) in [
            (None, Some(&first), true),
            (Some(&first), Some(&status_changed), false),
            (Some(&first), Some(&second), true),
            (Some(&first), Some(&going), true),
            (Some(&first), None, false),
        ] {
            assert_eq!(
                needs_reconcile(&change(old, new, false)),
                due,
                "{old:?} {new:?}"
            );
        }
        assert!(
            needs_reconcile(&change(None, Some(&first), true)),
            "after a restart"
        );
    }

    // proves: BND-override-generation, BND-override-selected
    #[test]
    fn an_override_policy_affects_old_and_new_selections() {
        let policy = |generation: i64, name: Option<&str>| {
            let mut spec = json!({});
            if let Some(name) = name {
                spec["resourceSelectors"] =
                    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name}]);
            }
            let metadata = json!({"name": "o", "namespace": "n", "generation": generation});
            object(json!({"metadata": metadata, "spec": spec}))
        };
        let kind = Gvk::from_static("", "v1", "ConfigMap");
        let template = object(json!({"metadata": {"name": "a", "namespace": "n"}}));
        let (a, b, all) = (policy(1, Some("a")), policy(2, Some("b")), policy(3, None));
        for (old, new, expected) in [
            (None, Some(&a), true),
            (Some(&a), None, true),
            (None, Some(&b), false),
            (Some(&a), Some(&b), true),
            (Some(&b), Some(&a), true),
            (None, Some(&all), true),
            (Some(&b), Some(&all), true),
        ] {
            let change = change(old, new, false);
            assert!(is_spec_change(&change));
            let versions: Vec<_> = [old, new].into_iter().flatten().cloned().collect();
            let actual = any_version_selects(&versions, &kind, template.meta(), false);
            assert_eq!(actual, expected, "{old:?} {new:?}");
        }
        let same = policy(1, Some("a"));
        assert!(!is_spec_change(&change(Some(&a), Some(&same), false)));
        assert!(!is_spec_change(&change(None, Some(&a), true)));
    }
}
