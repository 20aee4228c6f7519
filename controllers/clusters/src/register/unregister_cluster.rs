//! Unregisters a cluster in pull mode: its Works, so that the agent removes their objects, its
//! Cluster, and the agent on both sides.

use std::time::Duration;

use client::{Api, DeleteOptions, Error, ListOptions, ResourcePath, ignore_not_found};
use machinery::Object;
use openapi::karmada::resources::{CLUSTERS, WORKS};
use openapi::karmada::{Cluster, names};

use super::control_plane_objects::agent_rbac;
use super::member_objects::{AGENT, AGENT_ACCOUNT, DEPLOYMENTS, KUBECONFIG_SECRET};
use super::register_cluster::delete_agent_roles;
use crate::NAMESPACES;
use crate::join::objects::{
    self, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, IMPERSONATOR_ACCOUNT, SECRETS, SERVICE_ACCOUNTS,
};
use crate::join::wait::{WaitTimeoutError, wait_until};
use crate::join::{ProgressCallback, remove_blocking_finalizers};

/// The cluster to unregister.
#[derive(Clone, Debug)]
pub struct UnregisterSpec {
    pub name: String,
    pub cluster_namespace: String,
    pub agent_namespace: String,
    /// The agent's roles are deleted; its own credentials cannot do that.
    pub delete_roles: bool,
    /// Removes the finalizers of what is not deleted in time; objects may stay in the member.
    pub force: bool,
    /// How long the deletions in the control plane may take together.
    pub timeout: Duration,
}

/// The roles that were left, one a line; empty if they were deleted.
pub struct RemainingAgentRoles(pub String);

/// Unregisters a cluster.
pub async fn unregister(
    control: &dyn Api,
    member: &dyn Api,
    spec: &UnregisterSpec,
    progress: ProgressCallback<'_>,
) -> Result<RemainingAgentRoles, Error> {
    let at = ResourcePath::object(&CLUSTERS, "", &spec.name);
    let Some(cluster) = ignore_not_found(control.get(at).await)? else {
        let why = format!(
            "no cluster object {:?} found in the control plane",
            spec.name
        );
        return Err(Error::Protocol(why));
    };
    if cluster.decode::<Cluster>()?.spec.sync_mode != "Pull" {
        return Err(Error::Protocol(format!(
            "cluster {:?} is not a Pull mode member cluster; unjoin it instead",
            spec.name
        )));
    }
    let deadline = tokio::time::Instant::now() + spec.timeout;
    progress("deleting the works of the cluster");
    let deleted = delete_works(control, &spec.name, spec.timeout).await;
    let deleted = match deleted {
        Ok(()) => {
            progress("deleting the cluster");
            let left = deadline.duration_since(tokio::time::Instant::now());
            delete_cluster(control, &cluster, left).await
        }
        late => late,
    };
    if let Err(late) = deleted {
        if !spec.force {
            return Err(late);
        }
        progress("the deletion timed out; removing finalizers");
        ignore_not_found(control.delete(at, &DeleteOptions::default()).await)?;
        let removed = remove_blocking_finalizers(control, &spec.name).await;
        removed.map_err(|e| Error::Protocol(e.to_string()))?;
    }
    let mut remaining = String::new();
    if spec.delete_roles {
        delete_agent_roles(control, &spec.name, &spec.cluster_namespace).await?;
    } else {
        let roles = agent_rbac(&spec.name, &spec.cluster_namespace);
        let lines: Vec<String> = roles.iter().map(|role| role.description()).collect();
        remaining = lines.join("\n");
    }
    progress("removing the agent from the member cluster");
    delete_member_objects(member, spec).await?;
    Ok(RemainingAgentRoles(remaining))
}

async fn delete_works(control: &dyn Api, cluster: &str, timeout: Duration) -> Result<(), Error> {
    let space = names::execution_space_name(cluster);
    let options = ListOptions::default();
    let all = ResourcePath::collection(&WORKS, &space);
    let works = control.list(all, &options).await?.items;
    for work in &works {
        let at = ResourcePath::of_object(&WORKS, work);
        ignore_not_found(control.delete(at, &DeleteOptions::default()).await)?;
    }
    let gone = async {
        for work in &works {
            wait_until_gone(
                control,
                ResourcePath::of_object(&WORKS, work),
                work,
                timeout,
            )
            .await?;
        }
        Ok(())
    };
    let late = |_| Error::Protocol(format!("the works in {space} were not deleted in time"));
    tokio::time::timeout(timeout, gone).await.map_err(late)?
}

async fn delete_cluster(control: &dyn Api, cluster: &Object, limit: Duration) -> Result<(), Error> {
    let at = ResourcePath::of_object(&CLUSTERS, cluster);
    ignore_not_found(control.delete(at, &DeleteOptions::default()).await)?;
    wait_until_gone(control, at, cluster, limit).await
}

async fn wait_until_gone(
    control: &dyn Api,
    at: ResourcePath<'_>,
    object: &Object,
    limit: Duration,
) -> Result<(), Error> {
    // An object of the same name created since is another one.
    let is_gone = |found: Option<&Object>| {
        let same = found.is_some_and(|o| o.uid() == object.uid());
        (!same).then_some(())
    };
    let waited = wait_until(control, at, limit, is_gone).await;
    waited.map_err(|WaitTimeoutError(last)| {
        let key = object.meta().key();
        last.unwrap_or_else(|| Error::Protocol(format!("{key} was not deleted in time")))
    })
}

async fn delete_member_objects(member: &dyn Api, spec: &UnregisterSpec) -> Result<(), Error> {
    let account = objects::service_account_name(&spec.name);
    let role = objects::cluster_role_name(&spec.name);
    let (cluster, agent) = (
        spec.cluster_namespace.as_str(),
        spec.agent_namespace.as_str(),
    );
    for (resource, namespace, name) in [
        (&SERVICE_ACCOUNTS, cluster, account.as_str()),
        (&CLUSTER_ROLES, "", role.as_str()),
        (&CLUSTER_ROLE_BINDINGS, "", role.as_str()),
        (&SECRETS, cluster, account.as_str()),
        (&SERVICE_ACCOUNTS, cluster, IMPERSONATOR_ACCOUNT),
        (&SECRETS, cluster, IMPERSONATOR_ACCOUNT),
        (&NAMESPACES, "", cluster),
        (&DEPLOYMENTS, agent, AGENT),
        (&SERVICE_ACCOUNTS, agent, AGENT_ACCOUNT),
        (&CLUSTER_ROLES, "", AGENT),
        (&CLUSTER_ROLE_BINDINGS, "", AGENT),
        (&SECRETS, agent, KUBECONFIG_SECRET),
    ] {
        let at = ResourcePath::object(resource, namespace, name);
        ignore_not_found(member.delete(at, &DeleteOptions::default()).await)?;
    }
    Ok(())
}
