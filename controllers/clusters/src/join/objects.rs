//! The objects that a join creates in the member and in the control plane. Pure.

use karmada_api::names;
use karmada_api::well_known_keys::{CONTROL_PLANE_ID, SYSTEM};
use machinery::Gvr;
use serde_json::{Value, json};

use super::join_spec::JoinSpec;

pub(crate) static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
pub(crate) static SERVICE_ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
pub(crate) static CLUSTER_ROLES: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
pub(crate) static CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");

/// The service account that impersonates the users of the control plane in a member.
pub(crate) const IMPERSONATOR_ACCOUNT: &str = "karmada-impersonator";

/// The control plane's service account in a member.
pub(crate) fn service_account_name(cluster: &str) -> String {
    format!("karmada-{cluster}")
}

const CLUSTER_ROLE_PREFIX: &str = "karmada-controller-manager:karmada-";

pub(crate) fn cluster_role_name(cluster: &str) -> String {
    format!("{CLUSTER_ROLE_PREFIX}{cluster}")
}

/// The cluster that a ClusterRole in the member was created for.
pub(super) fn cluster_of_role(role: &str) -> Option<&str> {
    role.strip_prefix(CLUSTER_ROLE_PREFIX)
}

fn system_labels() -> Value {
    json!({SYSTEM: "true"})
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": system_labels()}})
}

pub(super) fn service_account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
           "metadata": {"namespace": namespace, "name": name, "labels": system_labels()}})
}

/// A token secret, which the member's token controller fills in.
pub(super) fn token_secret(namespace: &str, account: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
           "metadata": {"namespace": namespace, "name": account,
                        "annotations": {"kubernetes.io/service-account.name": account}}})
}

pub(super) fn cluster_role(cluster: &str, control_plane: Option<&str>) -> Value {
    let mut body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
           "metadata": {"name": cluster_role_name(cluster), "labels": system_labels()},
           "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                     {"verbs": ["get"], "nonResourceURLs": ["*"]}]});
    if let Some(id) = control_plane {
        body["metadata"]["annotations"] = control_plane_annotation(id);
    }
    body
}

/// By which another control plane learns whose the member is.
pub(super) fn control_plane_annotation(id: &str) -> Value {
    json!({CONTROL_PLANE_ID: id})
}

pub(super) fn cluster_role_binding(cluster: &str, namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
           "metadata": {"name": cluster_role_name(cluster), "labels": system_labels()},
           "subjects": [{"kind": "ServiceAccount", "name": service_account_name(cluster), "namespace": namespace}],
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role_name(cluster)}})
}

/// A secret in the control plane; the values of `data` are base64.
pub(super) fn secret(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
           "metadata": {"namespace": namespace, "name": name, "labels": system_labels()}})
}

pub(super) fn cluster(spec: &JoinSpec, id: &str) -> Value {
    let reference = |name: String| json!({"namespace": spec.namespace, "name": name});
    let mut body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": spec.name},
        "spec": {
            "syncMode": "Push", "id": id, "apiEndpoint": spec.endpoint,
            "secretRef": reference(spec.name.clone()),
            "impersonatorSecretRef": reference(names::impersonation_secret_name(&spec.name)),
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
    if !spec.annotations.is_empty() {
        body["metadata"]["annotations"] = json!(spec.annotations);
    }
    let fields = &mut body["spec"];
    if spec.insecure_skip_tls_verification {
        fields["insecureSkipTLSVerification"] = true.into();
    }
    body
}

/// A patch that makes a Cluster the owner of its secrets.
pub(super) fn owner_patch(cluster: &str, uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": cluster, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]}})
}
