//! Joins a cluster in push mode: creates service accounts in the member, and their tokens
//! and a Cluster in the control plane.
//!
//! Every step tolerates that its work is already done, so an interrupted join can simply
//! be repeated.

use client::{Api, ListOptions, ResourcePath, WriteOptions};
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, names};
use machinery::Object;
use machinery::names::validate_dns1123_label;

use super::credentials::{
    MemberCredentials, create_if_absent, host_error, obtain_member_credentials, set_secret_owners,
    write_credentials,
};
use super::identity::{ClusterIdentity, cluster_identity};
use super::join_error::JoinError;
use super::join_spec::JoinSpec;
use super::preflight::control_plane_id;
use super::reported_secrets::ReportedSecrets;
use super::{ProgressCallback, objects};
use crate::NAMESPACES;

/// The longest cluster name that fits behind the prefix of execution spaces.
const MAX_CLUSTER_NAME_LENGTH: usize = 48;

/// The result of a join.
#[derive(Debug)]
pub struct JoinedCluster {
    /// The value of the member's ClusterProperty `cluster.clusterset.k8s.io`, else the UID of
    /// its namespace `kube-system`.
    pub id: String,
    /// `None` after a dry run.
    pub cluster: Option<Object>,
}

/// Whether the cluster is registered, and how far an earlier join got.
enum RegistrationState {
    NotRegistered,
    /// The Cluster exists; its secrets may lack their owner reference.
    Incomplete(Object),
}

/// Joins a cluster in push mode. An interrupted join may be repeated; a cluster that is
/// already joined is refused.
pub async fn join(
    control: &dyn Api,
    cluster: &dyn Api,
    spec: &JoinSpec,
    progress: ProgressCallback<'_>,
) -> Result<JoinedCluster, JoinError> {
    check_cluster_name(&spec.name)?;
    let identity = cluster_identity(cluster).await?;
    let standing = check_registration(control, spec, &identity).await?;
    let id = identity.id;
    if spec.dry_run {
        progress(&format!(
            "cluster {:?} with ID {id} can be joined",
            spec.name
        ));
        return Ok(JoinedCluster { id, cluster: None });
    }
    let object = match standing {
        RegistrationState::Incomplete(object) => {
            progress("finishing an interrupted join");
            object
        }
        RegistrationState::NotRegistered => {
            let manager = control_plane_id(control).await;
            let manager = manager.as_deref();
            let secrets = ReportedSecrets::ALL;
            let credentials =
                obtain_member_credentials(cluster, spec, manager, secrets, progress).await?;
            register(control, spec, &id, &credentials, progress).await?
        }
    };
    set_secret_owners(control, &spec.namespace, &secret_names(spec), &object).await?;
    progress(&format!("cluster {:?} is joined", spec.name));
    Ok(JoinedCluster {
        id,
        cluster: Some(object),
    })
}

/// Fails for a name that no cluster may have.
pub fn check_cluster_name(name: &str) -> Result<(), JoinError> {
    let long = (name.len() > MAX_CLUSTER_NAME_LENGTH)
        .then(|| format!("must be no more than {MAX_CLUSTER_NAME_LENGTH} characters"));
    match validate_dns1123_label(name).err().or(long) {
        Some(reason) => Err(JoinError::InvalidName(name.to_owned(), reason)),
        None => Ok(()),
    }
}

async fn check_registration(
    control: &dyn Api,
    spec: &JoinSpec,
    identity: &ClusterIdentity,
) -> Result<RegistrationState, JoinError> {
    let options = ListOptions::default();
    let list = control.list(ResourcePath::collection(&CLUSTERS, ""), &options);
    let clusters = list.await.map_err(host_error("list the clusters"))?.items;
    let mut same = None;
    for object in clusters {
        let view = object.decode::<Cluster>();
        let registered = view
            .map_err(|e| host_error("read a cluster")(e.into()))?
            .spec
            .id
            .clone();
        match (object.name() == spec.name, identity.matches(&registered)) {
            (true, true) => same = Some(object),
            (true, false) => return Err(JoinError::NameTaken(spec.name.clone())),
            (false, true) => {
                return Err(JoinError::ClusterIdTaken {
                    id: registered,
                    name: object.name().to_owned(),
                });
            }
            (false, false) => {}
        }
    }
    let Some(object) = same else {
        return Ok(RegistrationState::NotRegistered);
    };
    // Setting the Cluster as the secrets' owner is the last step of a join.
    let mut finished = !object.meta().deleting;
    for name in secret_names(spec) {
        let at = ResourcePath::object(&objects::SECRETS, &spec.namespace, &name);
        let secret = control
            .get(at)
            .await
            .map_err(host_error("read its secrets"));
        let owns = |secret: &Object| {
            let mut owners = secret.owner_references().iter();
            owners.any(|owner| *owner.uid == *object.uid())
        };
        finished &= match secret {
            Ok(secret) => owns(&secret),
            // A join never leaves a secret missing: it was deleted later.
            Err(JoinError::HostApi { source, .. }) if source.is_not_found() => true,
            Err(e) => return Err(e),
        };
    }
    if finished || object.meta().deleting {
        return Err(JoinError::NameTaken(spec.name.clone()));
    }
    Ok(RegistrationState::Incomplete(object))
}

fn secret_names(spec: &JoinSpec) -> [String; 2] {
    [
        spec.name.clone(),
        names::impersonation_secret_name(&spec.name),
    ]
}

async fn register(
    control: &dyn Api,
    spec: &JoinSpec,
    id: &str,
    credentials: &MemberCredentials,
    progress: ProgressCallback<'_>,
) -> Result<Object, JoinError> {
    progress("registering the cluster in the control plane");
    let namespace = &spec.namespace;
    let result = create_if_absent(control, &NAMESPACES, "", objects::namespace(namespace)).await;
    result.map_err(host_error(format!("create the namespace {namespace:?}")))?;
    write_credentials(control, &spec.name, namespace, credentials).await?;
    let at = ResourcePath::collection(&CLUSTERS, "");
    let body = objects::cluster(spec, id);
    let result = control
        .create(at, body.into(), &WriteOptions::default())
        .await;
    result.map_err(|e| match e.is_already_exists() {
        true => JoinError::NameTaken(spec.name.clone()),
        false => host_error("create the cluster")(e),
    })
}
