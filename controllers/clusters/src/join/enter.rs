//! Joins a cluster in push mode: creates service accounts in the member, and their tokens
//! and a Cluster in the control plane.
//!
//! Every step tolerates that its work is already done, so an interrupted join can simply
//! be repeated.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, At, Error, ListOptions, Patch, Result, WriteOptions};
use machinery::names::dns1123_label;
use machinery::{Gvr, Object};
use openapi::karmada::resources::CLUSTERS;
use openapi::karmada::{Cluster, names};
use serde_json::{Value, json};

use super::wait::{Late, until};
use super::{Progress, objects};
use crate::NAMESPACES;

/// How long the member's token controller may take to fill in the tokens.
const TOKENS: Duration = Duration::from_secs(30);
/// The longest cluster name that fits behind the prefix of execution spaces.
const LONGEST_NAME: usize = 48;

/// The cluster to join in push mode.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    pub name: String,
    /// The URL of the member's API server, as the control plane reaches it.
    pub endpoint: String,
    /// The CA bundle in PEM that verifies the endpoint; `None`: the `ca.crt` beside the
    /// member's tokens.
    pub ca_pem: Option<String>,
    /// The endpoint's certificate is not verified.
    pub insecure: bool,
    pub proxy_url: Option<String>,
    /// The namespace of service accounts and secrets, on both sides.
    pub namespace: String,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Only checks; writes nothing.
    pub dry_run: bool,
}

impl Default for JoinSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            endpoint: String::new(),
            ca_pem: None,
            insecure: false,
            proxy_url: None,
            namespace: "karmada-cluster".to_owned(),
            provider: None,
            region: None,
            zones: Vec::new(),
            dry_run: false,
        }
    }
}

/// The result of a join.
#[derive(Debug)]
pub struct Joined {
    /// The UID of the member's `kube-system` namespace.
    pub id: String,
    /// `None` after a dry run.
    pub cluster: Option<Object>,
}

/// Why a cluster was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("the cluster name {0:?} is invalid: {1}")]
    Name(String, String),
    #[error("the cluster name {0:?} has been registered")]
    NameTaken(String),
    #[error("the cluster ID {id} has been registered as {name:?}")]
    IdTaken { id: String, name: String },
    /// The member's `kube-system` namespace has no UID.
    #[error("the member cluster has no ID")]
    NoId,
    #[error("the member cluster provides no CA bundle to verify its endpoint")]
    NoCa,
    #[error("no token for the service account {account:?} within {} s{}", .limit.as_secs(), error_suffix(.last))]
    Token {
        account: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("cannot {what} in the member cluster: {source}")]
    Member { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    Host { what: String, source: Error },
}

pub(super) fn error_suffix(last: &Option<Error>) -> String {
    last.as_ref().map(|e| format!(": {e}")).unwrap_or_default()
}

type Outcome<T> = std::result::Result<T, JoinError>;

fn member(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::Member { what, source }
}

fn host(what: impl Into<String>) -> impl FnOnce(Error) -> JoinError {
    let what = what.into();
    move |source| JoinError::Host { what, source }
}

/// Whether the cluster is registered, and how far an earlier join got.
enum Standing {
    New,
    /// The Cluster exists; its secrets may lack their owner reference.
    Unfinished(Object),
}

/// Joins a cluster in push mode. An interrupted join may be repeated; a cluster that is
/// already joined is refused.
pub async fn join(
    control: &dyn Api,
    cluster: &dyn Api,
    spec: &JoinSpec,
    progress: Progress<'_>,
) -> Outcome<Joined> {
    check_name(&spec.name)?;
    let id = cluster_id(cluster).await?;
    let standing = standing(control, spec, &id).await?;
    if spec.dry_run {
        progress(&format!(
            "cluster {:?} with ID {id} can be joined",
            spec.name
        ));
        return Ok(Joined { id, cluster: None });
    }
    let object = match standing {
        Standing::Unfinished(object) => {
            progress("finishing an interrupted join");
            object
        }
        Standing::New => {
            let secrets = obtain(cluster, spec, progress).await?;
            register(control, spec, &id, &secrets, progress).await?
        }
    };
    own_secrets(control, spec, &object).await?;
    progress(&format!("cluster {:?} is joined", spec.name));
    Ok(Joined {
        id,
        cluster: Some(object),
    })
}

