//! Unjoins a cluster: deletes the Cluster with everything scheduled to it, its credentials,
//! and the service accounts in the member. It ends after its timeout at the latest, and says
//! what is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, ListOptions, ResourcePath, WriteOptions, ignore_not_found,
};
use flotilla_runtime::remove_finalizers;
use karmada_api::cluster::LocalSecretReference;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::{CLUSTER_FINALIZER, WORK_FINALIZER};
use karmada_api::{Cluster, names};
use machinery::{Gvr, Object};
use serde_json::json;

use super::join_error::error_suffix;
use super::unjoin_report::{UnjoinReport, WorkInventory};
use super::wait::{WaitTimeoutError, wait_until};
use super::{ProgressCallback, objects};
use crate::NAMESPACES;

/// How often a waiting command says what it waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How long the Cluster may stay after its finalizer was removed by force.
const FORCED_DELETION_TIMEOUT: Duration = Duration::from_secs(10);
/// A page of Works.
const WORKS_PER_PAGE: u64 = 500;

/// The cluster to unjoin.
#[derive(Clone, Debug)]
pub struct UnjoinSpec {
    pub name: String,
    /// The namespace of the service accounts in the member; it is deleted too.
    pub namespace: String,
    /// Removes the finalizers of objects that are not deleted in time; objects may be
    /// left behind in the member.
    pub force: bool,
    /// How long the deletion in the control plane may take, and that in the member.
    pub timeout: Duration,
    /// Only says what would be deleted.
    pub dry_run: bool,
}

impl Default for UnjoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            namespace: "karmada-cluster".to_owned(),
            force: false,
            timeout: Duration::from_secs(60),
            dry_run: false,
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
    #[error("cluster {name:?} was not deleted within {} s: {remaining}{}", .limit.as_secs(), error_suffix(.last))]
    Timeout {
        name: String,
        limit: Duration,
        /// The reason why the deletion waits, and the remedy.
        remaining: String,
        last: Option<Error>,
    },
    #[error("the member cluster did not answer within {} s; with --force what lies there is left", .0.as_secs())]
    MemberTimeout(Duration),
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
) -> Result<UnjoinReport, UnjoinError> {
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
    let inventory = work_inventory(control, &spec.name).await;
    if let Err(error) = &inventory {
        progress(&format!("the works are not counted: {error}"));
    }
    let mut report = UnjoinReport {
        inventory: inventory.ok(),
        execution_space: names::execution_space_name(&spec.name),
        dry_run: spec.dry_run,
        ..UnjoinReport::default()
    };
    let references = [&view.spec.secret_ref, &view.spec.impersonator_secret_ref];
    let references: Vec<&LocalSecretReference> =
        references.into_iter().filter_map(Option::as_ref).collect();
    if spec.dry_run {
        report.deleted_credentials = references.iter().map(|r| secret_key(r)).collect();
        let listed = member_objects(spec).map(|o| o.description).to_vec();
        match cluster {
            Some(_) => report.deleted_in_member = listed,
            None => report.left_in_member = listed,
        }
        return Ok(report);
    }
    delete_cluster(control, &object, spec, &mut report, progress).await?;
    delete_credentials(control, &object, &references, &mut report).await;
    match cluster {
        None => report.left_in_member = member_objects(spec).map(|o| o.description).to_vec(),
        Some(cluster) => {
            progress("removing service accounts and roles in the member cluster");
            delete_member_objects(cluster, spec, &mut report, progress).await?;
        }
    }
    progress(&format!("cluster {:?} is unjoined", spec.name));
    Ok(report)
}

/// Deletes the Cluster and waits until it is gone, by force if that is allowed.
async fn delete_cluster(
    control: &dyn Api,
    object: &Object,
    spec: &UnjoinSpec,
    report: &mut UnjoinReport,
    progress: ProgressCallback<'_>,
) -> Result<(), UnjoinError> {
    let at = ResourcePath::of_object(&CLUSTERS, object);
    let deleted = control.delete(at, &DeleteOptions::default()).await;
    ignore_not_found(deleted).map_err(host_error("delete the cluster"))?;
    progress(&format!(
        "waiting for the cluster {:?} to be deleted",
        spec.name
    ));
    let waited = wait_until_gone(control, object, spec.timeout, report, progress).await;
    let Err(late) = waited else { return Ok(()) };
    if !spec.force {
        return Err(timeout_error(control, object, spec.timeout, late).await);
    }
    progress("the deletion timed out; removing finalizers");
    report.abandoned = work_inventory(control, &spec.name).await.ok();
    remove_blocking_finalizers(control, &spec.name).await?;
    let limit = FORCED_DELETION_TIMEOUT;
    match wait_until_gone(control, object, limit, report, progress).await {
        Ok(()) => Ok(()),
        Err(late) => Err(timeout_error(control, object, limit, late).await),
    }
}

