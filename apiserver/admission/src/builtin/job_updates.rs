//! Validates updates of Jobs: a Job that runs keeps its pods as they are.

use machinery::FieldError;
use serde_json::{Map, Value};

use crate::unstructured::{get, int, items, text, validate_immutable_field};

const FIXED_FIELDS: [&str; 5] = [
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

pub(super) fn validate(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_completions(new, old, errors);
    validate_immutable_field(new, old, "spec.selector", errors);
    validate_template(new, old, errors);
    for field in FIXED_FIELDS {
        validate_immutable_field(new, old, &format!("spec.{field}"), errors);
    }
}

/// A Job whose pods have indexes changes completions and parallelism together.
fn validate_completions(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.completions";
    if text(new, "/spec/completionMode") != "Indexed" {
        validate_immutable_field(new, old, field, errors);
        return;
    }
    let completions = get(new, "/spec/completions");
    if !completions.is_null()
        && completions != get(old, "/spec/completions")
        && completions != get(new, "/spec/parallelism")
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(field, completions, detail));
    }
}

/// The template of a suspended Job without pods may change where its pods run and what they
/// request.
fn validate_template(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !is_idle(old) {
        validate_immutable_field(new, old, "spec.template", errors);
        return;
    }
    let field = "spec.template.spec";
    let (spec, old_spec) = (
        get(new, "/spec/template/spec"),
        get(old, "/spec/template/spec"),
    );
    if fixed_pod_spec(spec) != fixed_pod_spec(old_spec) || changes_containers(spec, old_spec) {
        errors.push(FieldError::invalid(field, spec, "field is immutable"));
    }
}

fn is_idle(job: &Value) -> bool {
    let is_suspended = |condition: &Value| {
        text(condition, "/type") == "Suspended" && text(condition, "/status") == "True"
    };
    let mut conditions = items(job, "/status/conditions").iter();
    *get(job, "/spec/suspend") == true
        && int(job, "/status/active").unwrap_or(0) == 0
        && (get(job, "/status/startTime").is_null() || conditions.any(is_suspended))
}

/// The parts of a pod spec that stay, beside its containers.
fn fixed_pod_spec(spec: &Value) -> Map<String, Value> {
    let mut fixed = spec.as_object().cloned().unwrap_or_default();
    for field in [
        "nodeSelector",
        "tolerations",
        "schedulingGates",
        "containers",
        "initContainers",
    ] {
        fixed.remove(field);
    }
    if let Some(Value::Object(affinity)) = fixed.get_mut("affinity") {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            fixed.remove("affinity");
        }
    }
    fixed
}

/// Whether containers differ in more than their resources.
fn changes_containers(new: &Value, old: &Value) -> bool {
    let fixed = |container: &Value| {
        let mut fixed = container.as_object().cloned().unwrap_or_default();
        fixed.remove("resources");
        fixed
    };
    ["/containers", "/initContainers"].iter().any(|list| {
        let (new, old) = (items(new, list).iter(), items(old, list).iter());
        !new.map(fixed).eq(old.map(fixed))
    })
}