fn check_name(name: &str) -> Outcome<()> {
    let long = (name.len() > LONGEST_NAME)
        .then(|| format!("must be no more than {LONGEST_NAME} characters"));
    match dns1123_label(name).err().or(long) {
        Some(why) => Err(JoinError::Name(name.to_owned(), why)),
        None => Ok(()),
    }
}

async fn cluster_id(cluster: &dyn Api) -> Outcome<String> {
    let found = cluster.get(At::one(&NAMESPACES, "", "kube-system")).await;
    let system = found.map_err(member("read the namespace kube-system"))?;
    match system.uid() {
        "" => Err(JoinError::NoId),
        uid => Ok(uid.to_owned()),
    }
}

async fn standing(control: &dyn Api, spec: &JoinSpec, id: &str) -> Outcome<Standing> {
    let options = ListOptions::default();
    let list = control.list(At::all(&CLUSTERS, ""), &options);
    let clusters = list.await.map_err(host("list the clusters"))?.items;
    let mut same = None;
    for object in clusters {
        let view = object.view::<Cluster>();
        let registered = view
            .map_err(|e| host("read a cluster")(e.into()))?
            .spec
            .id
            .clone();
        match (object.name() == spec.name, registered == id) {
            (true, true) => same = Some(object),
            (true, false) => return Err(JoinError::NameTaken(spec.name.clone())),
            (false, true) => {
                return Err(JoinError::IdTaken {
                    id: id.to_owned(),
                    name: object.name().to_owned(),
                });
            }
            (false, false) => {}
        }
    }
    let Some(object) = same else {
        return Ok(Standing::New);
    };
    // Setting the Cluster as the secrets' owner is the last step of a join.
    let mut finished = !object.head().deleting;
    for name in secret_names(spec) {
        let at = At::one(&objects::SECRETS, &spec.namespace, &name);
        let secret = control.get(at).await.map_err(host("read its secrets"));
        let owns = |s: &Object| s.head().owners.iter().any(|o| *o.uid == *object.uid());
        finished &= match secret {
            Ok(secret) => owns(&secret),
            // A join never leaves a secret missing: it was deleted later.
            Err(JoinError::Host { source, .. }) if source.is_not_found() => true,
            Err(e) => return Err(e),
        };
    }
    if finished || object.head().deleting {
        return Err(JoinError::NameTaken(spec.name.clone()));
    }
    Ok(Standing::Unfinished(object))
}

fn secret_names(spec: &JoinSpec) -> [String; 2] {
    [spec.name.clone(), names::impersonation_secret(&spec.name)]
}

/// The `data` of the two secrets.
struct Secrets {
    access: Value,
    impersonation: Value,
}

async fn obtain(cluster: &dyn Api, spec: &JoinSpec, progress: Progress<'_>) -> Outcome<Secrets> {
    let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
    let account = objects::account_name(name);
    progress("creating service accounts and roles in the member cluster");
    for (resource, namespace, body) in [
        (&NAMESPACES, "", objects::namespace(namespace)),
        (
            &objects::ACCOUNTS,
            namespace,
            objects::account(namespace, objects::IMPERSONATOR),
        ),
        (
            &objects::ACCOUNTS,
            namespace,
            objects::account(namespace, &account),
        ),
        (&objects::ROLES, "", objects::role(name)),
        (
            &objects::ROLE_BINDINGS,
            "",
            objects::role_binding(name, namespace),
        ),
        (
            &objects::SECRETS,
            namespace,
            objects::token(namespace, objects::IMPERSONATOR),
        ),
        (
            &objects::SECRETS,
            namespace,
            objects::token(namespace, &account),
        ),
    ] {
        let made = ensure(cluster, resource, namespace, body).await;
        made.map_err(member(format!("create {}", resource.qualified())))?;
    }
    progress("waiting for the tokens of the service accounts");
    let own_ca = spec.ca_pem.is_none() && !spec.insecure;
    let (impersonator, access) = tokio::join!(
        token(cluster, namespace, objects::IMPERSONATOR, false),
        token(cluster, namespace, &account, own_ca),
    );
    let (impersonator, access) = (impersonator?, access?);
    let ca = match &spec.ca_pem {
        Some(pem) => STANDARD.encode(pem).into(),
        None => access["ca.crt"].clone(),
    };
    let mut data = json!({"token": access["token"]});
    match ca {
        Value::String(ca) if !ca.is_empty() => data["caBundle"] = ca.into(),
        _ if spec.insecure => {}
        _ => return Err(JoinError::NoCa),
    }
    Ok(Secrets {
        access: data,
        impersonation: json!({"token": impersonator["token"]}),
    })
}

