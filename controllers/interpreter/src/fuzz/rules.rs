//! Fuzz targets of the built-in rules.

use jiff::Timestamp;
use machinery::Object;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use serde_json::Value;

use super::inputs::{FuzzCase, cases, damaged_bytes};
use super::run;
use super::seeds::{native, third_party};
use crate::built_in::BuiltInInterpreter;
use crate::native::CollectedStatus;

const CLUSTERS: [&str; 4] = ["a", "b", "c", "d"];

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// Runs every operation that takes an encoded object.
fn check_object_operations(
    case: &FuzzCase,
    template: &Object,
    observed: &Object,
) -> TestCaseResult {
    let kind = &case.kind;
    let items: Vec<CollectedStatus<'_>> = CLUSTERS
        .iter()
        .zip(&case.statuses)
        .map(|(cluster, status)| {
            CollectedStatus::new(cluster, (!status.is_null()).then_some(status))
        })
        .collect();
    for object in [template, observed] {
        drop(BuiltInInterpreter.replicas(kind, object));
        drop(BuiltInInterpreter.components(kind, object));
        drop(BuiltInInterpreter.priority_class(kind, object));
        drop(BuiltInInterpreter.interpret_health(kind, object));
        if let Ok(actual) = BuiltInInterpreter.dependencies(kind, object) {
            let actual = actual.unwrap_or_default();
            prop_assert!(
                actual
                    .iter()
                    .all(|d| !d.name.is_empty() || d.label_selector.is_some())
            );
        }
        let reflected = BuiltInInterpreter.reflect_status(kind, object);
        prop_assert!(
            !matches!(reflected, Ok(Some(Value::Null))),
            "null is no status"
        );
    }
    let first = BuiltInInterpreter.aggregate_status(kind, template, &items, now());
    let again = BuiltInInterpreter.aggregate_status(kind, template, &items, now());
    prop_assert_eq!(first.ok(), again.ok());
    for items in [None, Some(&items[..]), Some(&[])] {
        drop(BuiltInInterpreter.with_aggregated_status(kind, template, items, now()));
    }
    Ok(())
}

/// Repeated retention reaches a fixed point after a few rounds, so the controller does not update
/// the member forever. One round is not enough where empty lists in other values share a path.
fn check_retain_converges(case: &FuzzCase, mut retained: Value) -> TestCaseResult {
    for _ in 0..3 {
        let Ok(again) = BuiltInInterpreter.retain(&case.kind, case.template.clone(), &retained)
        else {
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
fn check_all_operations(case: &FuzzCase) -> TestCaseResult {
    let kind = &case.kind;
    drop(BuiltInInterpreter.revise_replica(kind, case.template.clone(), case.replicas));
    if let Ok(retained) = BuiltInInterpreter.retain(kind, case.template.clone(), &case.observed) {
        check_retain_converges(case, retained)?;
    }
    let object = |tree: &Value| Object::from_value(tree);
    match (object(&case.template), object(&case.observed)) {
        (Ok(template), Ok(observed)) => check_object_operations(case, &template, &observed),
        // No API server accepts it as an object.
        _ => Ok(()),
    }
}

#[test]
fn native_rules_answer_any_object() {
    run("native rules", &cases(native()), FuzzCase::show, |case| {
        check_all_operations(&case)
    });
}

#[test]
fn well_known_kinds_rules_answer_any_object() {
    run(
        "rules of well-known kinds",
        &cases(third_party()),
        FuzzCase::show,
        |case| check_all_operations(&case),
    );
}

/// Inputs that are truncated or otherwise damaged objects.
#[test]
fn rules_answer_any_bytes() {
    let seeds = native().into_iter().chain(third_party()).collect();
    let show = |(case, bytes): &(FuzzCase, Vec<u8>)| {
        format!("{}\nbytes {}", case.show(), String::from_utf8_lossy(bytes))
    };
    run(
        "rules on bytes",
        &(cases(seeds), damaged_bytes()),
        show,
        |(case, bytes)| match Object::from_json(bytes.into()) {
            Ok(object) => check_object_operations(&case, &object, &object),
            Err(_) => Ok(()),
        },
    );
}
