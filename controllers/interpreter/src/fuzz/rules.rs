//! Fuzz targets of the built-in rules.

use jiff::Timestamp;
use machinery::Object;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use serde_json::Value;

use super::inputs::{Case, bytes, cases};
use super::run;
use super::seeds::{native, well_known};
use crate::built_in::BuiltIn;
use crate::native::ClusterStatus;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// Runs every operation that takes an encoded object.
fn ask(case: &Case, template: &Object, observed: &Object) -> TestCaseResult {
    let kind = &case.kind;
    let items: Vec<ClusterStatus<'_>> = NAMES
        .iter()
        .zip(&case.statuses)
        .map(|(cluster, status)| ClusterStatus {
            cluster,
            status: (!status.is_null()).then_some(status),
        })
        .collect();
    for object in [template, observed] {
        drop(BuiltIn.replicas(kind, object));
        drop(BuiltIn.components(kind, object));
        drop(BuiltIn.priority_class(kind, object));
        drop(BuiltIn.healthy(kind, object));
        if let Ok(found) = BuiltIn.dependencies(kind, object) {
            let found = found.unwrap_or_default();
            prop_assert!(
                found
                    .iter()
                    .all(|d| !d.name.is_empty() || d.label_selector.is_some())
            );
        }
        let reflected = BuiltIn.reflect(kind, object);
        prop_assert!(
            !matches!(reflected, Ok(Some(Value::Null))),
            "null is no status"
        );
    }
    let first = BuiltIn.aggregate(kind, template, &items, now());
    let again = BuiltIn.aggregate(kind, template, &items, now());
    prop_assert_eq!(first.ok(), again.ok());
    for items in [None, Some(&items[..]), Some(&[])] {
        drop(BuiltIn.aggregated(kind, template, items, now()));
    }
    Ok(())
}

/// Repeated retention reaches a fixed point after a few rounds, so the controller does not update
/// the member forever. One round is not enough where empty lists in other values share a path.
fn comes_to_rest(case: &Case, mut retained: Value) -> TestCaseResult {
    for _ in 0..3 {
        let Ok(again) = BuiltIn.retain(&case.kind, case.template.clone(), &retained) else {
            // No member cluster has such an object.
            return Ok(());
        };
        let before = std::mem::replace(&mut retained, again);
        if retained == before {
            return Ok(());
        }
    }
    Err(TestCaseError::fail(format!("still changes: {retained}")))
}

/// Runs every operation.
fn ask_all(case: &Case) -> TestCaseResult {
    let kind = &case.kind;
    drop(BuiltIn.revise(kind, case.template.clone(), case.replicas));
    if let Ok(retained) = BuiltIn.retain(kind, case.template.clone(), &case.observed) {
        comes_to_rest(case, retained)?;
    }
    let object = |tree: &Value| Object::from_value(tree);
    match (object(&case.template), object(&case.observed)) {
        (Ok(template), Ok(observed)) => ask(case, &template, &observed),
        // No API server accepts it as an object.
        _ => Ok(()),
    }
}

#[test]
fn native_rules_answer_any_object() {
    run("native rules", &cases(native()), Case::show, |case| {
        ask_all(&case)
    });
}

#[test]
fn well_known_kinds_rules_answer_any_object() {
    run(
        "rules of well-known kinds",
        &cases(well_known()),
        Case::show,
        |case| ask_all(&case),
    );
}

/// Inputs that are truncated or otherwise damaged objects.
#[test]
fn rules_answer_any_bytes() {
    let seeds = native().into_iter().chain(well_known()).collect();
    let show = |(case, bytes): &(Case, Vec<u8>)| {
        format!("{}\nbytes {}", case.show(), String::from_utf8_lossy(bytes))
    };
    run(
        "rules on bytes",
        &(cases(seeds), bytes()),
        show,
        |(case, bytes)| match Object::from_json(bytes.into()) {
            Ok(object) => ask(&case, &object, &object),
            Err(_) => Ok(()),
        },
    );
}