/// Waits until the Cluster is gone, and says every two seconds what it waits for. Reports whether it
/// was not Ready meanwhile.
async fn wait_until_gone(
    control: &dyn Api,
    object: &Object,
    limit: Duration,
    report: &mut UnjoinReport,
    progress: ProgressCallback<'_>,
) -> Result<(), WaitTimeoutError> {
    let at = ResourcePath::of_object(&CLUSTERS, object);
    // A Cluster of the same name created since is another one.
    let was_unready = AtomicBool::new(report.was_unready);
    let is_gone = |observed: Option<&Object>| {
        let Some(current) = observed.filter(|o| o.uid() == object.uid()) else {
            return Some(());
        };
        let view = current.decode::<Cluster>();
        let ready = view
            .ok()
            .and_then(|c| Some(c.condition("Ready")?.status == "True"));
        was_unready.fetch_or(ready == Some(false), Ordering::Relaxed);
        None
    };
    let reports = async {
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            if let Some(remaining) = describe_remaining(control, object).await {
                progress(&format!("still waiting: {remaining}"));
            }
        }
    };
    let waited = tokio::select! {
        waited = wait_until(control, at, limit, is_gone) => waited,
        () = reports => Ok(()),
    };
    report.was_unready = was_unready.into_inner();
    waited
}

async fn timeout_error(
    control: &dyn Api,
    object: &Object,
    limit: Duration,
    WaitTimeoutError(last): WaitTimeoutError,
) -> UnjoinError {
    let remaining = describe_remaining(control, object).await;
    let remaining = remaining.unwrap_or_else(|| "the control plane does not answer".to_owned());
    UnjoinError::Timeout {
        name: object.name().to_owned(),
        limit,
        remaining,
        last,
    }
}

/// The reason why the deletion of a Cluster waits; `None` if the control plane does not say.
async fn describe_remaining(control: &dyn Api, object: &Object) -> Option<String> {
    let name = object.name();
    let inventory = work_inventory(control, name).await.ok()?;
    let space = names::execution_space_name(name);
    if inventory.works.count > 0 {
        return Some(format!(
            "{} works in {space} whose objects the member still has ({}); if the member is gone for good, use --force",
            inventory.works.count, inventory.works
        ));
    }
    let at = ResourcePath::object(&NAMESPACES, "", &space);
    if ignore_not_found(control.get(at).await).ok()?.is_some() {
        return Some(format!("the namespace {space} is terminating"));
    }
    let at = ResourcePath::of_object(&CLUSTERS, object);
    let current = ignore_not_found(control.get(at).await).ok()??;
    let view = current.decode::<Cluster>().ok()?;
    let foreign: Vec<&str> = view
        .metadata
        .finalizers
        .iter()
        .map(String::as_str)
        .filter(|finalizer| *finalizer != CLUSTER_FINALIZER)
        .collect();
    Some(match foreign.is_empty() {
        true => format!("bindings are still scheduled to {name}, or no controller runs"),
        false => format!("others hold it with the finalizers {}", foreign.join(", ")),
    })
}

/// The Works of a cluster and what they hold in the member.
pub(crate) async fn work_inventory(
    control: &dyn Api,
    cluster: &str,
) -> client::Result<WorkInventory> {
    let space = names::execution_space_name(cluster);
    let at = ResourcePath::collection(&WORKS, &space);
    let mut inventory = WorkInventory::default();
    let mut options = ListOptions {
        limit: WORKS_PER_PAGE,
        ..ListOptions::default()
    };
    loop {
        let page = control.list(at, &options).await?;
        for work in &page.items {
            inventory.add(work);
        }
        options.continue_token = page.continue_token;
        if options.continue_token.is_empty() {
            return Ok(inventory);
        }
    }
}

