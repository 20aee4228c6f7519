//! Compares the object in a member with the manifest of a Work, and computes the update. Source:
//! Karmada's `pkg/util/objectwatcher` and `pkg/util/{label,annotation}.go`.

use openapi::karmada::well_known_keys::{
    CONFLICT_RESOLUTION, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANAGED_VALUE,
};
use openapi::karmada_prune::prune;
use serde_json::{Map, Value};

/// When an object counts as up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonMode {
    /// The object contains the manifest; additional fields are allowed.
    Subset,
    /// The manifest is new: fields that it no longer has must be removed.
    Exact,
}

/// The object as the manifest requires it, before the retention rules of its kind apply; `None` if
/// the object must not be changed.
pub(crate) fn desired_object(mut manifest: Value, observed: &Value) -> Option<Value> {
    let managed = get(observed, "labels", MANAGED) == Some(MANAGED_VALUE);
    if !managed && get(&manifest, "annotations", CONFLICT_RESOLUTION) != Some("overwrite") {
        return None;
    }
    retain_metadata(&mut manifest, observed);
    Some(manifest)
}

/// The body that replaces an observed object; `None` if the object is up to date.
pub(crate) fn changed(
    mut desired: Value,
    observed: &Value,
    equality: ComparisonMode,
) -> Option<Value> {
    let same = match equality {
        ComparisonMode::Subset => is_subset(&desired, observed),
        ComparisonMode::Exact => {
            let (mut a, mut b) = (desired.clone(), observed.clone());
            prune(&mut a, false);
            prune(&mut b, false);
            is_subset(&a, &b) && is_subset(&b, &a)
        }
    };
    if same {
        return None;
    }
    if let (Some(to), Some(from)) = (
        desired.get_mut("metadata").and_then(Value::as_object_mut),
        observed.get("metadata").and_then(Value::as_object),
    ) {
        for kept in ["resourceVersion", "finalizers", "ownerReferences"] {
            match from.get(kept) {
                Some(value) => to.insert(kept.into(), value.clone()),
                None => to.remove(kept),
            };
        }
    }
    Some(desired)
}

/// Retains labels and annotations of other owners; removes those that the template no longer has.
fn retain_metadata(desired: &mut Value, observed: &Value) {
    for (map, record) in [
        ("annotations", MANAGED_ANNOTATIONS),
        ("labels", MANAGED_LABELS),
    ] {
        let managed = get(observed, "annotations", record).unwrap_or_default();
        let Some(have) = observed["metadata"][map].as_object() else {
            continue;
        };
        let others: Vec<(&String, &Value)> = have
            .iter()
            .filter(|(key, _)| !managed.split(',').any(|m| m == key.as_str()))
            .collect();
        if others.is_empty() {
            continue;
        }
        let slot = &mut desired["metadata"][map];
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        if let Some(slot) = slot.as_object_mut() {
            for (key, value) in others {
                slot.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

fn get<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(map)?.get(key)?.as_str()
}

/// Whether `found` contains everything in `wanted`. Lists have to have equal length; empty and
/// absent values are equal.
pub(crate) fn is_subset(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, value)| {
            found
                .get(key)
                .map_or_else(|| is_empty(value), |f| is_subset(value, f))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(w, f)| is_subset(w, f))
        }
        (Value::Null, found) => is_empty(found),
        (wanted, Value::Null) => is_empty(wanted),
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (wanted, found) => wanted == found,
    }
}

