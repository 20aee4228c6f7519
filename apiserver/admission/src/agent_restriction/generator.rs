//! Restricts the user who creates the roles of agents for `karmadactl register`: anybody with a
//! bootstrap token is this user, and the objects outlive the token. Does no I/O.

use karmada_api::agents::AGENT_SECRET_NAMESPACE;
use karmada_api::names::execution_space_name;
use karmada_api::well_known_keys::SYSTEM;
use machinery::agent_user::{AGENT_PUBLIC_KEYS, cluster_of_agent_role};
use serde_json::{Value, json};

use super::agent_write::{AgentWrite, shown};
use crate::attributes::AdmissionOperation;
use crate::unstructured::{entries, get, items, texts};

/// The user who creates the roles of agents creates nothing else.
pub(super) fn check_generator(write: &AgentWrite<'_>) -> Result<(), String> {
    if write.operation != AdmissionOperation::Create {
        return Err("this user changes and deletes nothing".into());
    }
    let allowed = match (write.group, write.kind) {
        ("rbac.authorization.k8s.io", _) => cluster_of_agent_role(write.name).is_some(),
        ("", "Namespace") => {
            let space = execution_space_name("");
            write.name == AGENT_SECRET_NAMESPACE || write.name.starts_with(&space)
        }
        _ => true,
    };
    if !allowed {
        return Err("this user creates the roles of agents only".into());
    }
    check_generated_metadata(write.new)
}

/// Metadata gives no further rights: labels aggregate roles, annotations record registrations, and
/// finalizers keep a role.
fn check_generated_metadata(object: &Value) -> Result<(), String> {
    for field in ["finalizers", "ownerReferences"] {
        if !items(object, &format!("/metadata/{field}")).is_empty() {
            return Err(format!("this user sets no metadata.{field}"));
        }
    }
    // A namespace lives until these are gone.
    if texts(object, "/spec/finalizers").any(|finalizer| finalizer != "kubernetes") {
        return Err("this user sets no spec.finalizers".into());
    }
    for field in ["labels", "annotations"] {
        for (key, value) in entries(object, &format!("/metadata/{field}")) {
            let is_expected = match (field, key) {
                // The server itself sets the first two.
                ("annotations", AGENT_PUBLIC_KEYS) => value == "",
                ("labels", "kubernetes.io/metadata.name") => {
                    *value == *get(object, "/metadata/name")
                }
                ("labels", SYSTEM) => value == "true",
                _ => false,
            };
            if !is_expected {
                let key = shown(key);
                return Err(format!("this user sets no metadata.{field}[{key}]"));
            }
        }
    }
    Ok(())
}

/// A role that the generator creates is marked until a certificate is approved for its agent, which
/// gives it its rules. A ClusterRole admits no certificate before: not those of an agent whose Cluster of
/// this name was deleted.
pub(crate) fn mark_generated_role(kind: &str, new: &mut Value) {
    if !matches!(kind, "ClusterRole" | "Role") {
        return;
    }
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(AGENT_PUBLIC_KEYS.into(), "".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AdmissionOperation::{Create, Delete, Update};

    // proves: AGT-generator
    #[test]
    fn the_user_who_creates_roles_creates_no_others() {
        let decide = |operation, group, kind, name| {
            let null = Value::Null;
            let write = AgentWrite {
                group,
                kind,
                subresource: "",
                operation,
                namespace: "",
                name,
                new: &null,
                old: &null,
            };
            check_generator(&write).is_ok()
        };
        let rbac = "rbac.authorization.k8s.io";
        assert!(decide(
            Create,
            rbac,
            "ClusterRole",
            "system:karmada:a:agent"
        ));
        assert!(!decide(Create, rbac, "ClusterRole", "admin"));
        assert!(!decide(
            Update,
            rbac,
            "ClusterRole",
            "system:karmada:a:agent"
        ));
        assert!(!decide(
            Delete,
            rbac,
            "ClusterRole",
            "system:karmada:a:agent"
        ));
        assert!(decide(Create, "", "Namespace", "karmada-es-a"));
        assert!(!decide(Create, "", "Namespace", "kube-b"));
    }

    // proves: AGT-generator
    #[test]
    fn the_metadata_of_generated_roles_grants_nothing() {
        let name = "system:karmada:a:agent";
        let null = Value::Null;
        for (metadata, is_allowed) in [
            (json!({"labels": {"karmada.io/system": "true"}}), true),
            (json!({"labels": {"karmada.io/system": "false"}}), false),
            (
                json!({"labels": {"namespace.karmada.io/skip-auto-propagation": "true"}}),
                false,
            ),
            (
                json!({"labels": {"kubernetes.io/metadata.name": "other"}}),
                false,
            ),
            (
                json!({"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}),
                false,
            ),
            (
                json!({"annotations": {"flotilla.io/agent-registration": "{}"}}),
                false,
            ),
            (json!({"annotations": {AGENT_PUBLIC_KEYS: "a"}}), false),
            (json!({"finalizers": ["a.b/c"]}), false),
            (json!({"ownerReferences": [{"uid": "1"}]}), false),
        ] {
            let mut role = json!({"kind": "ClusterRole", "metadata": metadata});
            mark_generated_role("ClusterRole", &mut role);
            if is_allowed {
                assert_eq!(role["metadata"]["annotations"][AGENT_PUBLIC_KEYS], "");
            }
            if metadata["annotations"].is_object() {
                role["metadata"] = metadata.clone();
            }
            let write = AgentWrite {
                group: "rbac.authorization.k8s.io",
                kind: "ClusterRole",
                subresource: "",
                operation: Create,
                namespace: "",
                name,
                new: &role,
                old: &null,
            };
            assert_eq!(check_generator(&write).is_ok(), is_allowed, "{metadata}");
        }
    }

    // proves: AGT-generator
    #[test]
    fn a_generated_namespace_is_that_of_karmadactl() {
        for (fields, is_allowed) in [
            (json!({"metadata": {"labels": {SYSTEM: "true"}}}), true),
            (json!({"spec": {"finalizers": ["kubernetes"]}}), true),
            (
                json!({"spec": {"finalizers": ["kubernetes", "a.b/c"]}}),
                false,
            ),
        ] {
            let write = AgentWrite {
                group: "",
                kind: "Namespace",
                subresource: "",
                operation: Create,
                namespace: "",
                name: "karmada-es-a",
                new: &fields,
                old: &Value::Null,
            };
            assert_eq!(check_generator(&write).is_ok(), is_allowed, "{fields}");
        }
    }
}
