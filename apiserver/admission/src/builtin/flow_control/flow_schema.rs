//! Validates FlowSchemas.

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::{Value, json};

use super::{mandatory_spec, validate_conditions};
use crate::unstructured::{flag, get, has, index_path, int, items, report_invalid, text, texts};

const MAX_MATCHING_PRECEDENCE: i64 = 10_000;
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

pub(crate) fn validate_flow_schema(new: &Value, errors: &mut Vec<FieldError>) {
    let name = text(new, "/metadata/name");
    let spec = get(new, "/spec");
    validate_precedence(name, spec, errors);
    let distinguisher = get(spec, "/distinguisherMethod");
    let methods = ["ByNamespace", "ByUser"];
    if !distinguisher.is_null() && !methods.contains(&text(distinguisher, "/type")) {
        let field = "spec.distinguisherMethod.type";
        errors.push(FieldError::not_supported(field, distinguisher, &methods));
    }
    let level = text(spec, "/priorityLevelConfiguration/name");
    let field = "spec.priorityLevelConfiguration.name";
    if level.is_empty() {
        errors.push(FieldError::required(
            field,
            "must reference a priority level",
        ));
    } else {
        report_invalid(field, level, validate_dns1123_subdomain(level), errors);
    }
    for (i, rule) in items(spec, "/rules").iter().enumerate() {
        validate_rule(&index_path("spec.rules", i), rule, errors);
    }
    if mandatory_spec("FlowSchema", name).is_some_and(|fixed| fixed != *spec) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.push(FieldError::invalid("spec", spec, detail));
    }
    validate_conditions(new, errors);
}

