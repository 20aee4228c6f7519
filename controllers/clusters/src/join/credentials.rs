//! The credentials by which the control plane reaches a member: service accounts in the
//! member, and their tokens in Secrets of the control plane.
//!
//! Every step tolerates that its work is already done.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::names;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::ProgressCallback;
use super::join_error::JoinError;
use super::join_spec::JoinSpec;
use super::objects::{self, CLUSTER_ROLES};
use super::reported_secrets::ReportedSecrets;
use super::wait::{WaitTimeoutError, wait_until};
use crate::NAMESPACES;

/// How long the member's token controller may take to fill in the tokens.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the namespace of an earlier join may terminate.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(30);

/// The `data` of the Secrets of a member in the control plane.
pub(crate) struct MemberCredentials {
    access: Option<Value>,
    impersonation: Option<Value>,
}

impl MemberCredentials {
    /// The names of the Secrets.
    pub(crate) fn secret_names(&self, cluster: &str) -> Vec<String> {
        let secrets = self.secrets(cluster).into_iter();
        secrets.map(|(name, _)| name).collect()
    }

    /// The names of the Secrets, and their data.
    fn secrets(&self, cluster: &str) -> Vec<(String, &Value)> {
        let access = self.access.as_ref();
        let impersonation = self.impersonation.as_ref();
        let impersonation_name = names::impersonation_secret_name(cluster);
        let named = [
            access.map(|data| (cluster.to_owned(), data)),
            impersonation.map(|data| (impersonation_name, data)),
        ];
        named.into_iter().flatten().collect()
    }
}

pub(super) fn member_error(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::MemberApi { what, source }
}

pub(super) fn host_error(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::HostApi { what, source }
}

/// The objects in the member for the accounts of these Secrets, in the order of their
/// creation.
fn account_objects(
    spec: &JoinSpec,
    manager: Option<&str>,
    secrets: ReportedSecrets,
) -> Vec<(&'static Gvr, Value)> {
    let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
    let account = objects::service_account_name(name);
    let mut all = Vec::new();
    if secrets.impersonator {
        let account = objects::IMPERSONATOR_ACCOUNT;
        let body = objects::service_account(namespace, account);
        all.push((&objects::SERVICE_ACCOUNTS, body));
        let body = objects::token_secret(namespace, account);
        all.push((&objects::SECRETS, body));
    }
    if secrets.credentials {
        let body = objects::service_account(namespace, &account);
        all.push((&objects::SERVICE_ACCOUNTS, body));
        all.push((&CLUSTER_ROLES, objects::cluster_role(name, manager)));
        let body = objects::cluster_role_binding(name, namespace);
        all.push((&objects::CLUSTER_ROLE_BINDINGS, body));
        let body = objects::token_secret(namespace, &account);
        all.push((&objects::SECRETS, body));
    }
    all
}

/// Creates service accounts in the member and waits for their tokens. `manager` is the id of
/// the control plane.
pub(crate) async fn obtain_member_credentials(
    cluster: &dyn Api,
    spec: &JoinSpec,
    manager: Option<&str>,
    secrets: ReportedSecrets,
    progress: ProgressCallback<'_>,
) -> Result<MemberCredentials, JoinError> {
    let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
    progress("creating service accounts and roles in the member cluster");
    ensure_member_namespace(cluster, namespace, progress).await?;
    for (resource, body) in account_objects(spec, manager, secrets) {
        let what = format!("create {}", resource.group_resource());
        let within = body["metadata"]["namespace"].as_str().unwrap_or_default();
        let within = within.to_owned();
        let result = create_if_absent(cluster, resource, &within, body).await;
        let created = result.map_err(member_error(what))?;
        if let (false, Some(id)) = (created, manager.filter(|_| *resource == CLUSTER_ROLES)) {
            claim_member(cluster, name, id).await?;
        }
    }
    progress("waiting for the tokens of the service accounts");
    let own_ca = spec.ca_bundle.is_none() && !spec.insecure_skip_tls_verification;
    let account = objects::service_account_name(name);
    let impersonation = async {
        if !secrets.impersonator {
            return Ok(None);
        }
        let account = objects::IMPERSONATOR_ACCOUNT;
        let data = wait_for_token(cluster, namespace, account, false).await?;
        Ok(Some(json!({"token": data["token"]})))
    };
    let access = async {
        if !secrets.credentials {
            return Ok(None);
        }
        let data = wait_for_token(cluster, namespace, &account, own_ca).await?;
        access_data(spec, &data).map(Some)
    };
    let (impersonation, access) = tokio::join!(impersonation, access);
    let (impersonation, access) = (impersonation?, access?);
    Ok(MemberCredentials {
        access,
        impersonation,
    })
}

