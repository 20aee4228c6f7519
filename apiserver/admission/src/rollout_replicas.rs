//! Validates what RolloutPolicies say about replicas: how many stay available, and in which batches
//! they are updated. Does no I/O.

use karmada_api::partition::partition_path;
use machinery::{FieldError, Gvk};
use serde_json::Value;

use crate::builtin;
use crate::unstructured::{get, index_path, items, text};

const PERCENT_OF_ALL: i64 = 100;

/// `spec` is that of a RolloutPolicy or ClusterRolloutPolicy.
pub(crate) fn validate(spec: &Value, errors: &mut Vec<FieldError>) {
    validate_min_available(get(spec, "/minAvailable"), errors);
    let mut selectors = items(spec, "/resourceSelectors").iter();
    let undivided = selectors.find(|selector| !has_partition(selector));
    for (i, stage) in items(spec, "/stages").iter().enumerate() {
        let field = format!("{}.batches", index_path("spec.stages", i));
        let batches = items(stage, "/batches");
        if let Some(selector) = undivided.filter(|_| !batches.is_empty()) {
            let (api_version, kind) = (text(selector, "/apiVersion"), text(selector, "/kind"));
            let detail = format!("{api_version} {kind} has no partition to update replicas by");
            errors.push(FieldError::forbidden(&field, &detail));
        }
        validate_batches(&field, batches, errors);
    }
}

/// All replicas cannot stay available while some are updated.
fn validate_min_available(amount: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.minAvailable";
    builtin::validate_int_or_percent(field, amount, errors);
    if amount.is_string() && builtin::int_or_percent(amount) >= PERCENT_OF_ALL {
        let detail = "must be less than 100%, since no cluster with available replicas could begin";
        errors.push(FieldError::invalid(field, amount, detail));
    }
}

fn has_partition(selector: &Value) -> bool {
    let kind = Gvk::from_api_version(text(selector, "/apiVersion"), text(selector, "/kind"));
    partition_path(&kind.group, &kind.kind).is_some()
}

/// Batches grow, and the last one has all replicas.
fn validate_batches(field: &str, batches: &[Value], errors: &mut Vec<FieldError>) {
    let mut before = 0;
    for (i, batch) in batches.iter().enumerate() {
        let field = index_path(field, i);
        let count = errors.len();
        builtin::validate_int_or_percent(&field, batch, errors);
        builtin::validate_at_most_100_percent(&field, batch, errors);
        if errors.len() > count {
            continue;
        }
        let percent = builtin::int_or_percent(batch);
        if percent <= before {
            let detail = "must be greater than the batch before, and greater than 0%";
            errors.push(FieldError::invalid(&field, batch, detail));
        } else if i + 1 == batches.len() && percent < PERCENT_OF_ALL {
            let detail = "must be 100%, since the last batch has all replicas";
            errors.push(FieldError::invalid(&field, batch, detail));
        }
        before = percent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-valid-replicas
    #[test]
    fn errors_name_their_fields() {
        let check = |kind: (&str, &str), change: Value, expected: &[&str]| {
            let selector = json!({"apiVersion": kind.0, "kind": kind.1});
            let mut spec = json!({"resourceSelectors": [selector], "stages": [{"name": "a"}]});
            let fields = spec.as_object_mut().unwrap();
            fields.extend(change.as_object().unwrap().clone());
            let mut errors = Vec::new();
            validate(&spec, &mut errors);
            let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let fits = |(message, start): (&String, &&str)| message.starts_with(*start);
            assert!(
                messages.len() == expected.len() && messages.iter().zip(expected).all(fits),
                "{spec}: {messages:?}"
            );
        };
        let batches = |batches: Value| json!({"stages": [{"name": "a", "batches": batches}]});
        let (set, web) = (("apps/v1", "StatefulSet"), ("apps/v1", "Deployment"));
        let growing = || json!(["10%", "50%", "100%"]);
        check(set, batches(growing()), &[]);
        check(
            ("apps.kruise.io/v1alpha1", "CloneSet"),
            batches(growing()),
            &[],
        );
        for amount in [json!(0), json!(7), json!("0%"), json!("99%")] {
            check(web, json!({"minAvailable": amount}), &[]);
        }
        check(
            web,
            batches(growing()),
            &["spec.stages[0].batches: Forbidden: apps/v1 Deployment has no partition"],
        );
        check(
            set,
            batches(json!(["0%", "10%", "10%", "ten", "101%", "50%"])),
            &[
                "spec.stages[0].batches[0]: Invalid value: \"0%\": must be greater than",
                "spec.stages[0].batches[2]: Invalid value: \"10%\": must be greater than",
                "spec.stages[0].batches[3]: Invalid value: \"ten\": a valid percent",
                "spec.stages[0].batches[4]: Invalid value: \"101%\": must not be greater than 100%",
                "spec.stages[0].batches[5]: Invalid value: \"50%\": must be 100%",
            ],
        );
        for amount in [json!(-1), json!("many"), json!("100%"), json!("101%")] {
            check(
                web,
                json!({"minAvailable": amount}),
                &["spec.minAvailable: Invalid value: "],
            );
        }
    }
}
