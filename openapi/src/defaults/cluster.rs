//! Defaults of namespaces, nodes, LimitRanges, RBAC bindings and CRDs (Kubernetes
//! `pkg/apis/{core,rbac}/v1/defaults.go`, `pkg/registry/core/namespace`, apiextensions
//! `v1/defaults.go`).

use serde_json::{Value, json};

use super::{
    JsonObjectMap, for_each_object, is_empty, is_unset, network, set_default, string_field,
    with_object, with_object_or_create,
};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn set_defaults_namespace(namespace: &mut JsonObjectMap) {
    let mut deleting = false;
    with_object_or_create(namespace, "metadata", |metadata| {
        deleting = !is_unset(metadata, "deletionTimestamp");
        let name = string_field(metadata, "name").to_owned();
        if name.is_empty() {
            return;
        }
        with_object_or_create(metadata, "labels", |labels| {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        });
    });
    with_object_or_create(namespace, "spec", |spec| {
        // While a namespace is being deleted, its last finalizer must stay removable.
        if !deleting && is_unset(spec, "finalizers") {
            spec.insert("finalizers".into(), json!(["kubernetes"]));
        }
    });
    with_object_or_create(namespace, "status", |status| {
        set_default(status, "phase", "Active")
    });
}

pub(super) fn set_defaults_node(node: &mut JsonObjectMap) {
    with_object(node, "status", |status| {
        if let (true, Some(capacity)) = (is_unset(status, "allocatable"), status.get("capacity")) {
            let capacity = capacity.clone();
            status.insert("allocatable".into(), capacity);
        }
    });
}

/// Sets the defaults of container limits: `max` → `default` → `defaultRequest`, then `min` →
/// `defaultRequest`, each for resources that the latter does not have.
pub(super) fn set_defaults_limit_range(range: &mut JsonObjectMap) {
    with_object(range, "spec", |spec| {
        for_each_object(spec, "limits", |item| {
            if string_field(item, "type") != "Container" {
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
                with_object_or_create(item, to, |target| {
                    for (name, quantity) in source {
                        target.entry(name).or_insert(quantity);
                    }
                });
            }
        });
    });
}

pub(super) fn set_defaults_role_binding(binding: &mut JsonObjectMap) {
    with_object(binding, "roleRef", |role| {
        set_default(role, "apiGroup", RBAC_GROUP)
    });
    for_each_object(binding, "subjects", |subject| {
        if matches!(string_field(subject, "kind"), "User" | "Group") {
            set_default(subject, "apiGroup", RBAC_GROUP);
        }
    });
}

pub(super) fn set_defaults_custom_resource_definition(definition: &mut JsonObjectMap) {
    with_object(definition, "spec", |spec| {
        with_object(spec, "names", set_defaults_definition_names);
        with_object_or_create(spec, "conversion", |conversion| {
            set_default(conversion, "strategy", "None");
            with_object(conversion, "webhook", |webhook| {
                with_object(webhook, "clientConfig", |client| {
                    with_object(client, "service", network::set_defaults_webhook_service);
                });
            });
        });
    });
    set_default_stored_versions(definition);
}

/// A status without stored versions gets the storage version.
fn set_default_stored_versions(definition: &mut JsonObjectMap) {
    let versions = definition
        .get("spec")
        .and_then(|spec| spec["versions"].as_array());
    let mut versions = versions.into_iter().flatten();
    let storage = versions.find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else {
        return;
    };
    with_object(definition, "status", |status| {
        if is_empty(status, "storedVersions") {
            status.insert("storedVersions".into(), json!([name]));
        }
    });
}

fn set_defaults_definition_names(names: &mut JsonObjectMap) {
    let kind = string_field(names, "kind").to_owned();
    if kind.is_empty() {
        return;
    }
    if is_empty(names, "singular") {
        names.insert("singular".into(), kind.to_lowercase().into());
    }
    set_default(names, "listKind", format!("{kind}List"));
}
