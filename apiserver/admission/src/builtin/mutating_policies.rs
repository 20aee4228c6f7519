//! Validates MutatingAdmissionPolicies and their bindings.

use kubernetes_cel::{DeclaredAdmissionVariables, OutputType};
use machinery::FieldError;
use serde_json::Value;

use super::match_conditions::report_expression;
use super::policy_validation::{
    PolicyValidation, validate_match_resources, validate_param_ref, validate_policy_name,
    validate_required_enumeration,
};
use crate::unstructured::{get, has, index_path, items, text};

const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];

pub(super) fn validate_mutating_policy(
    policy: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(policy, "/spec");
    let mut validation = PolicyValidation::begin(spec, old, true, errors);
    let rules = get(spec, "/matchConstraints");
    validate_operations(
        "spec.matchConstraints.resourceRules.operations",
        rules,
        validation.errors,
    );
    let mutations = items(spec, "/mutations");
    if mutations.is_empty() {
        let detail = "mutations must contain at least one item";
        validation
            .errors
            .push(FieldError::required("spec.mutations", detail));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        validation.mutation(&index_path("spec.mutations", i), mutation);
    }
    let field = "spec.reinvocationPolicy";
    validate_required_enumeration(field, spec, &["IfNeeded", "Never"], validation.errors);
}

pub(super) fn validate_mutating_binding(binding: &Value, errors: &mut Vec<FieldError>) {
    let spec = get(binding, "/spec");
    validate_policy_name(spec, errors);
    validate_param_ref(get(spec, "/paramRef"), errors);
    let resources = get(spec, "/matchResources");
    validate_match_resources("spec.matchResources", resources, errors);
    validate_operations(
        "spec.matchResources.resourceRules.operations",
        resources,
        errors,
    );
}

/// Deletions have no object that could be changed.
fn validate_operations(field: &str, resources: &Value, errors: &mut Vec<FieldError>) {
    for rule in items(resources, "/resourceRules") {
        for operation in items(rule, "/operations") {
            if !OPERATIONS
                .iter()
                .any(|supported_operation| operation == supported_operation)
            {
                errors.push(FieldError::not_supported(field, operation, &OPERATIONS));
            }
        }
    }
}

impl PolicyValidation<'_> {
    fn mutation(&mut self, field: &str, mutation: &Value) {
        let (used, other, output) = match text(mutation, "/patchType") {
            "" => {
                let error = FieldError::required(format!("{field}.patchType"), "");
                self.errors.push(error);
                return;
            }
            "JSONPatch" => ("jsonPatch", "applyConfiguration", OutputType::JsonPatch),
            "ApplyConfiguration" => (
                "applyConfiguration",
                "jsonPatch",
                OutputType::ApplyConfiguration,
            ),
            _ => {
                let patch_type = get(mutation, "/patchType");
                let path = format!("{field}.patchType");
                let error = FieldError::not_supported(path, patch_type, &PATCH_TYPES);
                self.errors.push(error);
                return;
            }
        };
        let patch_type = text(mutation, "/patchType");
        if has(mutation, &format!("/{used}")) {
            let expression = text(mutation, &format!("/{used}/expression")).trim();
            self.patch(&format!("{field}.{used}.expression"), expression, output);
        } else {
            let detail = format!("must be specified when patchType is {patch_type}");
            let error = FieldError::required(format!("{field}.{used}"), &detail);
            self.errors.push(error);
        }
        if has(mutation, &format!("/{other}")) {
            let detail = format!("must not be specified when patchType is {patch_type}");
            let value = format!("{{{other}}}").into();
            let error = FieldError::invalid(format!("{field}.{other}"), &value, detail);
            self.errors.push(error);
        }
    }

    fn patch(&mut self, field: &str, expression: &str, output: OutputType) {
        if expression.is_empty() {
            self.errors.push(FieldError::required(field, ""));
            return;
        }
        let declared = DeclaredAdmissionVariables {
            patch_types: true,
            ..self.declared
        };
        let compiled = self.expressions.compile(expression, output, declared);
        report_expression(field, expression, compiled.error(), self.errors);
    }
}
