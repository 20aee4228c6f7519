//! Validates RBAC roles and bindings.

use machinery::names::path_segment;
use machinery::{FieldError, LabelSelector};
use serde_json::Value;

use crate::tree::{check, get, has, items, nth, text};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn validate(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match kind {
        "Role" | "ClusterRole" => {
            for (i, rule) in items(new, "/rules").iter().enumerate() {
                policy_rule(&nth("rules", i), rule, kind == "Role", errors);
            }
            aggregation(get(new, "/aggregationRule"), errors);
        }
        "RoleBinding" => binding(&["ClusterRole", "Role"], new, old, errors),
        "ClusterRoleBinding" => binding(&["ClusterRole"], new, old, errors),
        _ => {}
    }
}

fn policy_rule(field: &str, rule: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let none = |name: &str| items(rule, &format!("/{name}")).is_empty();
    if none("verbs") {
        errors.push(FieldError::required(
            format!("{field}.verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !none("nonResourceURLs") {
        let urls = get(rule, "/nonResourceURLs");
        let why = if namespaced {
            "namespaced rules cannot apply to non-resource URLs"
        } else if !none("apiGroups") || !none("resources") || !none("resourceNames") {
            "rules cannot apply to both regular resources and non-resource URLs"
        } else {
            return;
        };
        errors.push(FieldError::invalid(
            format!("{field}.nonResourceURLs"),
            urls,
            why,
        ));
        return;
    }
    if none("apiGroups") {
        errors.push(FieldError::required(
            format!("{field}.apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if none("resources") {
        errors.push(FieldError::required(
            format!("{field}.resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

fn aggregation(rule: &Value, errors: &mut Vec<FieldError>) {
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
    for (i, selector) in selectors.iter().enumerate() {
        if let Err(why) = LabelSelector::from_value(selector) {
            errors.push(FieldError::invalid(nth(field, i), selector, why));
        }
    }
}

fn binding(kinds: &[&str], new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
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
        check("roleRef.name", name, path_segment(name), errors);
    }
    let cluster = kinds.len() == 1;
    for (i, subject) in items(new, "/subjects").iter().enumerate() {
        self::subject(&nth("subjects", i), subject, cluster, errors);
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

fn subject(field: &str, subject: &Value, cluster: bool, errors: &mut Vec<FieldError>) {
    if text(subject, "/name").is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let group = match text(subject, "/kind") {
        "ServiceAccount" => {
            if cluster && !has(subject, "/namespace") {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        _ => {
            errors.push(FieldError::not_supported(
                format!("{field}.kind"),
                get(subject, "/kind"),
                &["Group", "ServiceAccount", "User"],
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
