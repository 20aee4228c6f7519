//! Creates a ServiceAccount whose rights come from RBAC rules, for measurements that include
//! authorization. The administrator of the kubeconfig is in `system:masters`, which is
//! allowed before any rule is read.

use anyhow::Context;
use serde_json::json;

use crate::kubeconfig::Kubeconfig;
use crate::wire::Connection;

const NAME: &str = "bench";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Creates a ServiceAccount that may read and create ConfigMaps; returns its credentials.
pub(crate) fn ordinary(administrator: &Kubeconfig) -> anyhow::Result<Kubeconfig> {
    let mut connection = Connection::open(administrator)?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    connection.post(ACCOUNTS, &account.to_string())?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": NAME},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}],
    });
    connection.post(&format!("{RBAC}/roles"), &role.to_string())?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "default"}],
    });
    connection.post(&format!("{RBAC}/rolebindings"), &binding.to_string())?;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let reply = connection.post(&format!("{ACCOUNTS}/{NAME}/token"), &request.to_string())?;
    let reply = reply.json()?;
    let token = reply["status"]["token"].as_str().context("no token")?;
    administrator.with_token(token)
}
