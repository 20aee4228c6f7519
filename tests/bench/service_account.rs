//! Creates a ServiceAccount whose rights come from RBAC rules, for measurements that include
//! authorization. The administrator of the kubeconfig is in `system:masters`, which is
//! allowed before any rule is read.

use anyhow::Context;
use serde_json::json;

use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;

const SERVICE_ACCOUNTS_PATH: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC_PATH: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Creates a ServiceAccount that may read and create ConfigMaps; returns its credentials.
pub(crate) fn create_user(administrator: &Kubeconfig, name: &str) -> anyhow::Result<Kubeconfig> {
    let mut connection = BenchConnection::open(administrator)?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    connection.post(SERVICE_ACCOUNTS_PATH, &account.to_string())?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}],
    });
    connection.post(&format!("{RBAC_PATH}/roles"), &role.to_string())?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    connection.post(&format!("{RBAC_PATH}/rolebindings"), &binding.to_string())?;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let reply = connection.post(
        &format!("{SERVICE_ACCOUNTS_PATH}/{name}/token"),
        &request.to_string(),
    )?;
    let reply = reply.json()?;
    let token = reply["status"]["token"].as_str().context("no token")?;
    administrator.with_token(token)
}
