//! Unjoins a cluster: deletes the Cluster with everything scheduled to it, then the
//! service accounts in the member.

use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, ListOptions, Patch, Result, WriteOptions};
use machinery::{Gvr, Object};
use openapi::karmada::binding::Metadata;
use openapi::karmada::labels::{CLUSTER_FINALIZER, WORK_FINALIZER};
use openapi::karmada::resources::{CLUSTERS, WORKS};
use openapi::karmada::{Cluster, names};
use serde::Deserialize;
use serde_json::json;

use super::enter::error_suffix;
use super::wait::{Late, until};
use super::{Progress, objects};
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
    pub wait: Duration,
}

impl Default for UnjoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            namespace: "karmada-cluster".to_owned(),
            force: false,
            wait: Duration::from_secs(60),
        }
    }
}

/// Why a cluster was not unjoined.
#[derive(Debug, thiserror::Error)]
pub enum UnjoinError {
    #[error("no cluster object {0:?} found in the control plane")]
    Unknown(String),
    #[error("cluster {0:?} is a Pull mode member cluster; unregister it instead")]
    Pull(String),
    #[error("cluster {name:?} was not deleted within {} s{}", .limit.as_secs(), error_suffix(.last))]
    Late {
        name: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("cannot {what} in the member cluster: {source}")]
    Member { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    Host { what: String, source: Error },
}

type Outcome<T> = std::result::Result<T, UnjoinError>;

fn host(what: impl Into<String>) -> impl FnOnce(Error) -> UnjoinError {
    let what = what.into();
    move |source| UnjoinError::Host { what, source }
}

/// Unjoins a cluster in push mode. With access to the member it also deletes there what
/// the join created.
pub async fn unjoin(
    control: &dyn Api,
    cluster: Option<&dyn Api>,
    spec: &UnjoinSpec,
    progress: Progress<'_>,
) -> Outcome<()> {
    let at = At::one(&CLUSTERS, "", &spec.name);
    let unknown = |e: Error| match e.is_not_found() {
        true => UnjoinError::Unknown(spec.name.clone()),
        false => host("read the cluster")(e),
    };
    let object = control.get(at).await.map_err(unknown)?;
    let view = object.view::<Cluster>();
    let view = view.map_err(|e| host("read the cluster")(e.into()))?;
    if view.spec.sync_mode == "Pull" {
        return Err(UnjoinError::Pull(spec.name.clone()));
    }
    let deleted = control.delete(at, &DeleteOptions::default()).await;
    gone(deleted.map(drop)).map_err(host("delete the cluster"))?;
    progress(&format!(
        "waiting for the cluster {:?} to be deleted",
        spec.name
    ));
    // A Cluster of the same name created since is another one.
    let is_gone = |found: Option<&Object>| {
        let same = found.is_some_and(|o| o.uid() == object.uid());
        (!same).then_some(())
    };
    match until(control, at, spec.wait, is_gone).await {
        Ok(()) => {}
        Err(Late(_)) if spec.force => {
            progress("the deletion timed out; removing finalizers");
            release(control, &spec.name).await?;
        }
        Err(Late(last)) => {
            return Err(UnjoinError::Late {
                name: spec.name.clone(),
                limit: spec.wait,
                last,
            });
        }
    }
    if let Some(cluster) = cluster {
        progress("removing service accounts and roles in the member cluster");
        clean(cluster, spec, progress).await?;
    }
    progress(&format!("cluster {:?} is unjoined", spec.name));
    Ok(())
}

fn gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(e) if e.is_not_found() => Ok(()),
        other => other,
    }
}

/// Removes the finalizers that block the deletion of the Cluster, its execution space and
/// its Works.
async fn release(control: &dyn Api, name: &str) -> Outcome<()> {
    let space = names::execution_space(name);
    let options = ListOptions::default();
    let list = control.list(At::all(&WORKS, &space), &options);
    let works = list.await.map_err(host("list the works"))?.items;
    for work in &works {
        let at = At::of(&WORKS, work);
        let deleted = control.delete(at, &DeleteOptions::default()).await;
        gone(deleted.map(drop)).map_err(host("delete a work"))?;
        let stripped = strip(control, &WORKS, at, WORK_FINALIZER).await;
        stripped.map_err(host(format!(
            "remove the finalizer of the work {}",
            work.head().key()
        )))?;
    }
    finalize(control, &space)
        .await
        .map_err(host(format!("finalize the namespace {space}")))?;
    strip(
        control,
        &CLUSTERS,
        At::one(&CLUSTERS, "", name),
        CLUSTER_FINALIZER,
    )
    .await
    .map_err(host("remove the finalizer of the cluster"))
}

#[derive(Deserialize)]
struct Held {
    metadata: Metadata,
}

async fn strip(control: &dyn Api, resource: &Gvr, at: At<'_>, finalizer: &str) -> Result<()> {
    let object = match control.get(at).await {
        Ok(object) => object,
        Err(e) => return gone(Err(e)),
    };
    let held: Held =
        serde_json::from_slice(object.bytes()).map_err(|e| Error::Protocol(e.to_string()))?;
    let all = held.metadata.finalizers;
    let rest: Vec<&String> = all.iter().filter(|f| *f != finalizer).collect();
    if rest.len() == all.len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"finalizers": rest}});
    let at = At::of(resource, &object);
    let options = WriteOptions::default();
    let done = control.patch(at, Patch::Merge(patch), &options).await;
    gone(done.map(drop))
}

async fn finalize(control: &dyn Api, space: &str) -> Result<()> {
    let at = At::one(&NAMESPACES, "", space);
    match control.delete(at, &DeleteOptions::default()).await {
        Ok(Some(_)) => {}
        other => return gone(other.map(drop)),
    }
    let mut value = match control.get(at).await {
        Ok(object) => object.value()?,
        Err(e) => return gone(Err(e)),
    };
    value["spec"]["finalizers"] = json!([]);
    let options = WriteOptions::default();
    let done = control.update(at.sub("finalize"), value, &options).await;
    gone(done.map(drop))
}

async fn clean(cluster: &dyn Api, spec: &UnjoinSpec, progress: Progress<'_>) -> Outcome<()> {
    let role = objects::role_name(&spec.name);
    let account = objects::account_name(&spec.name);
    for (resource, namespace, name) in [
        (&objects::ROLE_BINDINGS, "", role.as_str()),
        (&objects::ROLES, "", role.as_str()),
        (
            &objects::ACCOUNTS,
            spec.namespace.as_str(),
            account.as_str(),
        ),
        (&NAMESPACES, "", spec.namespace.as_str()),
    ] {
        let at = At::one(resource, namespace, name);
        let deleted = cluster.delete(at, &DeleteOptions::default()).await;
        let Err(source) = gone(deleted.map(drop)) else {
            continue;
        };
        let what = format!("delete {} {name:?}", resource.qualified());
        if !spec.force {
            return Err(UnjoinError::Member { what, source });
        }
        progress(&format!("cannot {what} in the member cluster: {source}"));
    }
    Ok(())
}
