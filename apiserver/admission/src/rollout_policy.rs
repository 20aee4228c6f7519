//! Validates RolloutPolicy and ClusterRolloutPolicy. Does no I/O.

use std::collections::BTreeSet;

use karmada_api::rollout::REMAINING_STAGE;
use machinery::names::validate_dns1123_label;
use machinery::{FieldError, duration};
use serde_json::Value;

use crate::builtin::SelectorValues;
use crate::unstructured::{get, has, index_path, items, report_invalid, text};
use crate::{builtin, cluster_affinity, rollout_gates, rollout_replicas};

const MUST_BE_POSITIVE: &str = "must be greater than 0";
const RBAC_GROUP_PREFIX: &str = "rbac.authorization.k8s.io/";

/// `namespace` is empty for a ClusterRolloutPolicy.
pub(crate) fn validate(namespace: &str, policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(policy, "/spec");
    for (i, selector) in items(spec, "/resourceSelectors").iter().enumerate() {
        let selected = text(selector, "/namespace");
        if !namespace.is_empty() && !selected.is_empty() && selected != namespace {
            errors.push(FieldError::invalid(
                format!("{}.namespace", index_path("spec.resourceSelectors", i)),
                &selected.into(),
                "must be empty or the namespace of the policy",
            ));
        }
        if (text(selector, "/apiVersion"), text(selector, "/kind")) == ("v1", "Secret") {
            errors.push(FieldError::forbidden(
                index_path("spec.resourceSelectors", i),
                "Secrets are not staged, since a revision would show their data",
            ));
        }
        if text(selector, "/apiVersion").starts_with(RBAC_GROUP_PREFIX) {
            errors.push(FieldError::forbidden(
                index_path("spec.resourceSelectors", i),
                "roles and their bindings are not staged, since a revision could grant other rights",
            ));
        }
        validate_selector(
            &format!("{}.labelSelector", index_path("spec.resourceSelectors", i)),
            get(selector, "/labelSelector"),
            &mut errors,
        );
    }
    let deadline_field = "spec.progressDeadline";
    validate_duration(deadline_field, spec, "/progressDeadline", &mut errors);
    let deadline = text(spec, "/progressDeadline");
    if duration::parse(deadline).is_ok_and(|deadline| deadline.is_zero()) {
        errors.push(FieldError::invalid(
            deadline_field,
            &deadline.into(),
            MUST_BE_POSITIVE,
        ));
    }
    validate_amount(
        "spec.failureBudget",
        get(spec, "/failureBudget"),
        &mut errors,
    );
    rollout_replicas::validate(spec, &mut errors);
    rollout_gates::validate_windows(spec, &mut errors);
    let mut names = BTreeSet::from([REMAINING_STAGE]);
    for (i, stage) in items(spec, "/stages").iter().enumerate() {
        let field = index_path("spec.stages", i);
        validate_stage(&field, stage, &mut names, &mut errors);
        let query_field = format!("{field}.gates.query");
        let query = get(stage, "/gates/query");
        rollout_gates::validate_query(&query_field, namespace, query, &mut errors);
        let job_field = format!("{field}.gates.job");
        rollout_gates::validate_job(&job_field, get(stage, "/gates/job"), &mut errors);
    }
    errors
}

fn validate_stage<'a>(
    field: &str,
    stage: &'a Value,
    names: &mut BTreeSet<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(stage, "/name");
    let name_field = format!("{field}.name");
    if name == REMAINING_STAGE {
        errors.push(FieldError::forbidden(
            &name_field,
            "is the name of the stage of the clusters that no stage selects",
        ));
    } else if !names.insert(name) {
        errors.push(FieldError::duplicate(&name_field, &name.into()));
    } else {
        report_invalid(name_field, name, validate_dns1123_label(name), errors);
    }
    cluster_affinity::validate(
        &format!("{field}.clusterAffinity"),
        get(stage, "/clusterAffinity"),
        errors,
    );
    validate_selector(
        &format!("{field}.clusterAffinity.labelSelector"),
        get(stage, "/clusterAffinity/labelSelector"),
        errors,
    );
    let limit = get(stage, "/maxConcurrency");
    let limit_field = format!("{field}.maxConcurrency");
    validate_amount(&limit_field, limit, errors);
    let is_percent = limit.as_str().is_some_and(|text| text.ends_with('%'));
    if (limit.is_number() || is_percent) && builtin::int_or_percent(limit) == 0 {
        errors.push(FieldError::invalid(limit_field, limit, MUST_BE_POSITIVE));
    }
    let gate_field = format!("{field}.gates.healthyFor");
    validate_duration(&gate_field, stage, "/gates/healthyFor", errors);
}

