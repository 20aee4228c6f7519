//! Joins a cluster in push mode: creates service accounts in the member, and their tokens
//! and a Cluster in the control plane.
//!
//! Every step tolerates that its work is already done, so an interrupted join can simply
//! be repeated.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, ListOptions, Patch, ResourcePath, WriteOptions};
use machinery::names::validate_dns1123_label;
use machinery::{Gvr, Object};
use openapi::karmada::resources::CLUSTERS;
use openapi::karmada::{Cluster, names};
use serde_json::{Value, json};

use super::join_spec::JoinSpec;
use super::wait::{WaitTimeoutError, wait_until};
use super::{ProgressCallback, objects};
use crate::NAMESPACES;

/// How long the member's token controller may take to fill in the tokens.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest cluster name that fits behind the prefix of execution spaces.
const MAX_CLUSTER_NAME_LENGTH: usize = 48;

/// The result of a join.
#[derive(Debug)]
pub struct JoinedCluster {
    /// The UID of the member's `kube-system` namespace.
    pub id: String,
    /// `None` after a dry run.
    pub cluster: Option<Object>,
}

/// Why a cluster was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("the cluster name {0:?} is invalid: {1}")]
    InvalidName(String, String),
    #[error("the cluster name {0:?} has been registered")]
    NameTaken(String),
    #[error("the cluster ID {id} has been registered as {name:?}")]
    ClusterIdTaken { id: String, name: String },
    /// The member's `kube-system` namespace has no UID.
    #[error("the member cluster has no ID")]
    NoClusterId,
    #[error("the member cluster provides no CA bundle to verify its endpoint")]
    NoCaBundle,
    #[error("no token for the service account {account:?} within {} s{}", .limit.as_secs(), error_suffix(.last))]
    TokenTimeout {
        account: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("cannot {what} in the member cluster: {source}")]
    MemberApi { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    HostApi { what: String, source: Error },
}

pub(super) fn error_suffix(last: &Option<Error>) -> String {
    last.as_ref().map(|e| format!(": {e}")).unwrap_or_default()
}

fn member_error(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::MemberApi { what, source }
}

fn host_error(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::HostApi { what, source }
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
    let id = cluster_id(cluster).await?;
    let standing = check_registration(control, spec, &id).await?;
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
            let secrets = create_member_accounts(cluster, spec, progress).await?;
            register(control, spec, &id, &secrets, progress).await?
        }
    };
    set_secret_owners(control, spec, &object).await?;
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
        Some(why) => Err(JoinError::InvalidName(name.to_owned(), why)),
        None => Ok(()),
    }
}

/// The id of a member: the UID of its namespace `kube-system`.
pub(crate) async fn cluster_id(cluster: &dyn Api) -> Result<String, JoinError> {
    let found = cluster
        .get(ResourcePath::object(&NAMESPACES, "", "kube-system"))
        .await;
    let system = found.map_err(member_error("read the namespace kube-system"))?;
    match system.uid() {
        "" => Err(JoinError::NoClusterId),
        uid => Ok(uid.to_owned()),
    }
}

