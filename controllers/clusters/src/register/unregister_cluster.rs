//! Unregisters a cluster in pull mode: its Works, so that the agent removes their objects, its
//! Cluster, and the agent on both sides.

use std::time::Duration;

use client::{Api, DeleteOptions, Error, ListOptions, ResourcePath, ignore_not_found};
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::{Cluster, names};
use machinery::{Gvr, Object};

use super::member_objects::{AGENT, AGENT_ACCOUNT, DEPLOYMENTS, FLEET_CACHE, KUBECONFIG_SECRET};
use super::register_cluster::delete_agent_roles;
use crate::NAMESPACES;
use crate::join::objects::{
    self, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, IMPERSONATOR_ACCOUNT, SECRETS, SERVICE_ACCOUNTS,
};
use crate::join::wait::{WaitTimeoutError, wait_until};
use crate::join::{ProgressCallback, UnjoinReport, remove_blocking_finalizers, work_inventory};

const NOT_FOUND_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The cluster to unregister.
#[derive(Clone, Debug)]
pub struct UnregisterSpec {
    pub name: String,
    pub cluster_namespace: String,
    pub agent_namespace: String,
    /// The agent's roles are deleted, as the control plane does, too: its own credentials cannot do that.
    pub delete_roles: bool,
    /// Removes the finalizers of what is not deleted in time; objects may stay in the member.
    pub force: bool,
    /// How long the deletions in the control plane may take together.
    pub timeout: Duration,
    /// Only report what would be removed.
    pub dry_run: bool,
}

/// Unregisters a cluster.
pub async fn unregister(
    control: &dyn Api,
    member: &dyn Api,
    spec: &UnregisterSpec,
    progress: ProgressCallback<'_>,
) -> Result<UnjoinReport, Error> {
    let at = ResourcePath::object(&CLUSTERS, "", &spec.name);
    let Some(cluster) = ignore_not_found(control.get(at).await)? else {
        let message = format!(
            "no cluster object {:?} found in the control plane",
            spec.name
        );
        return Err(Error::Protocol(message));
    };
    if cluster.decode::<Cluster>()?.spec.sync_mode != "Pull" {
        return Err(Error::Protocol(format!(
            "cluster {:?} is not a Pull mode member cluster; unjoin it instead",
            spec.name
        )));
    }
    let mut report = start_report(control, spec, progress).await;
    if spec.dry_run {
        report.deleted_in_member = member_objects(spec)
            .map(|object| object.description())
            .to_vec();
        return Ok(report);
    }
    delete_from_control_plane(control, &cluster, spec, &mut report, progress).await?;
    if spec.delete_roles {
        delete_agent_roles(control, &spec.name, &spec.cluster_namespace).await?;
    }
    progress("removing the agent from the member cluster");
    for object in member_objects(spec) {
        let at = ResourcePath::object(object.resource, object.namespace, &object.name);
        match member.delete(at, &DeleteOptions::default()).await {
            Ok(_) => report.deleted_in_member.push(object.description()),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(report)
}

/// The objects that there are to remove.
async fn start_report(
    control: &dyn Api,
    spec: &UnregisterSpec,
    progress: ProgressCallback<'_>,
) -> UnjoinReport {
    let inventory = work_inventory(control, &spec.name).await;
    if let Err(error) = &inventory {
        progress(&format!("the works are not counted: {error}"));
    }
    UnjoinReport {
        inventory: inventory.ok(),
        execution_space: names::execution_space_name(&spec.name),
        dry_run: spec.dry_run,
        ..UnjoinReport::default()
    }
}

/// Deletes the Works and the Cluster, by force if that is allowed.
async fn delete_from_control_plane(
    control: &dyn Api,
    cluster: &Object,
    spec: &UnregisterSpec,
    report: &mut UnjoinReport,
    progress: ProgressCallback<'_>,
) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + spec.timeout;
    progress("deleting the works of the cluster");
    let deleted = delete_works(control, &spec.name, spec.timeout).await;
    let deleted = match deleted {
        Ok(()) => {
            progress("deleting the cluster");
            let left = deadline.duration_since(tokio::time::Instant::now());
            delete_cluster(control, cluster, left).await
        }
        late => late,
    };
    let Err(late) = deleted else { return Ok(()) };
    if !spec.force {
        return Err(late);
    }
    progress("the deletion timed out; removing finalizers");
    report.abandoned = work_inventory(control, &spec.name).await.ok();
    let at = ResourcePath::of_object(&CLUSTERS, cluster);
    ignore_not_found(control.delete(at, &DeleteOptions::default()).await)?;
    let removed = remove_blocking_finalizers(control, &spec.name).await;
    removed.map_err(|e| Error::Protocol(e.to_string()))
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
    tokio::select! {
        gone = wait_until_gone(control, at, cluster, limit) => gone,
        () = wait_until_not_found(control, at) => Ok(()),
    }
}

/// The agent may not list its Cluster any more when that is gone.
async fn wait_until_not_found(control: &dyn Api, at: ResourcePath<'_>) {
    while !matches!(ignore_not_found(control.get(at).await), Ok(None)) {
        tokio::time::sleep(NOT_FOUND_POLL_INTERVAL).await;
    }
}

async fn wait_until_gone(
    control: &dyn Api,
    at: ResourcePath<'_>,
    object: &Object,
    limit: Duration,
) -> Result<(), Error> {
    // An object of the same name created since is another one.
    let is_gone = |observed: Option<&Object>| {
        let same = observed.is_some_and(|o| o.uid() == object.uid());
        (!same).then_some(())
    };
    let waited = wait_until(control, at, limit, is_gone).await;
    waited.map_err(|WaitTimeoutError(last)| {
        let key = object.meta().key();
        last.unwrap_or_else(|| Error::Protocol(format!("{key} was not deleted in time")))
    })
}

/// An object that the registration created in the member.
struct MemberObject<'a> {
    kind: &'static str,
    resource: &'static Gvr,
    namespace: &'a str,
    name: String,
}

