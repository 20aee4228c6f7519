//! Copies status fields with the generations, and decides whether all members have observed the current
//! template.

use karmada_api::well_known_keys::TEMPLATE_GENERATION;
use serde_json::Value;

use super::collected_statuses::CollectedStatuses;
use super::json_map::{JsonMap, json_number, lenient_number, value_at, values_equal};

/// The listed fields of a status, as far as they are present.
pub(super) fn copy_status_fields(observed: &Value, fields: &[&[&str]]) -> JsonMap {
    let mut out = JsonMap::new();
    if let Some(status) = observed.get("status").and_then(Value::as_object) {
        for field in fields.iter().copied().flatten() {
            if let Some(value) = status.get(*field) {
                out.insert((*field).to_owned(), value.clone());
            }
        }
    }
    out
}

/// Like [`copy_status_fields`], with the generation of the object and of the template from which it
/// was applied.
pub(super) fn copy_status_fields_with_generations(observed: &Value, fields: &[&[&str]]) -> JsonMap {
    let mut out = copy_status_fields(observed, fields);
    if value_at(observed, "/status").is_none() {
        return out;
    }
    if let Some(generation) = value_at(observed, "/metadata/generation") {
        out.insert("generation".into(), generation.clone());
    }
    let annotations = value_at(observed, "/metadata/annotations");
    let template = annotations.and_then(|all| all.get(TEMPLATE_GENERATION));
    if let Some(generation) = lenient_number(template) {
        out.insert("resourceTemplateGeneration".into(), json_number(generation));
    }
    out
}

/// How a cluster that reports no status counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum MissingStatusPolicy {
    CountsAsZero,
    NeverUpToDate,
}

/// Sets observedGeneration once every cluster has observed the generation of the template.
pub(super) fn update_observed_generation(
    status: &mut JsonMap,
    generation: &Value,
    items: &CollectedStatuses<'_>,
    silent: MissingStatusPolicy,
) {
    let zero = Value::from(0);
    let up_to_date = |reported: Option<&Value>| {
        let field = |name: &str| reported.and_then(|s| value_at(s, name)).unwrap_or(&zero);
        values_equal(Some(field("/resourceTemplateGeneration")), Some(generation))
            && values_equal(
                Some(field("/generation")),
                Some(field("/observedGeneration")),
            )
            && (reported.is_some() || silent == MissingStatusPolicy::CountsAsZero)
    };
    if items.statuses().all(up_to_date) {
        status.insert("observedGeneration".into(), generation.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::CollectedStatus;
    use serde_json::json;

    #[test]
    fn generations_are_copied_where_present() {
        let copy =
            |metadata: Value| json!({"metadata": metadata, "status": {"a": 1, "b": null, "c": 3}});
        let annotated =
            |text: &str| json!({"generation": 4, "annotations": {TEMPLATE_GENERATION: text}});
        for (observed, expected) in [
            (json!({"metadata": annotated("2")}), json!({})),
            (
                copy(annotated("2")),
                json!({"a": 1, "b": null, "generation": 4, "resourceTemplateGeneration": 2}),
            ),
            (
                copy(annotated("x")),
                json!({"a": 1, "b": null, "generation": 4}),
            ),
            (copy(json!({})), json!({"a": 1, "b": null})),
        ] {
            let actual = copy_status_fields_with_generations(&observed, &[&["a"], &["b", "d"]]);
            assert_eq!(Value::Object(actual), expected, "{observed}");
        }
    }

    // proves: CRD-generation
    #[test]
    fn observed_once_all_are_up_to_date() {
        let report = |template: i64, own: i64, observed: i64| json!({"resourceTemplateGeneration": template, "generation": own, "observedGeneration": observed});
        let check =
            |generation: i64, all: &[Value], silent: MissingStatusPolicy, observed: bool| {
                let items: Vec<CollectedStatus<'_>> = all
                    .iter()
                    .map(|status| CollectedStatus::new("a", Some(status)))
                    .collect();
                let mut status = JsonMap::new();
                update_observed_generation(
                    &mut status,
                    &generation.into(),
                    &CollectedStatuses(&items),
                    silent,
                );
                assert_eq!(
                    status.contains_key("observedGeneration"),
                    observed,
                    "{all:?}"
                );
            };
        let zero = MissingStatusPolicy::CountsAsZero;
        check(2, &[report(2, 5, 5), report(2, 1, 1)], zero, true);
        check(2, &[report(2, 5, 4), report(2, 1, 1)], zero, false);
        check(2, &[report(3, 5, 5)], zero, false);
        check(2, &[], zero, true);
        check(2, &[Value::Null], zero, false);
        check(0, &[Value::Null, json!({})], zero, true);
        check(0, &[Value::Null], MissingStatusPolicy::NeverUpToDate, false);
    }
}