/// Creates the namespace of the service accounts. The one that an earlier removal deletes is
/// waited for.
async fn ensure_member_namespace(
    cluster: &dyn Api,
    name: &str,
    progress: ProgressCallback<'_>,
) -> Result<(), JoinError> {
    let create = || create_if_absent(cluster, &NAMESPACES, "", objects::namespace(name));
    let failed = || member_error(format!("create the namespace {name:?}"));
    if create().await.map_err(failed())? {
        return Ok(());
    }
    let at = ResourcePath::object(&NAMESPACES, "", name);
    let existing = ignore_not_found(cluster.get(at).await).map_err(failed())?;
    if existing.is_some_and(|namespace| !namespace.meta().deleting) {
        return Ok(());
    }
    progress(&format!(
        "waiting for the namespace {name:?} of an earlier join to be deleted in the member cluster"
    ));
    let is_gone = |existing: Option<&Object>| existing.is_none().then_some(());
    let gone = wait_until(cluster, at, NAMESPACE_TIMEOUT, is_gone).await;
    gone.map_err(|WaitTimeoutError(last)| JoinError::NamespaceTerminating {
        name: name.to_owned(),
        limit: NAMESPACE_TIMEOUT,
        last,
    })?;
    create().await.map(drop).map_err(failed())
}

fn access_data(spec: &JoinSpec, token: &Value) -> Result<Value, JoinError> {
    let ca = match &spec.ca_bundle {
        Some(pem) => STANDARD.encode(pem).into(),
        None => token["ca.crt"].clone(),
    };
    let mut data = json!({"token": token["token"]});
    match ca {
        Value::String(ca) if !ca.is_empty() => data["caBundle"] = ca.into(),
        _ if spec.insecure_skip_tls_verification => {}
        _ => return Err(JoinError::NoCaBundle),
    }
    Ok(data)
}

/// Marks the ClusterRole that another join has left as that of our control plane.
async fn claim_member(cluster: &dyn Api, name: &str, id: &str) -> Result<(), JoinError> {
    let role = objects::cluster_role_name(name);
    let patch = json!({"metadata": {"annotations": objects::control_plane_annotation(id)}});
    let claimed = merge_patch(cluster, &CLUSTER_ROLES, "", &role, patch).await;
    claimed.map_err(member_error(format!("annotate the ClusterRole {role:?}")))
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

/// Writes the credentials of a member into Secrets of the control plane.
pub(crate) async fn write_credentials(
    control: &dyn Api,
    cluster: &str,
    namespace: &str,
    credentials: &MemberCredentials,
) -> Result<(), JoinError> {
    for (name, data) in credentials.secrets(cluster) {
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
    Ok(())
}

/// Makes a Cluster the owner of its Secrets.
pub(crate) async fn set_secret_owners(
    control: &dyn Api,
    namespace: &str,
    secrets: &[String],
    cluster: &Object,
) -> Result<(), JoinError> {
    for name in secrets {
        let patch = objects::owner_patch(cluster.name(), cluster.uid());
        let done = merge_patch(control, &objects::SECRETS, namespace, name, patch).await;
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
