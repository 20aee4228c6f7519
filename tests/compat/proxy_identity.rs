//! The cluster proxy passes on the uid and the extras of users as the Cluster allows it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};

use crate::compat::proxy::{echo_handler, impersonator_token};
use crate::compat::test_server::CompatTestServer;
use harness::http_client::{
    HttpTestRequest, HttpTestResponse, cluster_proxy_path, full_body, within_timeout,
};
use harness::https_server::FakeHttpsServer;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/identified";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-identified/works";

/// Registers the cluster with a token of the managed impersonator, and lets ann use its proxy.
async fn register(test_server: &CompatTestServer, peer: &FakeHttpsServer) {
    let admin = &test_server.admin;
    let token = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "token-of-identified"},
        "data": {"token": STANDARD.encode(impersonator_token())}});
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    assert_eq!(admin.post(secrets, &token).await.code, 201);
    let reference = json!({"namespace": "karmada-cluster", "name": "token-of-identified"});
    let spec = json!({"impersonatorSecretRef": reference});
    test_server.register_cluster("identified", peer, spec).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "identified"}, "rules": [{"apiGroups": ["cluster.karmada.io"],
            "resources": ["clusters/proxy"], "resourceNames": ["identified"], "verbs": ["*"]}]});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "identified"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": {"name": "identified"}, "roleRef": reference,
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}]});
    for (path, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        assert_eq!(admin.post(&format!("{RBAC}/{path}"), &body).await.code, 201);
    }
}

async fn annotate(test_server: &CompatTestServer, annotations: Value) -> HttpTestResponse {
    let patch = json!({"metadata": {"annotations": annotations}}).to_string();
    let request = HttpTestRequest::new(Method::PATCH, CLUSTER)
        .header("content-type", "application/merge-patch+json")
        .body(full_body(patch));
    test_server.admin.call(request).await
}

/// The headers with which the member gets a request of ann, once they are as expected.
async fn wait_for_headers(
    test_server: &CompatTestServer,
    uid: &Value,
    extras: [(&str, &Value); 3],
) {
    let path = cluster_proxy_path("identified", "/x");
    let as_expected = async {
        loop {
            let request = HttpTestRequest::new(Method::GET, &path)
                .header("impersonate-user", "ann")
                .header("impersonate-uid", "7")
                .header("impersonate-extra-scopes", "view")
                .header("impersonate-extra-scopes", "edit")
                .header("impersonate-extra-example.org%2fproject", "p")
                .header("impersonate-extra-other", "o");
            let reply = test_server.admin.call(request).await;
            if reply.code == 200 {
                let headers = &reply.json()["headers"];
                let extra = |key: &str| &headers[format!("impersonate-extra-{key}")];
                if &headers["impersonate-uid"] == uid
                    && extras.iter().all(|(key, value)| extra(key) == *value)
                {
                    return;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_timeout("the headers", as_expected).await;
}

async fn wait_for_rules(test_server: &CompatTestServer, expected: &[Value]) {
    let work = format!("{WORKS}/karmada-impersonator-7cbb6bd5c9");
    let as_expected = async {
        loop {
            let reply = test_server.admin.get(&work).await;
            if reply.code == 200 {
                let rules = reply.json()["spec"]["workload"]["manifests"][0]["rules"].clone();
                let rules = rules.as_array().into_iter().flatten();
                let is_identity = |r: &&Value| r["apiGroups"] == json!(["authentication.k8s.io"]);
                let identity_rules: Vec<&Value> = rules.filter(is_identity).collect();
                if identity_rules
                    .iter()
                    .map(|rule| &rule["resources"])
                    .eq(expected)
                {
                    return;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_timeout("the rules", as_expected).await;
}

// proves: IMP-identity, IMP-identity-headers, IMP-identity-validation
#[tokio::test(flavor = "multi_thread")]
async fn uid_and_extras_are_passed_on_as_the_cluster_allows() {
    let test_server = CompatTestServer::shared().await;
    let peer = FakeHttpsServer::start(echo_handler()).await;
    register(&test_server, &peer).await;
    let (scopes, project, other) = ("scopes", "example.org%2fproject", "other");
    let absent = &Value::Null;
    wait_for_headers(
        &test_server,
        absent,
        [(scopes, absent), (project, absent), (other, absent)],
    )
    .await;
    wait_for_rules(&test_server, &[]).await;

    let (uid, keys) = (
        "flotilla.io/impersonate-uid",
        "flotilla.io/impersonate-extra-keys",
    );
    let allowed = json!({uid: "true", keys: "scopes,example.org/project,unknown"});
    assert_eq!(annotate(&test_server, allowed).await.code, 200);
    let extras = [
        (scopes, &json!(["view", "edit"])),
        (project, &json!(["p"])),
        (other, absent),
    ];
    wait_for_headers(&test_server, &json!(["7"]), extras).await;
    let extras = json!([
        "userextras/example.org/project",
        "userextras/scopes",
        "userextras/unknown"
    ]);
    wait_for_rules(&test_server, &[json!(["uids"]), extras]).await;

    for (annotation, value) in [(uid, "yes"), (keys, "Scopes"), (keys, "*")] {
        let rejection = annotate(&test_server, json!({annotation: value})).await;
        assert_eq!(rejection.code, 422);
        let field = &rejection.json()["details"]["causes"][0]["field"];
        assert_eq!(field, &format!("metadata.annotations[{annotation}]"));
    }
    assert_eq!(
        annotate(&test_server, json!({uid: null, keys: null}))
            .await
            .code,
        200
    );
    wait_for_headers(
        &test_server,
        absent,
        [(scopes, absent), (project, absent), (other, absent)],
    )
    .await;
    wait_for_rules(&test_server, &[]).await;
}
