//! Unjoins a cluster: deletes the Cluster with everything scheduled to it, then the
//! service accounts in the member.

use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, ListOptions, ResourcePath, WriteOptions, ignore_not_found,
};
use flotilla_runtime::remove_finalizers;
use machinery::{Gvr, Object};
use openapi::karmada::resources::{CLUSTERS, WORKS};
use openapi::karmada::well_known_keys::{CLUSTER_FINALIZER, WORK_FINALIZER};
use openapi::karmada::{Cluster, names};
use serde_json::json;

use super::join_cluster::error_suffix;
use super::wait::{WaitTimeoutError, wait_until};
use super::{ProgressCallback, objects};
use crate::NAMESPACES;

/// The cluster to unjoin.
#[derive(Clone, Debug)]
pub struct UnjoinSpec {
    pub name: String,
    /// The namespace of the service accounts in the member; it is deleted too.
    pub namespace: String,
    /// Removes the finalizers of objects that are not deleted in time; objects may be
    /// left behind in the member.
    pub force: bool,
    /// How long the deletion may take.
    pub timeout: Duration,
}

impl Default for UnjoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            namespace: "karmada-cluster".to_owned(),
            force: false,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Why a cluster was not unjoined.
#[derive(Debug, thiserror::Error)]
pub enum UnjoinError {
    #[error("no cluster object {0:?} found in the control plane")]
    NotFound(String),
    #[error("cluster {0:?} is a Pull mode member cluster; unregister it instead")]
    PullMode(String),
    #[error("cluster {name:?} was not deleted within {} s{}", .limit.as_secs(), error_suffix(.last))]
    Timeout {
        name: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("cannot {what} in the member cluster: {source}")]
    MemberApi { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    HostApi { what: String, source: Error },
}

fn host_error(what: impl Into<String>) -> impl FnOnce(Error) -> UnjoinError {
    let what = what.into();
    move |source| UnjoinError::HostApi { what, source }
}

/// Unjoins a cluster in push mode. With access to the member it also deletes there what
/// the join created.
pub async fn unjoin(
    control: &dyn Api,
    cluster: Option<&dyn Api>,
    spec: &UnjoinSpec,
    progress: ProgressCallback<'_>,
) -> Result<(), UnjoinError> {
    let at = ResourcePath::object(&CLUSTERS, "", &spec.name);
    let unknown = |e: Error| match e.is_not_found() {
        true => UnjoinError::NotFound(spec.name.clone()),
        false => host_error("read the cluster")(e),
    };
    let object = control.get(at).await.map_err(unknown)?;
    let view = object.decode::<Cluster>();
    let view = view.map_err(|e| host_error("read the cluster")(e.into()))?;
    if view.spec.sync_mode == "Pull" {
        return Err(UnjoinError::PullMode(spec.name.clone()));
    }
    let deleted = control.delete(at, &DeleteOptions::default()).await;
    ignore_not_found(deleted).map_err(host_error("delete the cluster"))?;
    progress(&format!(
        "waiting for the cluster {:?} to be deleted",
        spec.name
    ));
    // A Cluster of the same name created since is another one.
    let is_gone = |found: Option<&Object>| {
        let same = found.is_some_and(|o| o.uid() == object.uid());
        (!same).then_some(())
    };
    match wait_until(control, at, spec.timeout, is_gone).await {
        Ok(()) => {}
        Err(WaitTimeoutError(_)) if spec.force => {
            progress("the deletion timed out; removing finalizers");
            remove_blocking_finalizers(control, &spec.name).await?;
        }
        Err(WaitTimeoutError(last)) => {
            return Err(UnjoinError::Timeout {
                name: spec.name.clone(),
                limit: spec.timeout,
                last,
            });
        }
    }
    if let Some(cluster) = cluster {
        progress("removing service accounts and roles in the member cluster");
        delete_member_objects(cluster, spec, progress).await?;
    }
    progress(&format!("cluster {:?} is unjoined", spec.name));
    Ok(())
}

/// Removes the finalizers that block the deletion of the Cluster, its execution space and
/// its Works.
pub(crate) async fn remove_blocking_finalizers(
    control: &dyn Api,
    name: &str,
) -> Result<(), UnjoinError> {
    let space = names::execution_space_name(name);
    let options = ListOptions::default();
    let list = control.list(ResourcePath::collection(&WORKS, &space), &options);
    let works = list.await.map_err(host_error("list the works"))?.items;
    for work in &works {
        let at = ResourcePath::of_object(&WORKS, work);
        let deleted = control.delete(at, &DeleteOptions::default()).await;
        ignore_not_found(deleted).map_err(host_error("delete a work"))?;
        let stripped = remove_finalizer(control, &WORKS, at, WORK_FINALIZER).await;
        stripped.map_err(host_error(format!(
            "remove the finalizer of the work {}",
            work.meta().key()
        )))?;
    }
    finalize_namespace(control, &space)
        .await
        .map_err(host_error(format!("finalize the namespace {space}")))?;
    remove_finalizer(
        control,
        &CLUSTERS,
        ResourcePath::object(&CLUSTERS, "", name),
        CLUSTER_FINALIZER,
    )
    .await
    .map_err(host_error("remove the finalizer of the cluster"))
}

/// Removes a finalizer from the newest version of an object.
async fn remove_finalizer(
    control: &dyn Api,
    resource: &Gvr,
    at: ResourcePath<'_>,
    finalizer: &str,
) -> client::Result<()> {
    loop {
        let Some(object) = ignore_not_found(control.get(at).await)? else {
            return Ok(());
        };
        match remove_finalizers(control, resource, &object, &[finalizer]).await {
            Err(e) if e.is_conflict() => {}
            done => return done,
        }
    }
}

async fn finalize_namespace(control: &dyn Api, space: &str) -> client::Result<()> {
    let at = ResourcePath::object(&NAMESPACES, "", space);
    let deleted = control.delete(at, &DeleteOptions::default()).await;
    let Some(Some(_)) = ignore_not_found(deleted)? else {
        return Ok(());
    };
    let Some(space) = ignore_not_found(control.get(at).await)? else {
        return Ok(());
    };
    let mut value = space.value()?;
    value["spec"]["finalizers"] = json!([]);
    let options = WriteOptions::default();
    let done = control
        .update(at.subresource("finalize"), value.into(), &options)
        .await;
    ignore_not_found(done).map(drop)
}

async fn delete_member_objects(
    cluster: &dyn Api,
    spec: &UnjoinSpec,
    progress: ProgressCallback<'_>,
) -> Result<(), UnjoinError> {
    let role = objects::cluster_role_name(&spec.name);
    let account = objects::service_account_name(&spec.name);
    for (resource, namespace, name) in [
        (&objects::CLUSTER_ROLE_BINDINGS, "", role.as_str()),
        (&objects::CLUSTER_ROLES, "", role.as_str()),
        (
            &objects::SERVICE_ACCOUNTS,
            spec.namespace.as_str(),
            account.as_str(),
        ),
        (&NAMESPACES, "", spec.namespace.as_str()),
    ] {
        let at = ResourcePath::object(resource, namespace, name);
        let deleted = cluster.delete(at, &DeleteOptions::default()).await;
        let Err(source) = ignore_not_found(deleted) else {
            continue;
        };
        let what = format!("delete {} {name:?}", resource.group_resource());
        if !spec.force {
            return Err(UnjoinError::MemberApi { what, source });
        }
        progress(&format!("cannot {what} in the member cluster: {source}"));
    }
    Ok(())
}
