//! Matches requests with webhook rules and selectors
//! (`admission/plugin/webhook/{rules,predicates}`). Does no I/O.

use machinery::{Gvk, Gvr, LabelSelector};
use serde_json::Value;

use super::configuration::{AdmissionWebhook, AdmissionWebhookRule};
use crate::attributes::AdmissionAttributes;

fn matches_any(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == value)
}

/// Matches a rule's resource: `*` is every resource without subresources, `*/*`
/// includes subresources.
fn matches_resource(entry: &str, resource: &str, subresource: &str) -> bool {
    let (one, sub) = entry.split_once('/').unwrap_or((entry, ""));
    (one == "*" || one == resource)
        && match sub {
            "" => subresource.is_empty(),
            "*" => true,
            sub => sub == subresource,
        }
}

fn matches_rule(
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
pub(super) fn is_namespace(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.gvr.group.is_empty() && &*attributes.gvr.resource == "namespaces"
}

/// Whether a webhook has a rule for the resource in some version.
pub(super) fn has_rule_for(webhook: &AdmissionWebhook, gvr: &Gvr, subresource: &str) -> bool {
    webhook.rules.iter().any(|rule| {
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
pub(super) fn matches_object(webhook: &AdmissionWebhook, new: &Value, old: Option<&Value>) -> bool {
    if webhook.object_selector.is_everything() {
        return true;
    }
    [Some(new), old]
        .into_iter()
        .flatten()
        .filter(|object| !object.is_null())
        .any(|object| selector_matches(&webhook.object_selector, object))
}

pub(super) fn selector_matches(selector: &LabelSelector, object: &Value) -> bool {
    selector.matches(|key| object["metadata"]["labels"].get(key)?.as_str())
}
