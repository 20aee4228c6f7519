//! Tests the property that after any sequence of attaching and detaching the attached binding lists
//! the independent bindings that need it, their clusters, and their merged preferences.

use std::collections::BTreeMap;

use controller_context::BindingDiff;
use flotilla_runtime::RestMapping;
use machinery::{Gvk, Gvr, Object};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::attached_binding::{DependencyPreferences, IndependentBinding};

/// An independent binding by number, its clusters and its preferences; `None`: it is detached.
type AttachOrDetachOperation = (usize, Option<(Vec<u8>, bool, bool)>);

fn attach_operation() -> impl Strategy<Value = AttachOrDetachOperation> {
    let clusters = proptest::collection::vec(0..3_u8, 0..3);
    let joins = (clusters, any::<bool>(), any::<bool>());
    (0..3_usize, proptest::option::weighted(0.7, joins))
}

/// An independent binding that is attached.
struct TestIndependentBinding {
    binding: IndependentBinding,
    preferences: DependencyPreferences,
    clusters: Value,
    overwrite: bool,
    preserve: bool,
}

fn attached_independent_binding(
    who: usize,
    (clusters, overwrite, preserve): (Vec<u8>, bool, bool),
) -> TestIndependentBinding {
    let all = clusters
        .into_iter()
        .map(|n| json!({"name": format!("m{n}")}));
    let clusters: Value = all.collect();
    let resolution = if overwrite { "Overwrite" } else { "Abort" };
    let spec = json!({"clusters": clusters, "conflictResolution": resolution,
        "preserveResourcesOnDeletion": preserve});
    let spec = serde_json::from_value(spec).unwrap();
    let binding = json!({"metadata": {"name": format!("b{who}"), "namespace": "n"}});
    let binding = Object::from_value(&binding).unwrap();
    TestIndependentBinding {
        binding: IndependentBinding::from_binding(&binding, &spec).unwrap(),
        preferences: DependencyPreferences::from_spec(&spec),
        clusters,
        overwrite,
        preserve,
    }
}

fn check(
    body: &Value,
    there: &BTreeMap<usize, TestIndependentBinding>,
) -> Result<(), TestCaseError> {
    let spec = &body["spec"];
    let required = spec["requiredBy"].as_array().cloned().unwrap_or_default();
    prop_assert_eq!(required.len(), there.len());
    for (who, one) in there {
        let name = format!("b{who}");
        let snapshot = required.iter().find(|s| s["name"] == *name);
        let mut expected = json!({"namespace": "n", "name": name});
        if one.clusters != json!([]) {
            expected["clusters"] = one.clusters.clone();
        }
        prop_assert_eq!(snapshot, Some(&expected));
    }
    let labels = body["metadata"]["labels"].as_object();
    prop_assert_eq!(labels.map(|l| l.len()), Some(there.len()));
    if there.is_empty() {
        prop_assert_eq!(spec.get("conflictResolution"), None);
        prop_assert_eq!(spec.get("preserveResourcesOnDeletion"), None);
        return Ok(());
    }
    let overwrite = there.values().any(|one| one.overwrite);
    let preserve = there.values().any(|one| one.preserve);
    prop_assert_eq!(
        &spec["conflictResolution"],
        if overwrite { "Overwrite" } else { "Abort" }
    );
    prop_assert_eq!(&spec["preserveResourcesOnDeletion"], preserve);
    Ok(())
}

proptest! {
    // proves: DEP-required-by, DEP-conflict-resolution, DEP-preserve, DEP-last-leaves
    #[test]
    fn requirements_match_the_attached_bindings(first in attach_operation().prop_filter_map("joins", |(who, one)| Some((who, one?))),
                                      steps in proptest::collection::vec(attach_operation(), 0..12)) {
        let served = RestMapping {
            gvk: Gvk::from_static("", "v1", "Secret"),
            gvr: Gvr::from_static("", "v1", "secrets"),
            api_version: "v1".into(),
            namespaced: true,
        };
        let secret = json!({"metadata": {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": "1"}});
        let secret = Object::from_value(&secret).unwrap();
        let mut there = BTreeMap::new();
        let (who, one) = first;
        let one = attached_independent_binding(who, one);
        let mut body = one.binding.new_attached_binding(&served, &secret);
        there.insert(who, one);
        check(&body, &there)?;
        for (who, step) in steps {
            let Some(step) = step else {
                let detached = there.remove(&who);
                let wish_of = |_: &str, name: &str| there.get(&name[1..].parse().ok()?).map(|p: &TestIndependentBinding| p.preferences);
                if let Some(detached) = detached {
                    body = detached.binding.detach(&body, wish_of);
                }
                check(&body, &there)?;
                continue;
            };
            let joining = attached_independent_binding(who, step);
            let wish_of = |_: &str, name: &str| there.get(&name[1..].parse().ok()?).map(|p: &TestIndependentBinding| p.preferences);
            if let Ok((BindingDiff::Changed(joined), _)) = joining.binding.attach(&body, &served, &secret, wish_of) {
                body = joined;
            }
            let again = joining.binding.attach(&body, &served, &secret, wish_of);
            prop_assert!(matches!(again, Ok((BindingDiff::Unchanged, _))));
            there.insert(who, joining);
            check(&body, &there)?;
        }
    }
}
