//! The cluster proxy reaches members that know constrained impersonation (KEP-5284): with the
//! role that the control plane gives its impersonator, and with an account that has constrained
//! modes only.

use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, run_flotilla, wait_until};
use crate::flow::member_credentials::short_token;
use crate::flow::member_outage::start_member;
use crate::flow::objects::{CLUSTERS, NAMESPACES, config_map, secret};

const NAME: &str = "constraining";
const NS: &str = "impersonation";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const GROUP: &str = "impersonation-readers";
const ACCOUNT: &str = "system:serviceaccount:impersonation:bot";

/// Creates a ClusterRole, and binds the group and the service account to it.
async fn grant(server: &ApiServerClient, role: &str, rule: Value) {
    let version = "rbac.authorization.k8s.io/v1";
    server
        .create(json!({"apiVersion": version, "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": [rule]}))
        .await;
    server
        .create(json!({"apiVersion": version, "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": GROUP},
                {"kind": "ServiceAccount", "name": "bot", "namespace": NS}]}))
        .await;
}

/// Waits until a request through the proxy has this code.
async fn wait_for_code(user: &ApiServerClient, rest: &str, code: u16) {
    let path = format!(
        "/apis/cluster.karmada.io/v1alpha1/clusters/{NAME}/proxy/api/v1/namespaces/{NS}/{rest}"
    );
    let description = format!("{rest} for {}: {code}", user.name);
    let has_code = async || match user.api.get_raw(&path).await {
        Ok(_) => code == 200,
        Err(error) => error.status().is_some_and(|s| s.code == code),
    };
    wait_until(&description, has_code).await;
}

/// Reaches the member with the token of an account that has constrained modes only.
async fn impersonate_by_constrained_modes(control: &ApiServerClient, member: &ApiServerClient) {
    let version = "rbac.authorization.k8s.io/v1";
    let identity = |resource: &str, name: &str, mode: &str| {
        json!({"apiGroups": ["authentication.k8s.io"], "resources": [resource],
            "resourceNames": [name], "verbs": [format!("impersonate:{mode}")]})
    };
    let lists = [
        "impersonate-on:user-info:list",
        "impersonate-on:serviceaccount:list",
    ];
    let rules = json!([
        identity("users", "ann", "user-info"),
        identity("groups", GROUP, "user-info"),
        identity("serviceaccounts", "bot", "serviceaccount"),
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": lists},
    ]);
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "karmada-relay", "namespace": "karmada-cluster"}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "relay"},
            "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "relay"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "relay"},
            "subjects": [{"kind": "ServiceAccount", "name": "karmada-relay",
                "namespace": "karmada-cluster"}]}),
    ] {
        member.create(object).await;
    }
    let token = short_token(member, "relay").await;
    let mut secret = secret("karmada-cluster", "constraining-relay", "");
    secret["stringData"] = json!({"token": token});
    control.create(secret).await;
    let reference = json!({"namespace": "karmada-cluster", "name": "constraining-relay"});
    let patch = json!({"spec": {"impersonatorSecretRef": reference}});
    control.merge_patch(&CLUSTERS, "", NAME, patch).await;
}

// proves: IMP-constrained
#[tokio::test]
async fn the_proxy_works_where_a_member_grants_only_constrained_impersonation() {
    let fleet = FleetFixture::shared(NS).await;
    let control = &fleet.control;
    let dir = tempfile::tempdir().unwrap();
    let _process = start_member(dir.path()).await;
    let own = fleet.kubeconfig().display().to_string();
    let member_kubeconfig = dir.path().join("kubeconfig");
    let member = ApiServerClient::connect(NAME, &member_kubeconfig);
    let member_kubeconfig = member_kubeconfig.display().to_string();
    let files = [
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--kubeconfig",
        &own,
    ];
    run_flotilla(&[&["join", NAME][..], &files].concat()).await;
    control.wait_until_cluster_ready(NAME).await;
    member.wait_until_exists(&NAMESPACES, "", NS).await;
    member.create(config_map(NS, "kept", "v")).await;
    let everything = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
        "resourceNames": [NAME], "verbs": ["*"]});
    grant(control, "reach-constraining", everything).await;
    let reads = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]});
    grant(&member, "readers", reads).await;

    let ann = ApiServerClient::connect("ann", &fleet.kubeconfig_as("ann", &[GROUP]));
    let bot = ApiServerClient::connect("bot", &fleet.kubeconfig_as(ACCOUNT, &[]));
    for user in [&ann, &bot] {
        wait_for_code(user, "configmaps", 200).await;
        wait_for_code(user, "configmaps/kept", 200).await;
    }

    impersonate_by_constrained_modes(control, &member).await;
    for user in [&ann, &bot] {
        wait_for_code(user, "configmaps/kept", 403).await;
        wait_for_code(user, "configmaps", 200).await;
    }
    run_flotilla(&[&["unjoin", NAME][..], &files].concat()).await;
}