/// A selector with an invalid expression would select nobody, unnoticed.
fn validate_selector(field: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    builtin::validate_label_selector(field, selector, SelectorValues::Strict, errors);
}

fn validate_amount(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    builtin::validate_int_or_percent(field, value, errors);
    builtin::validate_at_most_100_percent(field, value, errors);
}

fn validate_duration(field: &str, object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !has(object, path) {
        return;
    }
    if let Err(detail) = duration::parse(text(object, path)) {
        errors.push(FieldError::invalid(field, get(object, path), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-valid
    #[test]
    fn errors_name_their_fields() {
        let check = |change: Value, expected: &[&str]| {
            let mut spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "stages": [{"name": "a"}], "progressDeadline": "10m"});
            let fields = spec.as_object_mut().unwrap();
            fields.extend(change.as_object().unwrap().clone());
            let policy = json!({"spec": spec});
            let errors = validate("n", &policy);
            let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let fits = |(message, start): (&String, &&str)| message.starts_with(*start);
            assert!(
                messages.len() == expected.len() && messages.iter().zip(expected).all(fits),
                "{policy}: {messages:?}"
            );
        };
        check(json!({}), &[]);
        check(
            json!({"stages": [{"name": "a", "maxConcurrency": "25%", "gates": {"healthyFor": "1m30s", "approval": true}},
                {"name": "b", "maxConcurrency": 1}], "failureBudget": 0}),
            &[],
        );
        let elsewhere = json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "m"}]);
        check(
            json!({"resourceSelectors": elsewhere}),
            &["spec.resourceSelectors[0].namespace: Invalid value"],
        );
        let secrets = json!([{"apiVersion": "v1", "kind": "Secret"}]);
        check(
            json!({"resourceSelectors": secrets}),
            &["spec.resourceSelectors[0]: Forbidden: Secrets"],
        );
        let roles = json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}]);
        check(
            json!({"resourceSelectors": roles}),
            &["spec.resourceSelectors[0]: Forbidden: roles"],
        );
        check(
            json!({"stages": [{"name": "a"}, {"name": "a"}, {"name": "remaining"}, {"name": "B"}]}),
            &[
                "spec.stages[1].name: Duplicate value",
                "spec.stages[2].name: Forbidden",
                "spec.stages[3].name: Invalid value",
            ],
        );
        check(
            json!({"stages": [{"name": "a", "maxConcurrency": 0, "gates": {"healthyFor": "soon"}}],
                "failureBudget": "101%", "progressDeadline": "-1s"}),
            &[
                "spec.progressDeadline: Invalid value",
                "spec.failureBudget: Invalid value",
                "spec.stages[0].maxConcurrency: Invalid value",
                "spec.stages[0].gates.healthyFor: Invalid value",
            ],
        );
        for budget in [json!(2_147_483_648_i64), json!(u64::MAX)] {
            check(
                json!({"failureBudget": budget}),
                &["spec.failureBudget: Invalid value"],
            );
        }
        let nobody = json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}});
        let labeled = json!([{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"a": "b c"}}}]);
        check(
            json!({"resourceSelectors": labeled, "progressDeadline": "0m",
                "stages": [{"name": "a", "maxConcurrency": "00%", "clusterAffinity": nobody}]}),
            &[
                "spec.resourceSelectors[0].labelSelector.matchLabels: Invalid value",
                "spec.progressDeadline: Invalid value: \"0m\": must be greater than 0",
                "spec.stages[0].clusterAffinity.labelSelector.matchExpressions[0].operator: Invalid value",
                "spec.stages[0].maxConcurrency: Invalid value: \"00%\": must be greater than 0",
            ],
        );
    }
}
