//! Binds the registration of an agent, which is its ClusterRole, to the Cluster, and ends it with the
//! Cluster: then the certificates of the agent have no rights any more.

use client::{Api, Patch, ResourcePath, Result, WriteOptions, ignore_not_found};
use karmada_api::agents::AGENT_SECRET_NAMESPACE;
use machinery::Object;
use machinery::agent_user::{AGENT_CLUSTER_UID, agent_role_name};
use serde_json::json;

use crate::join::objects::CLUSTER_ROLES;
use crate::register::delete_agent_roles;

/// Records the Cluster on the ClusterRole of its agent, if there is one.
pub(super) async fn bind_to_cluster(api: &dyn Api, cluster: &Object) -> Result<()> {
    let name = agent_role_name(cluster.name());
    let at = ResourcePath::object(&CLUSTER_ROLES, "", &name);
    let patch = json!({"metadata": {"annotations": {AGENT_CLUSTER_UID: cluster.uid()}}});
    let options = WriteOptions::default();
    let written = api.patch(at, Patch::Merge(patch), &options).await;
    ignore_not_found(written).map(drop)
}

/// Deletes the roles of the agent of a cluster.
pub(super) async fn end(api: &dyn Api, cluster: &str) -> Result<()> {
    delete_agent_roles(api, cluster, AGENT_SECRET_NAMESPACE).await
}

/// The same for a Cluster that does not exist, unless a registration of that name has just begun.
pub(super) async fn end_of_former_cluster(api: &dyn Api, cluster: &str) -> Result<()> {
    let name = agent_role_name(cluster);
    let role = api.get(ResourcePath::object(&CLUSTER_ROLES, "", &name));
    let Some(role) = ignore_not_found(role.await)? else {
        return Ok(());
    };
    let role = role.value()?;
    match role["metadata"]["annotations"][AGENT_CLUSTER_UID].is_string() {
        true => end(api, cluster).await,
        false => Ok(()),
    }
}
