//! Validates Jobs, and the job templates of CronJobs (`pkg/apis/batch/validation`).

use machinery::names::validate_dns1123_label;
use machinery::{FieldError, LabelSelector};
use serde_json::Value;

use super::job_policies::{validate_pod_failure_policy, validate_success_policy};
use super::label_selectors::{SelectorValues, validate_label_selector};
use super::numbers::validate_non_negative_at;
use super::references::validate_domain_prefixed_path;
use super::workloads::{validate_selector_matches_template, validate_template_metadata};
use super::{job_updates, pods};
use crate::unstructured::{flag, get, has, int, pointer, text};

/// The most pods with an index that a Job runs at once.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
/// Above this number of completions, a Job with limits per index has lower bounds for its other
/// fields.
const MAX_PLAIN_COMPLETIONS: i64 = 100_000;
const MAX_PARALLELISM_OF_MANY: i64 = 10_000;
const MAX_FAILED_INDEXES_OF_MANY: i64 = 10_000;
const MAX_MANAGED_BY_BYTES: usize = 63;
const REPLACEMENT_POLICIES: [&str; 2] = ["Failed", "TerminatingOrFailed"];
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const LEGACY_UID_LABEL: &str = "controller-uid";
const LEGACY_NAME_LABEL: &str = "job-name";

pub(super) fn validate_job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_generated_selector(new, old, errors);
    validate_job_spec("spec", new, old, errors);
    validate_selector(new, old, errors);
    validate_index_names(new, errors);
    if let Some(old) = old {
        job_updates::validate(new, old, errors);
    }
}

/// The server makes selector and labels from uid and name, unless the user says otherwise. A Job
/// that is older than the labels with a prefix does without them.
fn validate_generated_selector(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let selector = get(new, "/spec/selector");
    if flag(new, "/spec/manualSelector") || selector.is_null() {
        return;
    }
    let (uid, name) = (text(new, "/metadata/uid"), text(new, "/metadata/name"));
    if uid.is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let mut expected = vec![(LEGACY_UID_LABEL, uid), (LEGACY_NAME_LABEL, name)];
    let has_label = |old: &Value, label| {
        let labels = get(old, "/spec/template/metadata/labels");
        labels.get(label).is_some()
    };
    if old.is_none_or(|old| has_label(old, NAME_LABEL) && has_label(old, UID_LABEL)) {
        expected.extend([(UID_LABEL, uid), (NAME_LABEL, name)]);
    }
    let labels = get(new, "/spec/template/metadata/labels");
    for (label, value) in &expected {
        let field = format!("spec.template.metadata.labels[{label}]");
        let detail = format!("must be '{value}'");
        match labels.get(*label) {
            None => errors.push(FieldError::required(field, &detail)),
            Some(actual) if actual != value => {
                errors.push(FieldError::invalid(field, labels, detail));
            }
            Some(_) => {}
        }
    }
    let value_of = |key: &str| expected.iter().find(|(label, _)| *label == key);
    if let Ok(parsed) = LabelSelector::from_value(selector)
        && !parsed.matches(|key| value_of(key).map(|(_, value)| *value))
    {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", selector, detail));
    }
}

fn validate_selector(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let selector = get(new, "/spec/selector");
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let values = SelectorValues::of_old(old.map(|old| get(old, "/spec/selector")));
    validate_label_selector("spec.selector", selector, values, errors);
    validate_selector_matches_template(selector, new, errors);
}