fn validate_precedence(name: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let precedence = int(spec, "/matchingPrecedence").unwrap_or(0);
    let mut invalid = |detail: &str| {
        let field = "spec.matchingPrecedence";
        errors.push(FieldError::invalid(field, &precedence.into(), detail));
    };
    if precedence <= 0 {
        invalid("must be a positive value");
    }
    if precedence > MAX_MATCHING_PRECEDENCE {
        invalid(&format!(
            "must not be greater than {MAX_MATCHING_PRECEDENCE}"
        ));
    }
    if precedence == 1 && name != "exempt" {
        invalid("only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn validate_rule(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    let subjects = items(rule, "/subjects");
    if subjects.is_empty() {
        errors.push(FieldError::required(
            format!("{field}.subjects"),
            "subjects must contain at least one value",
        ));
    }
    for (i, subject) in subjects.iter().enumerate() {
        validate_subject(&format!("{field}.subjects[{i}]"), subject, errors);
    }
    let resource_rules = items(rule, "/resourceRules");
    let url_rules = items(rule, "/nonResourceRules");
    if resource_rules.is_empty() && url_rules.is_empty() {
        errors.push(FieldError::required(
            field,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ));
    }
    for (i, rule) in resource_rules.iter().enumerate() {
        validate_resource_rule(&format!("{field}.resourceRules[{i}]"), rule, errors);
    }
    for (i, rule) in url_rules.iter().enumerate() {
        let field = format!("{field}.nonResourceRules[{i}]");
        validate_verbs(&field, rule, errors);
        validate_urls(&format!("{field}.nonResourceURLs"), rule, errors);
    }
}

/// The kinds of subjects, with the field of each.
const SUBJECT_KINDS: [(&str, &str); 3] = [
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
    ("Group", "group"),
];

fn validate_subject(field: &str, subject: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(subject, "/kind");
    let Some((_, member)) = SUBJECT_KINDS.iter().find(|(kinds, _)| *kinds == kind) else {
        let field = format!("{field}.kind");
        let kinds = ["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(field, &kind.into(), &kinds));
        return;
    };
    let member_path = format!("{field}.{member}");
    let details = get(subject, &format!("/{member}"));
    if details.is_null() {
        let detail = format!("{member} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(member_path, &detail));
    } else {
        let name = text(details, "/name");
        let name_field = format!("{member_path}.name");
        if name.is_empty() {
            errors.push(FieldError::required(name_field, ""));
        } else if *member == "serviceAccount" && name != "*" {
            report_invalid(name_field, name, validate_dns1123_subdomain(name), errors);
        }
        if *member == "serviceAccount" {
            let namespace = text(details, "/namespace");
            let field = format!("{member_path}.namespace");
            if namespace.is_empty() {
                let detail = "must specify namespace for service account";
                errors.push(FieldError::required(field, detail));
            } else {
                report_invalid(field, namespace, validate_dns1123_label(namespace), errors);
            }
        }
    }
    for (other_kind, other) in SUBJECT_KINDS {
        if other != *member && has(subject, &format!("/{other}")) {
            let detail = format!("{other} is forbidden when subject kind is not '{other_kind}'");
            errors.push(FieldError::forbidden(format!("{field}.{other}"), &detail));
        }
    }
}

fn validate_verbs(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    let verbs: Vec<&str> = texts(rule, "/verbs").collect();
    let field = format!("{field}.verbs");
    if verbs.is_empty() {
        errors.push(FieldError::required(
            field,
            "verbs must contain at least one value",
        ));
    } else if verbs.contains(&"*") {
        if verbs.len() > 1 {
            let detail = "if '*' is present, must not specify other verbs";
            errors.push(FieldError::invalid(field, &json!(verbs), detail));
        }
    } else if verbs.iter().any(|verb| !VERBS.contains(verb)) {
        errors.push(FieldError::not_supported(field, &json!(verbs), &VERBS));
    }
}

fn validate_resource_rule(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    validate_verbs(field, rule, errors);
    for (list, singular, plural) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let values: Vec<&str> = texts(rule, &format!("/{list}")).collect();
        let field = format!("{field}.{list}");
        if values.is_empty() {
            let detail = format!("resource rules must supply at least one {singular}");
            errors.push(FieldError::required(field, &detail));
        } else if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {plural}");
            errors.push(FieldError::invalid(field, &json!(values), detail));
        }
    }
    let namespaces: Vec<&str> = texts(rule, "/namespaces").collect();
    let field = format!("{field}.namespaces");
    if namespaces.is_empty() && !flag(rule, "/clusterScope") {
        let detail =
            "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(FieldError::required(field, detail));
    } else if namespaces.contains(&"*") {
        if namespaces.len() > 1 {
            let detail = "if '*' is present, must not specify other namespaces";
            errors.push(FieldError::invalid(field, &json!(namespaces), detail));
        }
    } else {
        for (i, namespace) in namespaces.iter().enumerate() {
            let result = validate_dns1123_label(namespace).map_err(|detail| {
                format!("each member of this list must be '*' or a DNS-1123 label; {detail}")
            });
            report_invalid(index_path(&field, i), namespace, result, errors);
        }
    }
}

fn validate_urls(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    let urls: Vec<&str> = texts(rule, "/nonResourceURLs").collect();
    if urls.is_empty() {
        let detail = "nonResourceURLs must contain at least one value";
        errors.push(FieldError::required(field, detail));
    } else if urls.contains(&"*") {
        if urls.len() > 1 {
            let detail = "if '*' is present, must not specify other non-resource URLs";
            errors.push(FieldError::invalid(field, &json!(urls), detail));
        }
    } else {
        for (i, url) in urls.iter().enumerate() {
            let result = validate_url(url).map_err(str::to_owned);
            report_invalid(index_path(field, i), url, result, errors);
        }
    }
}

fn validate_url(url: &str) -> Result<(), &'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Err("must not be empty"),
        "/" => Ok(()),
        _ if !url.starts_with('/') => Err("must start with slash"),
        _ if url.contains(' ') => Err("must not contain white-space"),
        _ if url.contains("//") => Err("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => {
            Err("wildcard can only do suffix matching")
        }
        _ => Ok(()),
    }
}