/// Waits for the data of a service account's token secret, with the CA if `ca` is set.
async fn token(cluster: &dyn Api, namespace: &str, account: &str, ca: bool) -> Outcome<Value> {
    let at = At::one(&objects::SECRETS, namespace, account);
    let filled = |secret: Option<&Object>| {
        let data = secret?.value().ok()?["data"].take();
        let has = |key: &str| data[key].as_str().is_some_and(|v| !v.is_empty());
        (has("token") && (!ca || has("ca.crt"))).then_some(data)
    };
    until(cluster, at, TOKENS, filled)
        .await
        .map_err(|Late(last)| JoinError::Token {
            account: account.to_owned(),
            limit: TOKENS,
            last,
        })
}

async fn register(
    control: &dyn Api,
    spec: &JoinSpec,
    id: &str,
    secrets: &Secrets,
    progress: Progress<'_>,
) -> Outcome<Object> {
    progress("registering the cluster in the control plane");
    let namespace = &spec.namespace;
    let made = ensure(control, &NAMESPACES, "", objects::namespace(namespace)).await;
    made.map_err(host(format!("create the namespace {namespace:?}")))?;
    let data = [&secrets.access, &secrets.impersonation];
    for (name, data) in secret_names(spec).into_iter().zip(data) {
        let body = objects::secret(namespace, &name, data);
        let done = match ensure(control, &objects::SECRETS, namespace, body).await {
            Ok(true) => Ok(()),
            // From an earlier attempt, whose tokens may be invalid by now.
            Ok(false) => {
                let patch = json!({"data": data});
                merge(control, &objects::SECRETS, namespace, &name, patch).await
            }
            Err(e) => Err(e),
        };
        done.map_err(host(format!("write the secret {name:?}")))?;
    }
    let at = At::all(&CLUSTERS, "");
    let body = objects::cluster(spec, id);
    let made = control.create(at, body, &WriteOptions::default()).await;
    made.map_err(|e| match e.is_already_exists() {
        true => JoinError::NameTaken(spec.name.clone()),
        false => host("create the cluster")(e),
    })
}

async fn own_secrets(control: &dyn Api, spec: &JoinSpec, cluster: &Object) -> Outcome<()> {
    for name in secret_names(spec) {
        let patch = objects::owned_by(cluster.name(), cluster.uid());
        let done = merge(control, &objects::SECRETS, &spec.namespace, &name, patch).await;
        done.map_err(host(format!(
            "set the cluster as owner of the secret {name:?}"
        )))?;
    }
    Ok(())
}

/// Creates an object; returns `false` if it exists already.
async fn ensure(api: &dyn Api, resource: &Gvr, namespace: &str, body: Value) -> Result<bool> {
    let at = At::all(resource, namespace);
    match api.create(at, body, &WriteOptions::default()).await {
        Ok(_) => Ok(true),
        Err(e) if e.is_already_exists() => Ok(false),
        Err(e) => Err(e),
    }
}

async fn merge(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    name: &str,
    patch: Value,
) -> Result<()> {
    let at = At::one(resource, namespace, name);
    let patch = Patch::Merge(patch);
    api.patch(at, patch, &WriteOptions::default())
        .await
        .map(drop)
}
