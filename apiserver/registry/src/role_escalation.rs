//! Asks, before a role or binding is validated and stored, whether its writer may grant
//! what it grants.

use admission::AdmissionOperation;
use auth::rbac::{PolicyRule, uncovered_rules};
use auth::{ReferencedRole, RoleEscalationCheck, RoleWrite};
use client::ResourcePath;
use karmada_api::agents::{
    AGENT_SECRET_NAMESPACE, is_reserved_cluster_name, karmadactl_agent_rbac,
};
use machinery::agent_user::{RBAC_GENERATOR, cluster_of_agent_role};
use machinery::{FieldError, Gvr, Status};
use serde_json::Value;

use crate::object_meta;
use crate::request::{GetOptions, RequestContext};
use crate::write_pipeline::AdmissionContext;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: Gvr = Gvr::from_static(GROUP, "v1", "roles");
pub(crate) const CLUSTER_ROLES: Gvr = Gvr::from_static(GROUP, "v1", "clusterroles");
/// Metadata that the garbage collector changes, and what the server itself sets.
const COLLECTOR_FIELDS: [&str; 4] = [
    "ownerReferences",
    "finalizers",
    "managedFields",
    "resourceVersion",
];

impl AdmissionContext<'_> {
    /// Fails with 403 if the write grants permissions that the writer does not have. Runs
    /// on what mutating admission made of the object.
    pub(crate) async fn check_role_escalation(
        &self,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let kind = &self.resource.storage.kind;
        if &*kind.gvk.group != GROUP || self.resource.custom {
            return Ok(());
        }
        let user = &self.ctx.user;
        // `check_controller_write` has checked the writes of controllers before.
        if self.ctx.is_from_controller
            || RoleEscalationCheck::is_exempt(user)
            || old.is_some_and(|old| changes_collector_fields_only(new, old))
        {
            return Ok(());
        }
        let write = RoleWrite {
            user,
            gvr: &kind.gvr,
            namespace: self.path.namespace,
            url_name: match self.operation {
                AdmissionOperation::Create => "",
                _ => self.path.name,
            },
            name: object_meta::metadata_string(new, "name"),
        };
        // A binding to a role without rules gives nothing yet: the role gets its rules when the agent is
        // registered, and the binding has to be that of the agent by then.
        if user.name == RBAC_GENERATOR {
            if self.operation == AdmissionOperation::Create && is_agent_grant(write, new) {
                return Ok(());
            }
            if self.registry.options.admission_chain.restricts_generator() {
                let message =
                    "this user creates the roles of agents, and binds them to these agents, only";
                return Err(Status::forbidden(&kind.gvr, write.name, message));
            }
        }
        let Some(check) = &self.registry.options.role_escalation else {
            let message = "this server cannot decide about permissions";
            return Err(Status::forbidden(&kind.gvr, write.name, message));
        };
        match &*kind.gvr.resource {
            "roles" | "clusterroles" => check_role(check, write, new, old).await,
            _ => self.check_binding(check, write, new).await,
        }
    }

    async fn check_binding(
        &self,
        check: &RoleEscalationCheck,
        write: RoleWrite<'_>,
        binding: &Value,
    ) -> Result<(), Status> {
        let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default();
        let (gvr, namespace) = match text("kind") {
            "ClusterRole" => (CLUSTER_ROLES, ""),
            "Role" if !write.namespace.is_empty() => (ROLES, write.namespace),
            _ => {
                let kinds: &[&str] = match write.namespace {
                    "" => &["ClusterRole"],
                    _ => &["ClusterRole", "Role"],
                };
                let kind = &binding["roleRef"]["kind"];
                let error = FieldError::not_supported("roleRef.kind", kind, kinds);
                let gvk = &self.resource.kind.gvk;
                return Err(Status::invalid(gvk, write.name, &[error]));
            }
        };
        let role = ReferencedRole {
            resource: match namespace {
                "" => "clusterroles",
                _ => "roles",
            },
            api_group: text("apiGroup"),
            name: text("name"),
        };
        if check.may_bind(write, role).await? {
            return Ok(());
        }
        let path = ResourcePath::object(&gvr, namespace, role.name);
        let ctx = RequestContext::internal();
        let stored = self
            .registry
            .get(&ctx, path, &GetOptions::default())
            .await?;
        let stored = stored.value().map_err(Status::internal)?;
        check.check_rules(write, &rules_of(&stored)?)
    }
}

