//! Matches requests with webhook rules and selectors
//! (`admission/plugin/webhook/{rules,predicates}`). Only selectors of namespaces read one.

use machinery::{Gvk, Gvr, LabelSelector, Status};
use serde_json::Value;

use super::configuration::{AdmissionWebhook, AdmissionWebhookRule};
use crate::attributes::AdmissionAttributes;
use crate::namespace_lookup::NamespaceLookup;

fn matches_any(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == value)
}

/// Matches a rule's resource: `*` is every resource without subresources, `*/*`
/// includes subresources.
fn matches_resource(entry: &str, resource: &str, subresource: &str) -> bool {
    let (name, sub) = entry.split_once('/').unwrap_or((entry, ""));
    (name == "*" || name == resource)
        && match sub {
            "" => subresource.is_empty(),
            "*" => true,
            sub => sub == subresource,
        }
}

pub(crate) fn matches_rule(
    rule: &AdmissionWebhookRule,
    attributes: &AdmissionAttributes<'_>,
    gvr: &Gvr,
) -> bool {
    // For a Namespace, the namespace of the request is its own name.
    let cluster_scoped = attributes.namespace.is_empty() || is_namespace(attributes);
    let scope = match rule.scope.as_deref() {
        Some("Namespaced") => !cluster_scoped,
        Some("Cluster") => cluster_scoped,
        _ => true,
    };
    scope
        && matches_any(&rule.operations, attributes.operation.as_str())
        && matches_any(&rule.api_groups, &gvr.group)
        && matches_any(&rule.api_versions, &gvr.version)
        && rule
            .resources
            .iter()
            .any(|entry| matches_resource(entry, &gvr.resource, attributes.subresource))
}

/// Whether the request is on a Namespace itself.
pub(crate) fn is_namespace(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.gvr.group.is_empty() && &*attributes.gvr.resource == "namespaces"
}

/// Whether there is a rule for the resource in some version.
pub(crate) fn has_rule_for<'r>(
    rules: impl IntoIterator<Item = &'r AdmissionWebhookRule>,
    gvr: &Gvr,
    subresource: &str,
) -> bool {
    rules.into_iter().any(|rule| {
        matches_any(&rule.api_groups, &gvr.group)
            && rule
                .resources
                .iter()
                .any(|entry| matches_resource(entry, &gvr.resource, subresource))
    })
}

/// The index of the first version that a rule matches: the requested one, or any
/// equivalent one when the webhook accepts them.
pub(super) fn matching_version(
    webhook: &AdmissionWebhook,
    attributes: &AdmissionAttributes<'_>,
    versions: &[(Gvk, Gvr)],
) -> Option<usize> {
    let tried = if webhook.match_equivalent {
        versions.len()
    } else {
        1
    };
    (0..tried.min(versions.len())).find(|v| {
        webhook
            .rules
            .iter()
            .any(|r| matches_rule(r, attributes, &versions[*v].1))
    })
}

/// Whether the object selector matches the new or the old object.
pub(crate) fn matches_object(selector: &LabelSelector, new: &Value, old: Option<&Value>) -> bool {
    if selector.is_everything() {
        return true;
    }
    [Some(new), old]
        .into_iter()
        .flatten()
        .filter(|object| !object.is_null())
        .any(|object| selector_matches(selector, object))
}

/// Whether a namespace selector matches the namespace of the request. A Namespace that is
/// written has the labels it will have.
pub(crate) async fn matches_namespace(
    selector: &LabelSelector,
    namespaces: &dyn NamespaceLookup,
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
) -> Result<bool, Status> {
    if attributes.namespace.is_empty() || selector.is_everything() {
        return Ok(true);
    }
    if is_namespace(attributes) && attributes.subresource.is_empty() && !new.is_null() {
        return Ok(selector_matches(selector, new));
    }
    let namespace = namespaces.get_namespace(attributes.namespace).await?;
    Ok(selector.matches(|key: &str| namespace.as_ref()?.meta().label(key)))
}

fn selector_matches(selector: &LabelSelector, object: &Value) -> bool {
    selector.matches(|key| object["metadata"]["labels"].get(key)?.as_str())
}
