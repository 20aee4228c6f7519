//! Defaults and validates KubeFed's FederatedTypeConfig. Does no I/O. Rules of KubeFed's
//! `pkg/apis/core/v1beta1`, but only KubeFed's own namespace may hold one: a tenant must not switch
//! a kind off for the fleet.

use karmada_api::TYPE_CONFIG_NAMESPACE;
use machinery::FieldError;
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::unstructured::{get, text};

const RESOURCE_NAMES: [&str; 3] = ["version", "kind", "pluralName"];
const MAX_LABEL_CHARS: usize = 63;

/// The name of the object says the target's plural name and its group.
pub(crate) fn mutate(name: String, config: &mut Value) {
    let Some(target) = config.pointer_mut("/spec/targetType") else {
        return;
    };
    let Some(target) = target.as_object_mut() else {
        return;
    };
    let (plural, group) = name.split_once('.').unwrap_or((&name, ""));
    for (field, default) in [("pluralName", plural), ("group", group)] {
        let is_unset = |value: &Value| value.is_null() || *value == "";
        if !default.is_empty() && target.get(field).is_none_or(is_unset) {
            target.insert(field.to_owned(), default.into());
        }
    }
}

pub(crate) fn validate(attributes: &AdmissionAttributes<'_>, config: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let namespace = attributes.namespace;
    if namespace != TYPE_CONFIG_NAMESPACE {
        let supported = [TYPE_CONFIG_NAMESPACE];
        let error = FieldError::not_supported("metadata.namespace", &namespace.into(), &supported);
        errors.push(error);
    }
    let target = get(config, "/spec/targetType");
    let expected = match text(target, "/group") {
        "" => text(target, "/pluralName").to_owned(),
        group => format!("{}.{group}", text(target, "/pluralName")),
    };
    let name = text(config, "/metadata/name");
    if name != expected {
        let detail =
            format!("must be the plural name and the group of spec.targetType: {expected}");
        errors.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
    for (field, needs_domain) in [
        ("targetType", false),
        ("federatedType", true),
        ("statusType", true),
    ] {
        let resource = get(config, &format!("/spec/{field}"));
        if resource.is_object() {
            validate_resource(
                resource,
                &format!("spec.{field}"),
                needs_domain,
                &mut errors,
            );
        }
    }
    errors
}

/// `needs_domain`: the group must be a domain with a dot, as those of custom resources.
fn validate_resource(
    resource: &Value,
    path: &str,
    needs_domain: bool,
    errors: &mut Vec<FieldError>,
) {
    let group = text(resource, "/group");
    if needs_domain && !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        let field = format!("{path}.group");
        errors.push(match group {
            "" => FieldError::required(field, ""),
            group => FieldError::invalid(field, &group.into(), detail),
        });
    } else if !group.is_empty() && !group.split('.').all(is_label) {
        let detail = "must be a lowercase RFC 1123 subdomain";
        errors.push(FieldError::invalid(
            format!("{path}.group"),
            &group.into(),
            detail,
        ));
    }
    for name in RESOURCE_NAMES {
        let value = text(resource, &format!("/{name}"));
        // Kinds begin with a capital.
        let lowered = match name {
            "kind" => value.to_lowercase(),
            _ => value.to_owned(),
        };
        let starts = lowered.starts_with(|first: char| first.is_ascii_lowercase());
        if !(starts && is_label(&lowered)) {
            let detail = "must be a DNS label that starts with a letter";
            errors.push(FieldError::invalid(
                format!("{path}.{name}"),
                &value.into(),
                detail,
            ));
        }
    }
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_LABEL_CHARS
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ADM-type-config
    #[test]
    fn the_group_and_the_plural_name_follow_from_the_name() {
        for (name, target, expected) in [
            (
                "deployments.apps",
                json!({"kind": "Deployment"}),
                json!({"kind": "Deployment", "group": "apps", "pluralName": "deployments"}),
            ),
            ("secrets", json!({}), json!({"pluralName": "secrets"})),
            (
                "a.x.io",
                json!({"group": "b", "pluralName": "c"}),
                json!({"group": "b", "pluralName": "c"}),
            ),
        ] {
            let mut config = json!({"spec": {"targetType": target}});
            mutate(name.to_owned(), &mut config);
            assert_eq!(config["spec"]["targetType"], expected, "{name}");
        }
    }

    fn check(resource: Value, needs_domain: bool, expected: &[&str]) {
        let mut errors = Vec::new();
        validate_resource(&resource, "spec.x", needs_domain, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| &*error.field).collect();
        assert_eq!(fields, expected, "{resource}");
    }

    // proves: ADM-type-config
    #[test]
    fn resources_have_names_of_dns_labels() {
        let resource = |group: &str, kind: &str, plural: &str| json!({"group": group, "version": "v1", "kind": kind, "pluralName": plural});
        check(resource("", "Secret", "secrets"), false, &[]);
        check(resource("", "Secret", "secrets"), true, &["spec.x.group"]);
        check(resource("types", "F", "fs"), true, &["spec.x.group"]);
        check(resource("types.x", "F", "fs"), true, &[]);
        check(resource("A.b", "F", "fs"), false, &["spec.x.group"]);
        check(
            resource("", "1F", "Fs"),
            false,
            &["spec.x.kind", "spec.x.pluralName"],
        );
        let long = "a".repeat(64);
        check(resource("", &long, "a"), false, &["spec.x.kind"]);
    }
}