/// Go's encoders may or may not omit empty values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {MANAGED: "true", "own": "1"},
            "annotations": {MANAGED_LABELS: format!("{MANAGED},own"), MANAGED_ANNOTATIONS: format!("{MANAGED_ANNOTATIONS},{MANAGED_LABELS}")}},
            "data": {"k": "v"}})
    }

    fn observed() -> Value {
        let mut observed = manifest();
        observed["metadata"]["resourceVersion"] = "5".into();
        observed["metadata"]["uid"] = "u".into();
        observed["metadata"]["finalizers"] = json!(["f"]);
        observed["metadata"]["labels"]["theirs"] = "2".into();
        observed
    }

    #[derive(Debug, PartialEq)]
    enum TestComparisonOutcome {
        Unchanged,
        Update(Value),
        NotManaged,
    }

    fn check(
        manifest: &Value,
        observed: &Value,
        equality: ComparisonMode,
    ) -> TestComparisonOutcome {
        match desired_object(manifest.clone(), observed) {
            Some(desired) => changed(desired, observed, equality).map_or(
                TestComparisonOutcome::Unchanged,
                TestComparisonOutcome::Update,
            ),
            None => TestComparisonOutcome::NotManaged,
        }
    }

    // proves: EXE-no-write, EXE-exact
    #[test]
    fn an_up_to_date_object_is_not_written() {
        for equality in [ComparisonMode::Subset, ComparisonMode::Exact] {
            assert_eq!(
                check(&manifest(), &observed(), equality),
                TestComparisonOutcome::Unchanged
            );
        }
        let mut defaulted = observed();
        defaulted["immutable"] = json!(false);
        assert_eq!(
            check(&manifest(), &defaulted, ComparisonMode::Subset),
            TestComparisonOutcome::Unchanged
        );
        let TestComparisonOutcome::Update(body) =
            check(&manifest(), &defaulted, ComparisonMode::Exact)
        else {
            panic!("what the manifest lost must go")
        };
        assert_eq!(body.get("immutable"), None);
    }

    // proves: EXE-retain-labels, EXE-drop-labels, EXE-keeps-finalizers, EXE-put
    #[test]
    fn an_update_keeps_the_members_metadata() {
        let mut changed = manifest();
        changed["data"]["k"] = "w".into();
        changed["metadata"]["finalizers"] = json!(["the-templates"]);
        changed["metadata"]["ownerReferences"] = json!([{"uid": "the-templates"}]);
        changed["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("own");
        let mut observed = observed();
        observed["metadata"]["ownerReferences"] = json!([{"uid": "theirs"}]);
        let TestComparisonOutcome::Update(body) =
            check(&changed, &observed, ComparisonMode::Subset)
        else {
            panic!("nothing to write")
        };
        let owners = json!([{"uid": "theirs"}]);
        assert_eq!(body["metadata"]["ownerReferences"], owners);
        assert_eq!(body["metadata"]["resourceVersion"], "5");
        assert_eq!(body["metadata"]["finalizers"], json!(["f"]));
        assert_eq!(body["metadata"].get("uid"), None);
        assert_eq!(
            body["metadata"]["labels"],
            json!({MANAGED: "true", "theirs": "2"}),
            "theirs stays, ours that is gone goes"
        );
        assert_eq!(body["data"], json!({"k": "w"}));
    }

    // proves: EXE-conflict-abort, EXE-conflict-overwrite
    #[test]
    fn an_unmanaged_object_is_adopted_only_with_overwrite() {
        let mut foreign = observed();
        foreign["metadata"]["labels"] = json!({});
        assert_eq!(
            check(&manifest(), &foreign, ComparisonMode::Subset),
            TestComparisonOutcome::NotManaged
        );
        let mut overwrite = manifest();
        overwrite["metadata"]["annotations"][CONFLICT_RESOLUTION] = "overwrite".into();
        assert!(matches!(
            check(&overwrite, &foreign, ComparisonMode::Subset),
            TestComparisonOutcome::Update(_)
        ));
    }

    // proves: EXE-no-write
    #[test]
    fn containment() {
        let table = [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!([{"n": "x"}]), json!([{"n": "x", "d": 1}]), true),
            (json!({"a": {}}), json!({}), true),
            (json!({"a": null, "b": {"c": {}}}), json!({}), true),
            (json!({"a": false}), json!({}), false),
            (json!({"a": 1}), json!({"a": 1.0}), true),
            (json!({"a": "1"}), json!({"a": 1}), false),
        ];
        for (wanted, found, expected) in table {
            assert_eq!(is_subset(&wanted, &found), expected, "{wanted} {found}");
        }
    }
}