impl MemberObject<'_> {
    fn description(&self) -> String {
        match self.namespace {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The objects in the member, in the order of their deletion.
fn member_objects(spec: &UnregisterSpec) -> [MemberObject<'_>; 14] {
    let account = objects::service_account_name(&spec.name);
    let role = objects::cluster_role_name(&spec.name);
    let (cluster, agent) = (
        spec.cluster_namespace.as_str(),
        spec.agent_namespace.as_str(),
    );
    [
        (
            "ServiceAccount",
            &SERVICE_ACCOUNTS,
            cluster,
            account.as_str(),
        ),
        ("ClusterRole", &CLUSTER_ROLES, "", role.as_str()),
        (
            "ClusterRoleBinding",
            &CLUSTER_ROLE_BINDINGS,
            "",
            role.as_str(),
        ),
        ("Secret", &SECRETS, cluster, account.as_str()),
        (
            "ServiceAccount",
            &SERVICE_ACCOUNTS,
            cluster,
            IMPERSONATOR_ACCOUNT,
        ),
        ("Secret", &SECRETS, cluster, IMPERSONATOR_ACCOUNT),
        ("Namespace", &NAMESPACES, "", cluster),
        ("Deployment", &DEPLOYMENTS, agent, AGENT),
        ("ServiceAccount", &SERVICE_ACCOUNTS, agent, AGENT_ACCOUNT),
        ("ClusterRole", &CLUSTER_ROLES, "", AGENT),
        ("ClusterRoleBinding", &CLUSTER_ROLE_BINDINGS, "", AGENT),
        ("ClusterRole", &CLUSTER_ROLES, "", FLEET_CACHE),
        (
            "ClusterRoleBinding",
            &CLUSTER_ROLE_BINDINGS,
            "",
            FLEET_CACHE,
        ),
        ("Secret", &SECRETS, agent, KUBECONFIG_SECRET),
    ]
    .map(|(kind, resource, namespace, name)| MemberObject {
        kind,
        resource,
        namespace,
        name: name.to_owned(),
    })
}
