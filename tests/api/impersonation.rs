//! Constrained impersonation by kubectl, with the rights of a service account.

use std::path::Path;

use serde_json::{Value, json};

use crate::api::kubectl::{Kubectl, fails, succeeds, with_each_kubectl};
use crate::api::test_server::ApiTestServer;

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: constrained-LABEL}
rules:
- {apiGroups: [authentication.k8s.io], resources: [users], resourceNames: [ann-LABEL], verbs: ["impersonate:user-info"]}
- {apiGroups: [authentication.k8s.io], resources: [groups], resourceNames: [team], verbs: ["impersonate:user-info"]}
- {nonResourceURLs: ["*"], verbs: ["impersonate-on:user-info:get", "impersonate-on:serviceaccount:get"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: constrained-LABEL}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: constrained-LABEL}
subjects:
- {kind: ServiceAccount, name: robot, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: constrained, namespace: NS}
rules:
- {apiGroups: [authentication.k8s.io], resources: [serviceaccounts], resourceNames: [other], verbs: ["impersonate:serviceaccount"]}
- {apiGroups: [""], resources: [configmaps], verbs: ["impersonate-on:user-info:list", "impersonate-on:serviceaccount:list"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: constrained, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: constrained}
subjects:
- {kind: ServiceAccount, name: robot, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NS}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: ann-LABEL}
- {kind: ServiceAccount, name: other, namespace: NS}
"#;

/// Writes a kubeconfig with a token of the service account `robot`.
fn kubeconfig_of_robot(server: &ApiTestServer, kubectl: &Kubectl, dir: &Path) -> String {
    let account = format!(
        "/api/v1/namespaces/{}/serviceaccounts/robot",
        kubectl.namespace
    );
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": []}});
    let reply = server.post(&format!("{account}/token"), &request).json();
    let token = reply["status"]["token"].as_str().unwrap();
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let path = dir.join(format!("robot-{}", kubectl.label));
    std::fs::write(&path, config.to_string()).unwrap();
    path.display().to_string()
}

// proves: IMP-modes
#[test]
fn a_constrained_permission_is_for_an_identity_and_what_is_done_as_it() {
    let server = ApiTestServer::shared();
    let dir = server.create_dir("constrained");
    with_each_kubectl("constrained", |kubectl| {
        let (label, namespace) = (&kubectl.label, &kubectl.namespace);
        kubectl.wait_for_exit_code("get configmap kube-root-ca.crt", 0);
        kubectl.output("create serviceaccount robot");
        let robot = kubeconfig_of_robot(&server, kubectl, &dir);
        let roles = ROLES.replace("LABEL", label).replace("NS", namespace);
        let (code, output) = kubectl.run_with_input("apply -f -", &roles);
        assert_eq!(code, 0, "{output}");
        let as_robot = |line: &str| {
            let line = line.replace("ANN", &format!("ann-{label}"));
            format!("{line} --kubeconfig {robot} -n {namespace}")
        };
        let account = format!("get configmaps --as system:serviceaccount:{namespace}:other");
        kubectl.wait_for_exit_code(&as_robot("get configmaps --as ANN"), 0);
        kubectl.wait_for_exit_code(&as_robot("get configmaps --as ANN --as-group team"), 0);
        kubectl.wait_for_exit_code(&as_robot(&account), 0);
        let grouped = format!("{account} --as-group team");
        kubectl.run_commands(&[
            succeeds(&as_robot("get configmaps --as ANN"), &["kube-root-ca.crt"]),
            fails(
                &as_robot("get configmaps kube-root-ca.crt --as ANN"),
                &["resource \"configmaps\" in API group \"\" in the namespace"],
            ),
            fails(
                &as_robot("delete configmaps --all --as ANN --as-group system:masters"),
                &["forbidden"],
            ),
            fails(&as_robot("get configmaps --as bob"), &["forbidden"]),
            fails(&as_robot("get configmaps"), &["forbidden"]),
            fails(&as_robot(&grouped), &["forbidden"]),
        ]);
    });
}
