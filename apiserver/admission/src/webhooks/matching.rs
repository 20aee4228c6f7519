//! Matches requests with webhook rules and selectors
//! (`admission/plugin/webhook/{rules,predicates}`). Does no I/O.

use machinery::{Gvk, Gvr, LabelSelector};
use serde_json::Value;

use super::config::{Hook, Rule};
use crate::attributes::Attributes;

fn any(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == value)
}

/// Matches a rule's resource: `*` is every resource without subresources, `*/*`
/// includes subresources.
fn resource(entry: &str, resource: &str, subresource: &str) -> bool {
    let (one, sub) = entry.split_once('/').unwrap_or((entry, ""));
    (one == "*" || one == resource)
        && match sub {
            "" => subresource.is_empty(),
            "*" => true,
            sub => sub == subresource,
        }
}

fn rule(rule: &Rule, attributes: &Attributes<'_>, gvr: &Gvr) -> bool {
    let scope = match rule.scope.as_deref() {
        Some("Namespaced") => !attributes.namespace.is_empty(),
        Some("Cluster") => attributes.namespace.is_empty(),
        _ => true,
    };
    scope
        && any(&rule.operations, attributes.operation.as_str())
        && any(&rule.api_groups, &gvr.group)
        && any(&rule.api_versions, &gvr.version)
        && rule
            .resources
            .iter()
            .any(|entry| resource(entry, &gvr.resource, attributes.subresource))
}

/// Whether a webhook has a rule for the resource in some version.
pub(super) fn names(hook: &Hook, gvr: &Gvr, subresource: &str) -> bool {
    hook.rules.iter().any(|rule| {
        any(&rule.api_groups, &gvr.group)
            && rule
                .resources
                .iter()
                .any(|entry| resource(entry, &gvr.resource, subresource))
    })
}

/// The index of the first version that a rule matches: the requested one, or any
/// equivalent one when the webhook accepts them.
pub(super) fn version(
    hook: &Hook,
    attributes: &Attributes<'_>,
    versions: &[(Gvk, Gvr)],
) -> Option<usize> {
    let tried = if hook.equivalent { versions.len() } else { 1 };
    (0..tried.min(versions.len())).find(|v| {
        hook.rules
            .iter()
            .any(|r| rule(r, attributes, &versions[*v].1))
    })
}

/// Whether the object selector matches the new or the old object.
pub(super) fn object(hook: &Hook, new: &Value, old: Option<&Value>) -> bool {
    if hook.objects.is_everything() {
        return true;
    }
    [Some(new), old]
        .into_iter()
        .flatten()
        .filter(|object| !object.is_null())
        .any(|object| selected(&hook.objects, object))
}

fn selected(selector: &LabelSelector, object: &Value) -> bool {
    selector.matches(|key| object["metadata"]["labels"].get(key)?.as_str())
}