async fn check_registration(
    control: &dyn Api,
    spec: &JoinSpec,
    id: &str,
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
        match (object.name() == spec.name, registered == id) {
            (true, true) => same = Some(object),
            (true, false) => return Err(JoinError::NameTaken(spec.name.clone())),
            (false, true) => {
                return Err(JoinError::ClusterIdTaken {
                    id: id.to_owned(),
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
        let owns = |s: &Object| {
            s.meta()
                .owner_references
                .iter()
                .any(|o| *o.uid == *object.uid())
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

/// The `data` of the two secrets.
struct ClusterAndImpersonatorSecretData {
    access: Value,
    impersonation: Value,
}

async fn create_member_accounts(
    cluster: &dyn Api,
    spec: &JoinSpec,
    progress: ProgressCallback<'_>,
) -> Result<ClusterAndImpersonatorSecretData, JoinError> {
    let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
    let account = objects::service_account_name(name);
    progress("creating service accounts and roles in the member cluster");
    for (resource, namespace, body) in [
        (&NAMESPACES, "", objects::namespace(namespace)),
        (
            &objects::SERVICE_ACCOUNTS,
            namespace,
            objects::service_account(namespace, objects::IMPERSONATOR_ACCOUNT),
        ),
        (
            &objects::SERVICE_ACCOUNTS,
            namespace,
            objects::service_account(namespace, &account),
        ),
        (&objects::CLUSTER_ROLES, "", objects::cluster_role(name)),
        (
            &objects::CLUSTER_ROLE_BINDINGS,
            "",
            objects::cluster_role_binding(name, namespace),
        ),
        (
            &objects::SECRETS,
            namespace,
            objects::token_secret(namespace, objects::IMPERSONATOR_ACCOUNT),
        ),
        (
            &objects::SECRETS,
            namespace,
            objects::token_secret(namespace, &account),
        ),
    ] {
        let made = create_if_absent(cluster, resource, namespace, body).await;
        made.map_err(member_error(format!(
            "create {}",
            resource.group_resource()
        )))?;
    }
    progress("waiting for the tokens of the service accounts");
    let own_ca = spec.ca_bundle.is_none() && !spec.insecure_skip_tls_verification;
    let (impersonator, access) = tokio::join!(
        wait_for_token(cluster, namespace, objects::IMPERSONATOR_ACCOUNT, false),
        wait_for_token(cluster, namespace, &account, own_ca),
    );
    let (impersonator, access) = (impersonator?, access?);
    let ca = match &spec.ca_bundle {
        Some(pem) => STANDARD.encode(pem).into(),
        None => access["ca.crt"].clone(),
    };
    let mut data = json!({"token": access["token"]});
    match ca {
        Value::String(ca) if !ca.is_empty() => data["caBundle"] = ca.into(),
        _ if spec.insecure_skip_tls_verification => {}
        _ => return Err(JoinError::NoCaBundle),
    }
    Ok(ClusterAndImpersonatorSecretData {
        access: data,
        impersonation: json!({"token": impersonator["token"]}),
    })
}

/// Waits for the data of a service account's token secret, with the CA if `ca` is set.
async fn wait_for_token(
    cluster: &dyn Api,
    namespace: &str,
    account: &str,
    ca: bool,
) -> Result<Value, JoinError> {
    let at = ResourcePath::object(&objects::SECRETS, namespace, account);
    let filled = |secret: Option<&Object>| {
        let data = secret?.value().ok()?["data"].take();
        let has = |key: &str| data[key].as_str().is_some_and(|v| !v.is_empty());
        (has("token") && (!ca || has("ca.crt"))).then_some(data)
    };
    wait_until(cluster, at, TOKEN_TIMEOUT, filled)
        .await
        .map_err(|WaitTimeoutError(last)| JoinError::TokenTimeout {
            account: account.to_owned(),
            limit: TOKEN_TIMEOUT,
            last,
        })
}

async fn register(
    control: &dyn Api,
    spec: &JoinSpec,
    id: &str,
    secrets: &ClusterAndImpersonatorSecretData,
    progress: ProgressCallback<'_>,
) -> Result<Object, JoinError> {
    progress("registering the cluster in the control plane");
    let namespace = &spec.namespace;
    let made = create_if_absent(control, &NAMESPACES, "", objects::namespace(namespace)).await;
    made.map_err(host_error(format!("create the namespace {namespace:?}")))?;
    let data = [&secrets.access, &secrets.impersonation];
    for (name, data) in secret_names(spec).into_iter().zip(data) {
        let body = objects::secret(namespace, &name, data);
        let done = match create_if_absent(control, &objects::SECRETS, namespace, body).await {
            Ok(true) => Ok(()),
            // From an earlier attempt, whose tokens may be invalid by now.
            Ok(false) => {
                let patch = json!({"data": data});
                merge_patch(control, &objects::SECRETS, namespace, &name, patch).await
            }
            Err(e) => Err(e),
        };
        done.map_err(host_error(format!("write the secret {name:?}")))?;
    }
    let at = ResourcePath::collection(&CLUSTERS, "");
    let body = objects::cluster(spec, id);
    let made = control
        .create(at, body.into(), &WriteOptions::default())
        .await;
    made.map_err(|e| match e.is_already_exists() {
        true => JoinError::NameTaken(spec.name.clone()),
        false => host_error("create the cluster")(e),
    })
}

async fn set_secret_owners(
    control: &dyn Api,
    spec: &JoinSpec,
    cluster: &Object,
) -> Result<(), JoinError> {
    for name in secret_names(spec) {
        let patch = objects::owner_patch(cluster.name(), cluster.uid());
        let done = merge_patch(control, &objects::SECRETS, &spec.namespace, &name, patch).await;
        done.map_err(host_error(format!(
            "set the cluster as owner of the secret {name:?}"
        )))?;
    }
    Ok(())
}

/// Creates an object; returns `false` if it exists already.
pub(crate) async fn create_if_absent(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    body: Value,
) -> client::Result<bool> {
    let at = ResourcePath::collection(resource, namespace);
    match api.create(at, body.into(), &WriteOptions::default()).await {
        Ok(_) => Ok(true),
        Err(e) if e.is_already_exists() => Ok(false),
        Err(e) => Err(e),
    }
}

async fn merge_patch(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    name: &str,
    patch: Value,
) -> client::Result<()> {
    let at = ResourcePath::object(resource, namespace, name);
    let patch = Patch::Merge(patch);
    api.patch(at, patch, &WriteOptions::default())
        .await
        .map(drop)
}