/// Whether a role or binding gives the agent of a cluster its own rights, or a part of them. Whoever
/// registers a cluster may create these without having the rights.
fn is_agent_grant(write: RoleWrite<'_>, new: &Value) -> bool {
    let Some(cluster) = cluster_of_agent_role(write.name) else {
        return false;
    };
    if is_reserved_cluster_name(cluster) {
        return false;
    }
    let objects = karmadactl_agent_rbac(cluster, AGENT_SECRET_NAMESPACE);
    let expected = objects.iter().find(|object| {
        object.resource == write.gvr
            && object.namespace == write.namespace
            && object.name == write.name
    });
    let Some(expected) = expected.map(|object| &object.body) else {
        return false;
    };
    if expected["rules"].is_null() {
        return new["roleRef"] == expected["roleRef"] && new["subjects"] == expected["subjects"];
    }
    let aggregates = !new["aggregationRule"].is_null();
    match (rules_of(expected), rules_of(new)) {
        (Ok(own), Ok(granted)) => !aggregates && uncovered_rules(&own, &granted).is_empty(),
        _ => false,
    }
}

async fn check_role(
    check: &RoleEscalationCheck,
    write: RoleWrite<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if check.may_escalate(write).await? {
        return Ok(());
    }
    check.check_rules(write, &rules_of(new)?)?;
    let aggregates = |role: &Value| role.get("aggregationRule").is_some_and(|v| !v.is_null());
    if aggregates(new) || old.is_some_and(aggregates) {
        check.check_full_authority(write)?;
    }
    Ok(())
}

/// The rules of a role. Rules that cannot be read are refused, not ignored.
fn rules_of(role: &Value) -> Result<Vec<PolicyRule>, Status> {
    let rules = role.get("rules").filter(|rules| !rules.is_null());
    let Some(rules) = rules else {
        return Ok(Vec::new());
    };
    serde::Deserialize::deserialize(rules).map_err(|message| {
        Status::bad_request(format!("the rules of the role are invalid: {message}"))
    })
}

/// Whether an update changes nothing, or only what the garbage collector needs to change.
fn changes_collector_fields_only(new: &Value, old: &Value) -> bool {
    let differs = |a: &Value, b: &Value| {
        let fields = a.as_object().into_iter().flatten();
        fields
            .into_iter()
            .any(|(field, value)| match field.as_str() {
                "metadata" => {
                    let fields = value.as_object().into_iter().flatten();
                    fields.into_iter().any(|(field, value)| {
                        !COLLECTOR_FIELDS.contains(&field.as_str())
                            && b["metadata"].get(field) != Some(value)
                    })
                }
                _ => b.get(field) != Some(value),
            })
    };
    !differs(new, old) && !differs(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::UserInfo;
    use serde_json::json;

    // proves: AGT-generator
    #[test]
    fn whoever_registers_a_cluster_grants_the_rights_of_its_agent_only() {
        let user = UserInfo::default();
        let is_grant = |gvr: &Gvr, body: &Value| {
            let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default();
            let write = RoleWrite {
                user: &user,
                gvr,
                namespace: text("namespace"),
                url_name: "",
                name: text("name"),
            };
            is_agent_grant(write, body)
        };
        for object in karmadactl_agent_rbac("edge", AGENT_SECRET_NAMESPACE) {
            let body = object.body;
            assert!(is_grant(object.resource, &body), "{body}");
            let mut changed = body.clone();
            if changed["rules"].is_null() {
                changed["subjects"][0]["name"] = "system:karmada:agent:other".into();
                assert!(!is_grant(object.resource, &changed), "{changed}");
                let mut other = body.clone();
                other["roleRef"]["name"] = "cluster-admin".into();
                assert!(!is_grant(object.resource, &other), "{other}");
            } else {
                changed["rules"].as_array_mut().unwrap().pop();
                assert!(is_grant(object.resource, &changed), "{changed}");
                let extra_rule =
                    json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]});
                changed["rules"].as_array_mut().unwrap().push(extra_rule);
                assert!(!is_grant(object.resource, &changed), "{changed}");
            }
            let mut in_other_namespace = body.clone();
            in_other_namespace["metadata"]["namespace"] = "kube-system".into();
            assert!(
                !is_grant(object.resource, &in_other_namespace),
                "{in_other_namespace}"
            );
        }
        for cluster in ["edge-impersonator", "rbac-generator"] {
            for object in karmadactl_agent_rbac(cluster, AGENT_SECRET_NAMESPACE) {
                assert!(!is_grant(object.resource, &object.body), "{}", object.name);
            }
        }
        for object in karmadactl_agent_rbac("edge", "kube-system") {
            let in_system = object.namespace == "kube-system";
            assert_eq!(is_grant(object.resource, &object.body), !in_system);
        }
    }
}
