//! Defaults of namespaces, nodes, LimitRanges, RBAC bindings and CRDs (Kubernetes
//! `pkg/apis/{core,rbac}/v1/defaults.go`, `pkg/registry/core/namespace`, apiextensions
//! `v1/defaults.go`).

use serde_json::{Value, json};

use super::{Fields, each, fill, is_empty, network, text, unset, within, within_new};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn namespace(namespace: &mut Fields) {
    let mut deleting = false;
    within_new(namespace, "metadata", |metadata| {
        deleting = !unset(metadata, "deletionTimestamp");
        let name = text(metadata, "name").to_owned();
        if name.is_empty() {
            return;
        }
        within_new(metadata, "labels", |labels| {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        });
    });
    within_new(namespace, "spec", |spec| {
        // While a namespace is being deleted, its last finalizer must stay removable.
        if !deleting && unset(spec, "finalizers") {
            spec.insert("finalizers".into(), json!(["kubernetes"]));
        }
    });
    within_new(namespace, "status", |status| {
        fill(status, "phase", "Active")
    });
}

pub(super) fn node(node: &mut Fields) {
    within(node, "status", |status| {
        if let (true, Some(capacity)) = (unset(status, "allocatable"), status.get("capacity")) {
            let capacity = capacity.clone();
            status.insert("allocatable".into(), capacity);
        }
    });
}

/// Sets the defaults of container limits: `max` → `default` → `defaultRequest`, then `min` →
/// `defaultRequest`, each for resources that the latter does not have.
pub(super) fn limit_range(range: &mut Fields) {
    within(range, "spec", |spec| {
        each(spec, "limits", |item| {
            if text(item, "type") != "Container" {
                return;
            }
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let Some(Value::Object(source)) = item.get(from).cloned() else {
                    continue;
                };
                within_new(item, to, |target| {
                    for (name, quantity) in source {
                        target.entry(name).or_insert(quantity);
                    }
                });
            }
        });
    });
}

pub(super) fn role_binding(binding: &mut Fields) {
    within(binding, "roleRef", |role| {
        fill(role, "apiGroup", RBAC_GROUP)
    });
    each(binding, "subjects", |subject| {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill(subject, "apiGroup", RBAC_GROUP);
        }
    });
}

pub(super) fn custom_resource_definition(definition: &mut Fields) {
    within(definition, "spec", |spec| {
        within(spec, "names", names);
        within_new(spec, "conversion", |conversion| {
            fill(conversion, "strategy", "None");
            within(conversion, "webhook", |webhook| {
                within(webhook, "clientConfig", |client| {
                    within(client, "service", network::webhook_service);
                });
            });
        });
    });
}

fn names(names: &mut Fields) {
    let kind = text(names, "kind").to_owned();
    if kind.is_empty() {
        return;
    }
    if is_empty(names, "singular") {
        names.insert("singular".into(), kind.to_lowercase().into());
    }
    fill(names, "listKind", format!("{kind}List"));
}
