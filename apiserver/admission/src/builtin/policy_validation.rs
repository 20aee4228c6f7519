//! Validates what admission policies of all kinds and their bindings have in common
//! (`pkg/apis/admissionregistration/validation/validation.go`).

use std::collections::HashSet;

use kubernetes_cel::{AdmissionExpressions, DeclaredAdmissionVariables, OutputType};
use machinery::FieldError;
use machinery::names::{
    validate_dns1035_label, validate_dns1123_subdomain, validate_path_segment_name,
    validate_qualified_name,
};
use serde_json::Value;

use super::admission_webhooks::{validate_enumeration, validate_rule};
use super::label_selectors::{SelectorValues, validate_label_selector};
use super::match_conditions::{report_expression, validate_match_conditions};
use crate::unstructured::{get, has, index_path, items, report_invalid, text};

const MAX_AUDIT_ANNOTATION_EXPRESSION_BYTES: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// Collects the errors of one policy and compiles its expressions.
pub(super) struct PolicyValidation<'e> {
    pub(super) expressions: AdmissionExpressions,
    pub(super) declared: DeclaredAdmissionVariables,
    pub(super) errors: &'e mut Vec<FieldError>,
}

impl<'e> PolicyValidation<'e> {
    /// Validates what policies of both kinds have in common, and compiles the variables.
    pub(super) fn begin(
        spec: &Value,
        old: Option<&Value>,
        composed: bool,
        errors: &'e mut Vec<FieldError>,
    ) -> Self {
        validate_required_enumeration("spec.failurePolicy", spec, &["Fail", "Ignore"], errors);
        let has_params = has(spec, "/paramKind");
        if has_params {
            validate_param_kind("spec.paramKind", get(spec, "/paramKind"), errors);
        }
        let constraints = get(spec, "/matchConstraints");
        if constraints.is_null() {
            errors.push(FieldError::required("spec.matchConstraints", ""));
        } else {
            validate_match_resources("spec.matchConstraints", constraints, errors);
            if items(constraints, "/resourceRules").is_empty() {
                errors.push(FieldError::required(
                    "spec.matchConstraints.resourceRules",
                    "",
                ));
            }
        }
        let unchanged = |field: &str| {
            old.is_some_and(|old| get(old, &format!("/spec{field}")) == get(spec, field))
        };
        if !(unchanged("/paramKind") && unchanged("/matchConditions")) {
            validate_match_conditions("spec.matchConditions", spec, has_params, errors);
        }
        let mut validation = Self {
            expressions: match composed {
                true => AdmissionExpressions::composed(),
                false => AdmissionExpressions::new(),
            },
            declared: DeclaredAdmissionVariables {
                params: has_params,
                authorizer: true,
                patch_types: false,
            },
            errors,
        };
        for (i, variable) in items(spec, "/variables").iter().enumerate() {
            validation.variable(&index_path("spec.variables", i), variable);
        }
        validation
    }

    fn variable(&mut self, field: &str, variable: &Value) {
        let (name, expression) = (text(variable, "/name"), text(variable, "/expression"));
        let path = format!("{field}.name");
        if name.trim().is_empty() {
            self.errors
                .push(FieldError::required(path, "name is not specified"));
        } else if !is_identifier(name) {
            let detail = "name is not a valid CEL identifier";
            self.errors
                .push(FieldError::invalid(path, &name.into(), detail));
        }
        let path = format!("{field}.expression");
        if expression.trim().is_empty() {
            self.errors
                .push(FieldError::required(path, "expression is not specified"));
            return;
        }
        let error = self
            .expressions
            .add_variable(name, expression, self.declared);
        report_expression(&path, expression, error.as_deref(), self.errors);
    }

    pub(super) fn validation(&mut self, field: &str, written: &Value) {
        let expression = text(written, "/expression");
        let path = format!("{field}.expression");
        if expression.trim().is_empty() {
            self.errors
                .push(FieldError::required(path, "expression is not specified"));
        } else {
            self.expression(&path, expression, OutputType::Bool, self.declared);
        }
        let message_expression = text(written, "/messageExpression");
        let path = format!("{field}.messageExpression");
        if !message_expression.trim().is_empty() {
            let declared = DeclaredAdmissionVariables {
                authorizer: false,
                ..self.declared
            };
            self.expression(&path, message_expression, OutputType::String, declared);
        } else if !message_expression.is_empty() {
            let detail = "must be non-empty if specified";
            let error = FieldError::invalid(path, &message_expression.into(), detail);
            self.errors.push(error);
        }
        let message = text(written, "/message");
        let fault = match message.trim() {
            "" if message.is_empty() => None,
            "" => Some("message must be non-empty if specified"),
            lines if lines.contains(['\n', '\r']) => Some("message must not contain line breaks"),
            _ => None,
        };
        if let Some(detail) = fault {
            let error = FieldError::invalid(format!("{field}.message"), &message.into(), detail);
            self.errors.push(error);
        }
        validate_enumeration(
            &format!("{field}.reason"),
            written,
            "reason",
            &REASONS,
            self.errors,
        );
    }

    fn expression(
        &mut self,
        field: &str,
        expression: &str,
        output: OutputType,
        declared: DeclaredAdmissionVariables,
    ) {
        let compiled = self.expressions.compile(expression, output, declared);
        report_expression(field, expression, compiled.error(), self.errors);
    }

