//! Mutates and validates PropagationPolicy and ClusterPropagationPolicy: defaults,
//! permanent ID and finalizer. Deterministic except for the random ID. Rules of
//! Karmada's `webhook/{propagationpolicy,clusterpropagationpolicy}` and
//! `util/validation/validation.go`.

use karmada_api::failover::automatic_failover_delay;
use karmada_api::well_known_keys;
use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;
use uuid::Uuid;

use crate::attributes::{AdmissionAttributes, AdmissionOperation};
use crate::unstructured::{
    entries, flag, get, has, index_path, int, items, items_mut, object_mut, report_invalid, text,
};
use crate::{metadata, placement};

/// The label and finalizer in which the two kinds differ.
struct PolicyKeys {
    label: &'static str,
    finalizer: &'static str,
}

const NAMESPACED_POLICY: PolicyKeys = PolicyKeys {
    label: well_known_keys::POLICY_ID,
    finalizer: well_known_keys::POLICY_FINALIZER,
};
const CLUSTER_POLICY: PolicyKeys = PolicyKeys {
    label: well_known_keys::CLUSTER_POLICY_ID,
    finalizer: well_known_keys::CLUSTER_POLICY_FINALIZER,
};

fn policy_identity(attributes: &AdmissionAttributes<'_>) -> &'static PolicyKeys {
    if attributes.namespace.is_empty() {
        &CLUSTER_POLICY
    } else {
        &NAMESPACED_POLICY
    }
}

pub(crate) fn mutate(attributes: &AdmissionAttributes<'_>, policy: &mut Value) {
    default_selector_namespaces(attributes.namespace, policy);
    for constraint in items_mut(policy, "/spec/placement/spreadConstraints") {
        let no_dimension = text(constraint, "/spreadByField").is_empty()
            && text(constraint, "/spreadByLabel").is_empty();
        let no_minimum = int(constraint, "/minGroups").unwrap_or(0) == 0;
        if let Some(fields) = constraint.as_object_mut() {
            if no_dimension {
                fields.insert("spreadByField".into(), "cluster".into());
            }
            if no_minimum {
                fields.insert("minGroups".into(), 1.into());
            }
        }
    }
    let imports = items(policy, "/spec/resourceSelectors").iter().any(|s| {
        text(s, "/apiVersion") == "multicluster.x-k8s.io/v1alpha1"
            && text(s, "/kind") == "ServiceImport"
    });
    if imports && let Some(spec) = object_mut(policy, &["spec"]) {
        spec.insert("propagateDeps".into(), true.into());
    }
    let strategy = get(policy, "/spec/placement/replicaScheduling");
    if text(strategy, "/replicaSchedulingType") == "Divided"
        && text(strategy, "/replicaDivisionPreference").is_empty()
        && let Some(strategy) = object_mut(policy, &["spec", "placement", "replicaScheduling"])
    {
        strategy.insert("replicaDivisionPreference".into(), "Weighted".into());
    }
    let application = get(policy, "/spec/failover/application");
    if text(application, "/purgeMode") == "Gracefully"
        && !has(application, "/gracePeriodSeconds")
        && let Some(application) = object_mut(policy, &["spec", "failover", "application"])
    {
        application.insert("gracePeriodSeconds".into(), 600.into());
    }
    if attributes.operation == AdmissionOperation::Create {
        set_permanent_id_and_finalizer(policy_identity(attributes), policy);
    }
}

/// Defaults the namespace of resource selectors to the policy's own.
pub(crate) fn default_selector_namespaces(namespace: &str, policy: &mut Value) {
    if namespace.is_empty() {
        return;
    }
    for selector in items_mut(policy, "/spec/resourceSelectors") {
        if text(selector, "/namespace").is_empty()
            && let Some(fields) = selector.as_object_mut()
        {
            fields.insert("namespace".into(), namespace.into());
        }
    }
}

fn set_permanent_id_and_finalizer(variant: &PolicyKeys, policy: &mut Value) {
    if let Some(labels) = object_mut(policy, &["metadata", "labels"]) {
        labels.insert(variant.label.into(), Uuid::new_v4().to_string().into());
    }
    if let Some(metadata) = object_mut(policy, &["metadata"]) {
        let finalizers = metadata
            .entry("finalizers")
            .or_insert_with(|| Value::Array(Vec::new()));
        if finalizers.is_null() {
            *finalizers = Value::Array(Vec::new());
        }
        if let Value::Array(list) = finalizers
            && !list.iter().any(|f| f == variant.finalizer)
        {
            list.push(variant.finalizer.into());
        }
    }
}

/// Requires a permanent ID; forbids changes of it and of the scheduler name.
pub(crate) fn validate_identity(
    attributes: &AdmissionAttributes<'_>,
    policy: &Value,
    old: Option<&Value>,
) -> Result<(), String> {
    let label = policy_identity(attributes).label;
    let id = |object: &Value| get(object, "/metadata/labels").get(label).cloned();
    if let Some(old) = old {
        if text(old, "/spec/schedulerName") != text(policy, "/spec/schedulerName") {
            return Err("the schedulerName should not be updated".into());
        }
        let id = |object: &Value| id(object).unwrap_or_else(|| "".into());
        if id(old) != id(policy) {
            return Err(format!(
                "label {label} is immutable, it can only be set by the system during creation"
            ));
        }
    }
    if id(policy).is_none() {
        return Err(format!(
            "label {label} is required, it should be set by the mutating admission webhook during creation"
        ));
    }
    Ok(())
}

pub(crate) fn validate(attributes: &AdmissionAttributes<'_>, policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(policy, "/spec");
    placement::validate(get(spec, "/placement"), &mut errors);
    validate_failover(spec, &mut errors);
    validate_selectors(attributes.namespace, spec, &mut errors);
    validate_suspension(spec, &mut errors);
    validate_automatic_failover(policy, &mut errors);
    // It holds the deletion of templates; Karmada does not have it.
    metadata::validate_switch(policy, well_known_keys::WAIT_FOR_REMOVAL, &mut errors);
    errors
}

/// Validates the annotations of automatic failover, which Karmada does not have.
fn validate_automatic_failover(policy: &Value, errors: &mut Vec<FieldError>) {
    let annotations = entries(policy, "/metadata/annotations")
        .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
        .collect();
    if let Err(invalid) = automatic_failover_delay(&annotations) {
        let field = format!("metadata.annotations[{}]", invalid.key);
        errors.push(FieldError::invalid(
            field,
            &invalid.value.into(),
            invalid.reason,
        ));
    }
}

fn validate_failover(spec: &Value, errors: &mut Vec<FieldError>) {
    let application = get(spec, "/failover/application");
    if !application.is_null() {
        validate_application_failover(spec, application, errors);
    }
    validate_state_preservation(spec, "cluster", errors);
}

fn validate_state_preservation(spec: &Value, scope: &str, errors: &mut Vec<FieldError>) {
    let rules = items(spec, &format!("/failover/{scope}/statePreservation/rules"));
    for (i, rule) in rules.iter().enumerate() {
        let base = format!("spec.failover.{scope}.statePreservation.rules");
        let name = text(rule, "/aliasLabelName");
        let field = format!("{}.aliasLabelName", index_path(&base, i));
        report_invalid(field, name, validate_qualified_name(name), errors);
    }
}

fn validate_application_failover(spec: &Value, application: &Value, errors: &mut Vec<FieldError>) {
    if !flag(spec, "/propagateDeps") {
        errors.push(FieldError::invalid(
            "spec.propagateDeps",
            &false.into(),
            "application failover is set, propagateDeps must be true",
        ));
    }
    let base = "spec.failover.application";
    let tolerance = int(application, "/decisionConditions/tolerationSeconds");
    if tolerance.is_some_and(|t| t < 0) {
        errors.push(FieldError::invalid(
            format!("{base}.decisionConditions.tolerationSeconds"),
            &tolerance.into(),
            "must be greater than or equal to 0",
        ));
    }
    let grace = int(application, "/gracePeriodSeconds");
    let gracefully = text(application, "/purgeMode") == "Gracefully";
    let rules = [
        (
            grace.is_some() && !gracefully,
            "only takes effect when purgeMode is gracefully",
        ),
        (
            grace.is_none() && gracefully,
            "should not be empty when purgeMode is gracefully",
        ),
        (grace.is_some_and(|g| g <= 0), "must be greater than 0"),
    ];
    for (_, detail) in rules.into_iter().filter(|(broken, _)| *broken) {
        let field = format!("{base}.gracePeriodSeconds");
        errors.push(FieldError::invalid(field, &grace.into(), detail));
    }
    validate_state_preservation(spec, "application", errors);
}

fn validate_selectors(namespace: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let always = text(spec, "/preemption") == "Always";
    validate_selector_namespaces(namespace, spec, errors);
    for (i, selector) in items(spec, "/resourceSelectors").iter().enumerate() {
        if always && text(selector, "/name").is_empty() {
            errors.push(FieldError::invalid(
                format!("{}.name", index_path("spec.resourceSelectors", i)),
                &"".into(),
                "name cannot be empty if preemption is Always, the empty name may cause unexpected resources preemption",
            ));
        }
    }
}

/// Requires the selectors of a namespaced policy to select its own namespace.
pub(crate) fn validate_selector_namespaces(
    namespace: &str,
    spec: &Value,
    errors: &mut Vec<FieldError>,
) {
    if namespace.is_empty() {
        return;
    }
    for (i, selector) in items(spec, "/resourceSelectors").iter().enumerate() {
        let selected = text(selector, "/namespace");
        if selected != namespace {
            errors.push(FieldError::invalid(
                format!("{}.namespace", index_path("spec.resourceSelectors", i)),
                &selected.into(),
                "namespace of resource selector must be the same as the namespace of the policy",
            ));
        }
    }
}

fn validate_suspension(spec: &Value, errors: &mut Vec<FieldError>) {
    let clusters = get(spec, "/suspension/dispatchingOnClusters/clusterNames");
    if flag(spec, "/suspension/dispatching") && clusters.as_array().is_some_and(|c| !c.is_empty()) {
        errors.push(FieldError::invalid(
            // Karmada's path repeats the field name too.
            "spec.suspension.suspension",
            get(spec, "/suspension"),
            "suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames",
        ));
    }
}

#[cfg(test)]
mod tests;
