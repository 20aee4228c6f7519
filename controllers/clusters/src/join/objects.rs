//! The objects that a join creates in the member and in the control plane. Pure.

use machinery::Gvr;
use openapi::karmada::labels::SYSTEM;
use openapi::karmada::names;
use serde_json::{Value, json};

use super::enter::JoinSpec;

pub(super) static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
pub(super) static ACCOUNTS: Gvr = Gvr::constant("", "v1", "serviceaccounts");
pub(super) static ROLES: Gvr = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterroles");
pub(super) static ROLE_BINDINGS: Gvr =
    Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterrolebindings");

/// The service account that impersonates the users of the control plane in a member.
pub(super) const IMPERSONATOR: &str = "karmada-impersonator";

/// The control plane's service account in a member.
pub(super) fn account_name(cluster: &str) -> String {
    format!("karmada-{cluster}")
}

pub(super) fn role_name(cluster: &str) -> String {
    format!("karmada-controller-manager:{}", account_name(cluster))
}

fn system() -> Value {
    json!({SYSTEM: "true"})
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": system()}})
}

pub(super) fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
           "metadata": {"namespace": namespace, "name": name, "labels": system()}})
}

/// A token secret, which the member's token controller fills in.
pub(super) fn token(namespace: &str, account: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
           "metadata": {"namespace": namespace, "name": account,
                        "annotations": {"kubernetes.io/service-account.name": account}}})
}

pub(super) fn role(cluster: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
           "metadata": {"name": role_name(cluster), "labels": system()},
           "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                     {"verbs": ["get"], "nonResourceURLs": ["*"]}]})
}

pub(super) fn role_binding(cluster: &str, namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
           "metadata": {"name": role_name(cluster), "labels": system()},
           "subjects": [{"kind": "ServiceAccount", "name": account_name(cluster), "namespace": namespace}],
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_name(cluster)}})
}

/// A secret in the control plane; the values of `data` are base64.
pub(super) fn secret(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
           "metadata": {"namespace": namespace, "name": name, "labels": system()}})
}

pub(super) fn cluster(spec: &JoinSpec, id: &str) -> Value {
    let reference = |name: String| json!({"namespace": spec.namespace, "name": name});
    let mut body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": spec.name},
        "spec": {
            "syncMode": "Push", "id": id, "apiEndpoint": spec.endpoint,
            "secretRef": reference(spec.name.clone()),
            "impersonatorSecretRef": reference(names::impersonation_secret(&spec.name)),
        },
    });
    let fields = &mut body["spec"];
    for (field, text) in [
        ("provider", &spec.provider),
        ("region", &spec.region),
        ("proxyURL", &spec.proxy_url),
    ] {
        if let Some(text) = text {
            fields[field] = text.as_str().into();
        }
    }
    if !spec.zones.is_empty() {
        fields["zones"] = json!(spec.zones);
    }
    if spec.insecure {
        fields["insecureSkipTLSVerification"] = true.into();
    }
    body
}

/// A patch that makes a Cluster the owner of its secrets.
pub(super) fn owned_by(cluster: &str, uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": cluster, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]}})
}
