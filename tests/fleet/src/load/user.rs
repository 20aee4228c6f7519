//! The user of the load: a service account with a cluster role.

use std::path::Path;

use anyhow::Context;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{AuthInfo, Redacted, RestConfig};
use client::{Api, RemoteApi, ResourcePath, ShutdownToken, TaskGroup, WriteOptions};
use machinery::Gvr;
use serde_json::{Value, json};

use super::objects::{CLUSTER_NAMESPACE, NAMESPACE, NAMESPACES};

static SERVICE_ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
static CLUSTER_ROLES: Gvr = Gvr::from_static(RBAC, "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr = Gvr::from_static(RBAC, "v1", "clusterrolebindings");
const RBAC: &str = "rbac.authorization.k8s.io";
const NAME: &str = "fleet-benchmark";
/// Longer than any run.
const TOKEN_SECONDS: u32 = 86_400;

/// Creates the user as the administrator of a kubeconfig, and the namespace that it needs; returns how
/// the user connects.
pub(crate) async fn create_load_user(kubeconfig: &Path) -> anyhow::Result<RestConfig> {
    let mut config = KubeconfigLoadingRules::from_file(kubeconfig).load()?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let administrator = RemoteApi::new(config.clone(), &tasks)?;
    let options = WriteOptions::default();
    for (resource, namespace, object) in user_objects() {
        let at = ResourcePath::collection(resource, namespace);
        let created = administrator.create(at, object.into(), &options);
        match created.await {
            Err(error) if !error.is_already_exists() => return Err(error.into()),
            _ => {}
        }
    }
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": {}, "spec": {"expirationSeconds": TOKEN_SECONDS},
    });
    let at = ResourcePath::object(&SERVICE_ACCOUNTS, NAMESPACE, NAME).subresource("token");
    let reply = administrator.create(at, request.into(), &options);
    let reply = reply.await?.value()?;
    let token = reply["status"]["token"].as_str().context("no token")?;
    config.auth = AuthInfo {
        token: Some(Redacted(token.to_owned())),
        ..AuthInfo::default()
    };
    Ok(config)
}

fn user_objects() -> Vec<(&'static Gvr, &'static str, Value)> {
    let rule = |groups: &[&str], resources: &[&str]| {
        let verbs = ["create", "get", "list", "watch", "patch"];
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NAME},
        "rules": [
            rule(&[""], &["secrets", "configmaps"]),
            rule(&["apps"], &["deployments"]),
            rule(&["cluster.karmada.io"], &["clusters"]),
            rule(&["policy.karmada.io"], &["propagationpolicies", "overridepolicies"]),
            rule(&["rollout.flotilla.io"], &["rolloutpolicies", "rollouts"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLUSTER_NAMESPACE}});
    vec![
        (&NAMESPACES, "", namespace),
        (&SERVICE_ACCOUNTS, NAMESPACE, account),
        (&CLUSTER_ROLES, "", role),
        (&CLUSTER_ROLE_BINDINGS, "", binding),
    ]
}
