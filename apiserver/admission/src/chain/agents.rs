//! Keeps agents to their own objects: the rules of [`crate::agent_restriction`], with what they need
//! to look up.

use client::ResourcePath;
use karmada_api::agents::AgentRegistration;
use karmada_api::resources::{CLUSTERS, WORKS};
use machinery::agent_user::{AGENT_CLUSTER_UID, RBAC_GENERATOR, agent_role_name};
use machinery::{FieldError, Gvr, Status};
use serde_json::Value;

use super::{AdmissionChain, find_object, object_name};
use crate::agent_restriction::{AgentWrite, RequiredLookup, check_agent_write, check_registration};
use crate::attributes::AdmissionAttributes;
use crate::unstructured::text;

static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");

impl AdmissionChain {
    /// Keeps agents to their own objects.
    pub(super) async fn restrict_agent(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let is_generator = attributes.user.name == RBAC_GENERATOR;
        if is_generator && !self.restricts_generator() {
            return Ok(());
        }
        let name = object_name(attributes, new);
        let write = AgentWrite {
            group: &attributes.gvk.group,
            kind: &attributes.gvk.kind,
            subresource: attributes.subresource,
            operation: attributes.operation,
            namespace: attributes.namespace,
            name,
            new,
            old: old.unwrap_or(&Value::Null),
        };
        let forbidden = |message: String| Status::forbidden(attributes.gvr, name, message);
        match check_agent_write(attributes.user, &write).map_err(forbidden)? {
            RequiredLookup::None => Ok(()),
            RequiredLookup::Registration => {
                self.check_registered_cluster(attributes, name, new).await
            }
            RequiredLookup::Work { namespace, name } => {
                let path = ResourcePath::object(&WORKS, &namespace, &name);
                match find_object(self.api.get(), path).await? {
                    Some(_) => Ok(()),
                    None => Err(forbidden(
                        "the agent has no Work of the event's object".into(),
                    )),
                }
            }
            RequiredLookup::ClusterUid { cluster, uid } => {
                let at = ResourcePath::object(&CLUSTERS, "", &cluster);
                match find_object(self.api.get(), at).await? {
                    Some(cluster) if cluster.uid() == uid => Ok(()),
                    _ => Err(forbidden(
                        "metadata.ownerReferences: the Cluster of the agent has another uid".into(),
                    )),
                }
            }
        }
    }

    /// Fails unless the new Cluster of an agent is what was registered, for the first time, and has the
    /// id of no other.
    async fn check_registered_cluster(
        &self,
        attributes: &AdmissionAttributes<'_>,
        name: &str,
        new: &Value,
    ) -> Result<(), Status> {
        let forbidden = |message: String| Status::forbidden(attributes.gvr, name, message);
        let roles = self.role_api.get().or_else(|| self.api.get());
        let role = agent_role_name(name);
        let path = ResourcePath::object(&CLUSTER_ROLES, "", &role);
        if let Some(role) = find_object(roles, path).await? {
            let role = role.value().map_err(Status::internal)?;
            let had_cluster = role["metadata"]["annotations"][AGENT_CLUSTER_UID].is_string();
            let path = ResourcePath::object(&CLUSTERS, "", name);
            if had_cluster && find_object(self.api.get(), path).await?.is_none() {
                let message =
                    "the registered Cluster is gone; register it again with a new bootstrap token";
                return Err(forbidden(message.into()));
            }
            match AgentRegistration::of_object(&role).transpose() {
                Ok(None) => {}
                Ok(Some(registered)) => check_registration(new, &registered).map_err(forbidden)?,
                Err(message) => {
                    return Err(forbidden(format!(
                        "the registration is unreadable: {message}"
                    )));
                }
            }
        }
        let id = text(new, "/spec/id");
        if id.is_empty() || self.api.get().is_none() {
            return Ok(());
        }
        // A Cluster that was created just before may not be in the watch cache yet.
        for other in self.list_others(name, &CLUSTERS).await? {
            if text(&other, "/spec/id") == id {
                let error = FieldError::duplicate("spec.id", &id.into());
                return Err(Status::invalid(attributes.gvk, name, &[error]));
            }
        }
        Ok(())
    }
}
