//! Identities, impersonation, tokens and the commands of `kubectl auth`, by kubectl.

use crate::api::kubectl::{fails, succeeds, succeeds_with_input, with_each_kubectl};

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reconciled, namespace: NS}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reconciled, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reconciled}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: reconciled-user}
"#;

#[test]
fn kubectl_auth_tells_and_reconciles_rights() {
    with_each_kubectl("auth", |kubectl| {
        let user = format!("auth-{}", kubectl.label);
        let line = |text: &str| text.replace("USER", &user);
        let wait = |text: &str, code| kubectl.wait_for_exit_code(&line(text), code);
        kubectl.output("create role reader --verb=get,list --resource=pods,configmaps");
        kubectl.output(&line("create rolebinding reader --role=reader --user=USER"));
        wait("auth can-i list pods --as USER", 0);
        wait("auth can-i get configmaps/a --as USER", 0);
        wait("auth can-i delete pods --as USER", 1);
        wait("auth can-i list pods --as USER --namespace default", 1);
        wait("auth can-i list pods --as USER --all-namespaces", 1);
        wait("auth can-i get /version --as USER", 0);
        wait("auth can-i get /metrics --as USER", 1);
        kubectl.run_commands(&[
            succeeds(
                &line("auth can-i --list --as USER"),
                &[
                    "pods [] [] [get list]",
                    "configmaps [] [] [get list]",
                    "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]",
                    "selfsubjectrulesreviews.authorization.k8s.io [] [] [create]",
                    "[/api/*] [] [get]",
                    "[/version] [] [get]",
                    "!secrets",
                    "!*.*",
                ],
            ),
            succeeds("auth can-i --list", &["*.* [] [] [*]", "[*] [] [*]"]),
            succeeds(&line("get pods --as USER"), &["No resources found"]),
            fails(
                &line("get secrets --as USER"),
                &[&line("User \"USER\" cannot list resource \"secrets\" in API group \"\" in the namespace \"NS\"")],
            ),
            fails(
                &line("create rolebinding more --clusterrole=cluster-admin --user=USER --as USER"),
                &["cannot create resource \"rolebindings\""],
            ),
        ]);
        let roles = ROLES.replace("NS", &kubectl.namespace);
        kubectl.run_commands(&[
            succeeds_with_input(
                "auth reconcile -f -",
                &roles,
                &["role.rbac.authorization.k8s.io/reconciled reconciled"],
            ),
            succeeds_with_input(
                "auth reconcile -f - --remove-extra-permissions",
                &roles.replace("get, list", "watch"),
                &["reconciled"],
            ),
            succeeds(
                "get role reconciled -o jsonpath={.rules[*].verbs}",
                &["watch", "!list"],
            ),
        ]);
        wait("auth can-i watch configmaps --as reconciled-user", 0);
    });
}

#[test]
fn kubectl_uses_tokens_of_service_accounts() {
    with_each_kubectl("tokens", |kubectl| {
        kubectl.output("create serviceaccount robot");
        kubectl.output("create role robot --verb=list --resource=configmaps");
        kubectl.output("create rolebinding robot --role=robot --serviceaccount=NS:robot");
        kubectl.run_commands(&[
            succeeds(
                "new:auth whoami --as system:serviceaccount:NS:robot",
                &[
                    "system:serviceaccount:NS:robot",
                    "system:serviceaccounts:NS",
                ],
            ),
            succeeds(
                "new:create token robot --duration 10m --audience other",
                &["ey"],
            ),
            fails(
                "new:create token nobody",
                &["serviceaccounts \"nobody\" not found"],
            ),
            fails("new:create token robot --duration 10s", &["10 minutes"]),
        ]);
        kubectl.wait_for_exit_code("get configmaps --as system:serviceaccount:NS:robot", 0);
    });
}