    pub(super) fn audit_annotation(&mut self, field: &str, policy: &str, annotation: &Value) {
        let key = text(annotation, "/key");
        let path = format!("{field}.key");
        if policy.is_empty() {
            let detail = "requires metadata.name be non-empty";
            self.errors
                .push(FieldError::invalid(path, &key.into(), detail));
        } else {
            let qualified_key = format!("{policy}/{key}");
            report_invalid(
                &path,
                &qualified_key,
                validate_qualified_name(&qualified_key),
                self.errors,
            );
        }
        let written = text(annotation, "/valueExpression");
        let expression = written.trim();
        let path = format!("{field}.valueExpression");
        if expression.is_empty() {
            let detail = "valueExpression is not specified";
            self.errors.push(FieldError::required(path, detail));
        } else if expression.len() > MAX_AUDIT_ANNOTATION_EXPRESSION_BYTES {
            let max = MAX_AUDIT_ANNOTATION_EXPRESSION_BYTES;
            let detail = format!("must not exceed {max} bytes in length");
            self.errors.push(FieldError::required(path, &detail));
        } else {
            let output = OutputType::StringOrNull;
            let compiled = self.expressions.compile(expression, output, self.declared);
            report_expression(&path, written, compiled.error(), self.errors);
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !kubernetes_cel::is_reserved_name(name)
}

/// Requires a field of the spec to be one of a set of values.
pub(super) fn validate_required_enumeration(
    field: &str,
    spec: &Value,
    supported: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let name = field.rsplit('.').next().unwrap_or(field);
    if text(spec, &format!("/{name}")).is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        validate_enumeration(field, spec, name, supported, errors);
    }
}

fn validate_param_kind(field: &str, param_kind: &Value, errors: &mut Vec<FieldError>) {
    let api_version = text(param_kind, "/apiVersion");
    let path = format!("{field}.apiVersion");
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts[..] {
        [""] => errors.push(FieldError::required(&path, "")),
        [version] => report_invalid(&path, version, validate_dns1035_label(version), errors),
        [group, version] => {
            if !group.is_empty() {
                report_invalid(&path, group, validate_dns1123_subdomain(group), errors);
            }
            if version.is_empty() {
                let detail = "version must be specified";
                errors.push(FieldError::invalid(&path, &api_version.into(), detail));
            } else {
                report_invalid(&path, version, validate_dns1035_label(version), errors);
            }
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            errors.push(FieldError::invalid(&path, &api_version.into(), detail));
        }
    }
    let kind = text(param_kind, "/kind");
    let path = format!("{field}.kind");
    if kind.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Err(detail) = validate_dns1035_label(&kind.to_ascii_lowercase()) {
        let detail = format!("may have mixed case, but should otherwise match: {detail}");
        errors.push(FieldError::invalid(path, &kind.into(), detail));
    }
}

pub(super) fn validate_match_resources(
    field: &str,
    resources: &Value,
    errors: &mut Vec<FieldError>,
) {
    if resources.is_null() {
        return;
    }
    let path = format!("{field}.matchPolicy");
    validate_required_enumeration(&path, resources, &["Equivalent", "Exact"], errors);
    for name in ["namespaceSelector", "objectSelector"] {
        let path = format!("{field}.{name}");
        match get(resources, &format!("/{name}")) {
            Value::Null => errors.push(FieldError::required(path, "")),
            selector => {
                validate_label_selector(&path, selector, SelectorValues::Strict, errors);
            }
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let rules = items(resources, &format!("/{name}"));
        for (i, rule) in rules.iter().enumerate() {
            validate_named_rule(&index_path(&format!("{field}.{name}"), i), rule, errors);
        }
    }
}

fn validate_named_rule(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, name) in items(rule, "/resourceNames").iter().enumerate() {
        let path = index_path(&format!("{field}.resourceNames"), i);
        let name = name.as_str().unwrap_or_default();
        report_invalid(&path, name, validate_path_segment_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&path, &name.into()));
        }
    }
    validate_rule(field, rule, errors);
}

pub(super) fn validate_policy_name(spec: &Value, errors: &mut Vec<FieldError>) {
    let name = text(spec, "/policyName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.policyName", ""));
    } else {
        report_invalid(
            "spec.policyName",
            name,
            validate_dns1123_subdomain(name),
            errors,
        );
    }
}

pub(super) fn validate_param_ref(reference: &Value, errors: &mut Vec<FieldError>) {
    if reference.is_null() {
        return;
    }
    let field = "spec.paramRef";
    let exclusive = "name and selector are mutually exclusive";
    let (name, selector) = (text(reference, "/name"), get(reference, "/selector"));
    if !name.is_empty() {
        let path = format!("{field}.name");
        report_invalid(&path, name, validate_path_segment_name(name), errors);
        if !selector.is_null() {
            errors.push(FieldError::forbidden(&path, exclusive));
        }
    }
    if !selector.is_null() {
        let path = format!("{field}.selector");
        validate_label_selector(&path, selector, SelectorValues::Strict, errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&path, exclusive));
        }
    }
    if name.is_empty() && selector.is_null() {
        let detail = "one of name or selector must be specified";
        errors.push(FieldError::required(field, detail));
    }
    let path = format!("{field}.parameterNotFoundAction");
    validate_required_enumeration(&path, reference, &["Deny", "Allow"], errors);
}
