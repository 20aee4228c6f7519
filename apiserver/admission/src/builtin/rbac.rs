//! Validates RBAC roles and bindings.

use machinery::FieldError;
use machinery::names::{validate_dns1123_subdomain, validate_path_segment_name};
use serde_json::Value;

use super::label_selectors::{SelectorValues, validate_label_selector};
use crate::unstructured::{get, has, index_path, items, report_invalid, text};

const GROUP: &str = "rbac.authorization.k8s.io";
const SELECTORS: &str = "/aggregationRule/clusterRoleSelectors";

pub(super) fn validate(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match kind {
        "Role" | "ClusterRole" => {
            for (i, rule) in items(new, "/rules").iter().enumerate() {
                validate_policy_rule(&index_path("rules", i), rule, kind == "Role", errors);
            }
            let old = old.map_or(&[][..], |old| items(old, SELECTORS));
            validate_aggregation_rule(get(new, "/aggregationRule"), old, errors);
        }
        "RoleBinding" => validate_binding(&["Role", "ClusterRole"], new, old, errors),
        "ClusterRoleBinding" => validate_binding(&["ClusterRole"], new, old, errors),
        _ => {}
    }
}

fn validate_policy_rule(field: &str, rule: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let is_empty = |name: &str| items(rule, &format!("/{name}")).is_empty();
    if is_empty("verbs") {
        errors.push(FieldError::required(
            format!("{field}.verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !is_empty("nonResourceURLs") {
        let urls = get(rule, "/nonResourceURLs");
        let mut refuse = |detail: &str| {
            let field = format!("{field}.nonResourceURLs");
            errors.push(FieldError::invalid(field, urls, detail));
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !is_empty("apiGroups") || !is_empty("resources") || !is_empty("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if is_empty("apiGroups") {
        errors.push(FieldError::required(
            format!("{field}.apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if is_empty("resources") {
        errors.push(FieldError::required(
            format!("{field}.resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

fn validate_aggregation_rule(rule: &Value, old: &[Value], errors: &mut Vec<FieldError>) {
    if rule.is_null() {
        return;
    }
    let field = "aggregationRule.clusterRoleSelectors";
    let selectors = items(rule, "/clusterRoleSelectors");
    if selectors.is_empty() {
        errors.push(FieldError::required(
            field,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    let values = SelectorValues::of_old(old);
    for (i, selector) in selectors.iter().enumerate() {
        validate_label_selector(&index_path(field, i), selector, values, errors);
    }
}

fn validate_binding(
    kinds: &[&str],
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let role = get(new, "/roleRef");
    if text(role, "/apiGroup") != GROUP {
        errors.push(FieldError::not_supported(
            "roleRef.apiGroup",
            get(role, "/apiGroup"),
            &[GROUP],
        ));
    }
    if !kinds.contains(&text(role, "/kind")) {
        errors.push(FieldError::not_supported(
            "roleRef.kind",
            get(role, "/kind"),
            kinds,
        ));
    }
    let name = text(role, "/name");
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        report_invalid(
            "roleRef.name",
            name,
            validate_path_segment_name(name),
            errors,
        );
    }
    let cluster = kinds.len() == 1;
    for (i, subject) in items(new, "/subjects").iter().enumerate() {
        validate_subject(&index_path("subjects", i), subject, cluster, errors);
    }
    if let Some(old) = old
        && get(old, "/roleRef") != role
    {
        errors.push(FieldError::invalid(
            "roleRef",
            role,
            "cannot change roleRef",
        ));
    }
}

fn validate_subject(field: &str, subject: &Value, cluster: bool, errors: &mut Vec<FieldError>) {
    let name = text(subject, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let group = match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let result = validate_dns1123_subdomain(name);
                report_invalid(format!("{field}.name"), name, result, errors);
            }
            if cluster && text(subject, "/namespace").is_empty() {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        _ => {
            errors.push(FieldError::not_supported(
                format!("{field}.kind"),
                get(subject, "/kind"),
                &["ServiceAccount", "User", "Group"],
            ));
            return;
        }
    };
    // An absent apiGroup defaults by kind.
    if has(subject, "/apiGroup") && text(subject, "/apiGroup") != group {
        errors.push(FieldError::not_supported(
            format!("{field}.apiGroup"),
            get(subject, "/apiGroup"),
            &[group],
        ));
    }
}