/// A pod's hostname ends with its index.
fn validate_index_names(new: &Value, errors: &mut Vec<FieldError>) {
    let completions = int(new, "/spec/completions").unwrap_or(0);
    if text(new, "/spec/completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(new, "/metadata/name");
    let hostname = format!("{name}-{}", completions - 1);
    if validate_dns1123_label(&hostname).is_err() {
        let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
        errors.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
}

/// Validates a job spec at `field` of an object, but for its selector.
pub(super) fn validate_job_spec(
    field: &str,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(object, &pointer(field));
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        validate_non_negative_at(field, spec, name, errors);
    }
    if has(spec, "/maxFailedIndexes") && !has(spec, "/backoffLimitPerIndex") {
        errors.push(FieldError::required(
            format!("{field}.backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        ));
    }
    if let Some(manager) = get(spec, "/managedBy").as_str() {
        let field = format!("{field}.managedBy");
        validate_domain_prefixed_path(&field, manager, errors);
        if manager.len() > MAX_MANAGED_BY_BYTES {
            errors.push(FieldError::too_long(field, MAX_MANAGED_BY_BYTES));
        }
    }
    validate_completion_mode(field, spec, errors);
    if has(spec, "/podFailurePolicy") {
        validate_pod_failure_policy(field, spec, errors);
    }
    if has(spec, "/successPolicy") {
        validate_success_policy(field, spec, errors);
    }
    validate_replacement_policy(field, spec, errors);
    validate_template_metadata(&format!("{field}.template"), get(spec, "/template"), errors);
    let pod_spec = format!("{field}.template.spec");
    pods::validate(&pod_spec, object, old, pods::RESTART_POLICIES, errors);
    validate_restart_policy(&pod_spec, spec, errors);
}

fn validate_completion_mode(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    match get(spec, "/completionMode") {
        Value::Null => validate_no_indexes(field, spec, errors),
        mode if mode == "NonIndexed" => validate_no_indexes(field, spec, errors),
        mode if mode == "Indexed" => validate_indexed(field, spec, errors),
        mode => errors.push(FieldError::not_supported(
            format!("{field}.completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        )),
    }
}

fn validate_no_indexes(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        let value = get(spec, &format!("/{name}"));
        if !value.is_null() {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                value,
                "requires indexed completion mode",
            ));
        }
    }
}

fn validate_indexed(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let number = |name: &str| int(spec, &format!("/{name}"));
    let completions = number("completions");
    let parallelism = number("parallelism").unwrap_or(0);
    let failed = number("maxFailedIndexes").unwrap_or(0);
    if completions.is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(format!("{field}.completions"), detail));
    }
    let mut refuse_above = |name: &str, value: i64, limit: i64, suffix: &str| {
        if value > limit {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                &value.into(),
                format!("must be less than or equal to {limit}{suffix}"),
            ));
        }
    };
    let suffix = " when completion mode is Indexed";
    refuse_above("parallelism", parallelism, MAX_INDEXED_PARALLELISM, suffix);
    let is_many = completions.is_some_and(|n| n > MAX_PLAIN_COMPLETIONS);
    let has_limit = has(spec, "/backoffLimitPerIndex");
    refuse_above("maxFailedIndexes", failed, MAX_FAILED_INDEXES, "");
    if is_many && has_limit {
        let suffix = format!(
            " when completions are above {MAX_PLAIN_COMPLETIONS} and used with backoff limit per index"
        );
        refuse_above("parallelism", parallelism, MAX_PARALLELISM_OF_MANY, &suffix);
        refuse_above(
            "maxFailedIndexes",
            failed,
            MAX_FAILED_INDEXES_OF_MANY,
            &suffix,
        );
    }
    let field = format!("{field}.maxFailedIndexes");
    if completions.is_some_and(|completions| failed > completions) {
        let detail = "must be less than or equal to completions";
        errors.push(FieldError::invalid(&field, &failed.into(), detail));
    }
    if is_many && has_limit && !has(spec, "/maxFailedIndexes") {
        let detail = format!("must be specified when completions is above {MAX_PLAIN_COMPLETIONS}");
        errors.push(FieldError::required(field, &detail));
    }
}

fn validate_replacement_policy(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = get(spec, "/podReplacementPolicy");
    let supported = match has(spec, "/podFailurePolicy") {
        true => &REPLACEMENT_POLICIES[..1],
        false => &REPLACEMENT_POLICIES[..],
    };
    if !policy.is_null()
        && !supported
            .iter()
            .any(|supported_policy| policy == supported_policy)
    {
        errors.push(FieldError::not_supported(
            format!("{field}.podReplacementPolicy"),
            policy,
            supported,
        ));
    }
}

/// Pods of a Job end; the default of a pod is to start again.
fn validate_restart_policy(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.restartPolicy");
    let policy = get(spec, "/template/spec/restartPolicy");
    let error = match policy.as_str().unwrap_or("") {
        "" | "Always" => FieldError::required(field, r#"valid values: "OnFailure", "Never""#),
        "OnFailure" if has(spec, "/podFailurePolicy") => FieldError::invalid(
            field,
            policy,
            r#"only "Never" is supported when podFailurePolicy is specified"#,
        ),
        "OnFailure" | "Never" => return,
        _ => FieldError::not_supported(field, policy, &["OnFailure", "Never"]),
    };
    errors.push(error);
}