fn secret_key(reference: &LocalSecretReference) -> String {
    format!("{}/{}", reference.namespace, reference.name)
}

/// Deletes the Secrets of a Cluster that is gone. Those that our user may not delete are left
/// to the garbage collector.
async fn delete_credentials(
    control: &dyn Api,
    cluster: &Object,
    references: &[&LocalSecretReference],
    report: &mut UnjoinReport,
) {
    for reference in references {
        let key = secret_key(reference);
        match delete_credential(control, cluster, reference).await {
            Ok(true) => report.deleted_credentials.push(key),
            Ok(false) => {
                let entry = format!("{key} (it does not belong to the cluster)");
                report.remaining_credentials.push(entry);
            }
            Err(error) => report
                .remaining_credentials
                .push(format!("{key} ({error})")),
        }
    }
}

/// Returns whether the Secret is gone; one that belongs to another object is left.
async fn delete_credential(
    control: &dyn Api,
    cluster: &Object,
    reference: &LocalSecretReference,
) -> client::Result<bool> {
    let at = ResourcePath::object(&objects::SECRETS, &reference.namespace, &reference.name);
    let Some(secret) = ignore_not_found(control.get(at).await)? else {
        // The garbage collector was faster.
        return Ok(true);
    };
    let owners = secret.owner_references();
    if !owners.iter().any(|owner| *owner.uid == *cluster.uid()) {
        return Ok(false);
    }
    let options = DeleteOptions {
        uid: Some(secret.uid().to_owned()),
        ..DeleteOptions::default()
    };
    ignore_not_found(control.delete(at, &options).await)?;
    Ok(true)
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
    // The controller of namespaces may write it just then.
    loop {
        let Some(space) = ignore_not_found(control.get(at).await)? else {
            return Ok(());
        };
        let mut value = space.value()?;
        value["spec"]["finalizers"] = json!([]);
        let options = WriteOptions::default();
        let done = control
            .update(at.subresource("finalize"), value.into(), &options)
            .await;
        match ignore_not_found(done) {
            Err(error) if error.is_conflict() => {}
            done => return done.map(drop),
        }
    }
}

/// An object that the join has created in the member.
struct JoinedMemberObject {
    resource: &'static Gvr,
    namespace: String,
    name: String,
    description: String,
}

/// In the order of their deletion. The namespace takes the service accounts along.
fn member_objects(spec: &UnjoinSpec) -> [JoinedMemberObject; 4] {
    let role = objects::cluster_role_name(&spec.name);
    let account = objects::service_account_name(&spec.name);
    let object = |resource, kind: &str, namespace: &str, name: &str| JoinedMemberObject {
        resource,
        description: match namespace {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        },
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    [
        object(
            &objects::CLUSTER_ROLE_BINDINGS,
            "ClusterRoleBinding",
            "",
            &role,
        ),
        object(&objects::CLUSTER_ROLES, "ClusterRole", "", &role),
        object(
            &objects::SERVICE_ACCOUNTS,
            "ServiceAccount",
            &spec.namespace,
            &account,
        ),
        object(&NAMESPACES, "Namespace", "", &spec.namespace),
    ]
}

/// Deletes what the join has created in the member. By force, what cannot be deleted is left.
async fn delete_member_objects(
    cluster: &dyn Api,
    spec: &UnjoinSpec,
    report: &mut UnjoinReport,
    progress: ProgressCallback<'_>,
) -> Result<(), UnjoinError> {
    let deadline = tokio::time::Instant::now() + spec.timeout;
    for object in member_objects(spec) {
        let at = ResourcePath::object(object.resource, &object.namespace, &object.name);
        let options = DeleteOptions::default();
        let deleted = tokio::time::timeout_at(deadline, cluster.delete(at, &options)).await;
        let what = format!("delete {}", object.description);
        let error = match deleted.map(ignore_not_found) {
            Ok(Ok(_)) => {
                report.deleted_in_member.push(object.description);
                continue;
            }
            Ok(Err(source)) => UnjoinError::MemberApi { what, source },
            Err(_) => UnjoinError::MemberTimeout(spec.timeout),
        };
        if !spec.force {
            return Err(error);
        }
        progress(&error.to_string());
        report.left_in_member.push(object.description);
    }
    Ok(())
}
