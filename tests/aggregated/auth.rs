//! Authentication and authorization in aggregated mode, for requests through the host and for
//! direct requests to Flotilla.
//!
//! Requests of newer kube-apiservers and of their controllers are replayed with the front
//! proxy's certificate.

use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::cluster::FRONT_PROXY_NAME;
use harness::objects::{POLICIES, config_map, policy, secret};
use karmada_api::is_karmada_group;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::direct_client::DirectClient;

const POLICIES_PATH: &str =
    "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
pub(crate) const ADMIN_HEADERS: &[(&str, &str)] = &[
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
];

/// Its namespace `default` must have no policies yet.
pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane) {
    grant_policy_reader(&control_plane.client, "jane").await;
    let caller = control_plane.direct_client().await;
    check_requests_through_host(control_plane).await;
    tokio::task::block_in_place(|| {
        check_direct_requests(control_plane, &caller);
        check_requests_of_newer_hosts(control_plane, &caller);
    });
    check_service_account_token(control_plane, &caller).await;
    check_cluster_secret_refs(control_plane).await;
}

/// Grants a user, and the service account `bot`, read access to policies in all namespaces.
async fn grant_policy_reader(control: &ApiServerClient, user: &str) {
    for body in [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": ["policy.karmada.io"], "resources": ["*"],
                       "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
                         {"kind": "ServiceAccount", "namespace": "default", "name": "bot"}]}),
    ] {
        let plural = match body["kind"].as_str() {
            Some("ClusterRole") => "clusterroles",
            _ => "clusterrolebindings",
        };
        let gvr = machinery::Gvr::new("rbac.authorization.k8s.io", "v1", plural);
        let at = client::ResourcePath::collection(&gvr, "");
        let options = client::WriteOptions::default();
        control.api.create(at, body.into(), &options).await.unwrap();
    }
}

/// Grants a user one rule by a ClusterRole and its ClusterRoleBinding.
pub(crate) async fn grant_cluster_role(
    control: &ApiServerClient,
    role: &str,
    user: &str,
    rule: &Value,
) {
    for (plural, body) in [
        (
            "clusterroles",
            json!({"kind": "ClusterRole", "rules": [rule]}),
        ),
        (
            "clusterrolebindings",
            json!({"kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}),
        ),
    ] {
        let gvr = machinery::Gvr::new("rbac.authorization.k8s.io", "v1", plural);
        let mut body = body;
        body["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        body["metadata"] = json!({"name": role});
        let options = client::WriteOptions::default();
        let at = client::ResourcePath::collection(&gvr, "");
        control.api.create(at, body.into(), &options).await.unwrap();
    }
}

async fn check_requests_through_host(control_plane: &AggregatedControlPlane) {
    let jane = ApiServerClient::connect("jane", &control_plane.host.user_kubeconfig("jane", &[]));
    let eve = ApiServerClient::connect("eve", &control_plane.host.user_kubeconfig("eve", &[]));
    assert_eq!(jane.list(&POLICIES, "default").await, Vec::<Value>::new());
    let template = config_map("default", "c", "v");
    let body = policy("default", "p", &template, &["m"]);
    for (who, what) in [(&jane, "create"), (&eve, "create")] {
        let error = who.try_create(body.clone()).await.unwrap_err();
        let status = error.status().unwrap();
        assert_eq!(status.code, 403, "{what}: {status}");
    }
    control_plane.client.create(body).await;
    assert_eq!(jane.list(&POLICIES, "default").await.len(), 1);
    // Namespaces are objects of the host, not of Flotilla.
    let nowhere = policy("nowhere", "p", &template, &["m"]);
    let error = control_plane.client.try_create(nowhere).await.unwrap_err();
    assert_eq!(
        error.status().unwrap().message,
        "namespaces \"nowhere\" not found"
    );
}

fn check_direct_requests(control_plane: &AggregatedControlPlane, caller: &DirectClient) {
    let jane = control_plane.host.client_certificate("jane", &[]);
    let eve = control_plane.host.client_certificate("eve", &[]);
    let proxy = control_plane.host.front_proxy_certificate(FRONT_PROXY_NAME);
    let unknown_proxy = control_plane.host.front_proxy_certificate("somebody-else");
    let as_jane: &[(&str, &str)] = &[("X-Remote-User", "jane")];
    let both = [
        ("X-Remote-User", "jane"),
        ("X-Remote-Group", "system:masters"),
    ];
    for (identity, headers, code) in [
        (None, &[][..], 403),
        (None, ADMIN_HEADERS, 403),
        (Some(&jane), &[], 200),
        (Some(&eve), &[], 403),
        // Only the front proxy's certificate may send these headers; from others they are ignored.
        (Some(&eve), ADMIN_HEADERS, 403),
        (Some(&jane), ADMIN_HEADERS, 200),
        (Some(&unknown_proxy), ADMIN_HEADERS, 401),
        (Some(&proxy), ADMIN_HEADERS, 200),
        (Some(&proxy), as_jane, 200),
        (Some(&proxy), &[("X-Remote-User", "eve")], 403),
        (Some(&proxy), &[], 401),
        (None, &[("Authorization", "Bearer nonsense")], 401),
    ] {
        let reply = caller.get(POLICIES_PATH, identity, headers);
        assert_eq!(reply.code, code, "{headers:?}: {}", reply.json());
    }
    let forged = caller.request("DELETE", POLICIES_PATH, Some(&jane), &both, "");
    let message = forged.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(forged.code, 403);
    assert!(
        message.contains("User \"jane\" cannot deletecollection"),
        "{message}"
    );
    for probe in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(caller.get(probe, None, &[]).body, b"ok", "{probe}");
    }
    assert_eq!(caller.get("/metrics", None, &[]).code, 403);
    assert_eq!(
        caller.get("/metrics", Some(&proxy), ADMIN_HEADERS).code,
        200
    );
    // Direct impersonation is authorized by the host.
    let as_eve = [("Impersonate-User", "eve")];
    assert_eq!(caller.get(POLICIES_PATH, Some(&jane), &as_eve).code, 403);
    let by_proxy: Vec<_> = ADMIN_HEADERS.iter().chain(&as_eve).copied().collect();
    assert_eq!(caller.get(POLICIES_PATH, Some(&proxy), &by_proxy).code, 403);
}

/// Replays what aggregators, namespace controllers and garbage collectors since 1.26 send.
fn check_requests_of_newer_hosts(control_plane: &AggregatedControlPlane, caller: &DirectClient) {
    let proxy = control_plane.host.front_proxy_certificate(FRONT_PROXY_NAME);
    let request = |path: &str, headers: &[(&str, &str)]| {
        let mut all = vec![
            ("X-Remote-User", "system:kube-aggregator"),
            ("X-Remote-Group", "system:masters"),
        ];
        all.extend_from_slice(headers);
        caller.get(path, Some(&proxy), &all)
    };
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const BETA: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let no_peer = format!("{V2};profile=nopeer,{V2},application/json");
    let since_126 = format!("{V2},{BETA},application/json");
    let beta_only = format!("{BETA},application/json");
    let mut tag = None;
    for (accept, kind) in [
        (no_peer.as_str(), "APIGroupDiscoveryList"),
        (&since_126, "APIGroupDiscoveryList"),
        (&beta_only, "APIGroupList"),
        ("application/json", "APIGroupList"),
        ("*/*", "APIGroupList"),
    ] {
        let reply = request("/apis", &[("Accept", accept)]);
        assert_eq!(reply.code, 200, "{accept}");
        let body = reply.json();
        assert_eq!(body["kind"], kind, "{accept}");
        if kind == "APIGroupDiscoveryList" {
            assert_eq!(reply.header("content-type"), V2);
            let groups = body["items"].as_array().unwrap();
            let names = groups
                .iter()
                .map(|g| g["metadata"]["name"].as_str().unwrap());
            let is_own = |name: &str| is_karmada_group(name) || name.ends_with("metrics.k8s.io");
            assert!(names.clone().all(is_own), "{body}");
            assert!(names.count() > 3);
            tag = Some(reply.header("etag"));
        }
    }
    let tag = tag.unwrap();
    let again = request("/apis", &[("Accept", &no_peer), ("If-None-Match", &tag)]);
    assert_eq!((again.code, again.body.len()), (304, 0));
    let none = request("/api", &[("Accept", &no_peer)]).json();
    assert_eq!(
        (&none["kind"], &none["items"]),
        (&json!("APIGroupDiscoveryList"), &json!([]))
    );
    assert_eq!(request("/api", &[]).json()["versions"], json!([]));
    // The paths of the availability check, and the OpenAPI documents, which the aggregator
    // fetches as a user without groups.
    for path in [
        "/apis/policy.karmada.io/v1alpha1",
        "/apis/work.karmada.io",
        "/version",
    ] {
        assert_eq!(request(path, &[]).code, 200, "{path}");
    }
    let aggregator_user = [("X-Remote-User", "system:aggregator")];
    for (path, accept) in [
        ("/openapi/v2", "application/json"),
        ("/openapi/v3", "application/json"),
    ] {
        let mut headers = aggregator_user.to_vec();
        headers.push(("Accept", accept));
        let reply = caller.get(path, Some(&proxy), &headers);
        assert_eq!(reply.code, 200, "{path}");
        assert!(reply.json()["paths"].is_object(), "{path}");
    }
    // Lists of metadata, as the garbage collector and the namespace controller request them.
    let form = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let json = format!("application/json;{form},application/json");
    let protobuf = format!("application/vnd.kubernetes.protobuf;{form},{json}");
    let encoded = request(POLICIES_PATH, &[("Accept", &*protobuf)]);
    assert!(encoded.text().starts_with("k8s\0"), "{}", encoded.text());
    let list = request(POLICIES_PATH, &[("Accept", &*json)]).json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "p");
    assert!(list["items"][0]["spec"].is_null());
    // The header with the user's uid (since 1.33), and an unknown resource.
    let jane = [("X-Remote-User", "jane"), ("X-Remote-Uid", "7")];
    assert_eq!(caller.get(POLICIES_PATH, Some(&proxy), &jane).code, 200);
    assert_eq!(
        request("/apis/policy.karmada.io/v1alpha1/nothing", &[]).code,
        404
    );
}

/// A user who writes a Cluster needs the right, on the host, to get the Secrets that the
/// Cluster refers to.
async fn check_cluster_secret_refs(control_plane: &AggregatedControlPlane) {
    control_plane
        .client
        .create(secret("default", "token", "t"))
        .await;
    let clusters = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"],
        "verbs": ["get", "create", "patch"]});
    grant_cluster_role(&control_plane.client, "joiner", "joe", &clusters).await;
    let joe = ApiServerClient::connect("joe", &control_plane.host.user_kubeconfig("joe", &[]));
    let cluster = |name: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"syncMode": "Pull", "apiEndpoint": "https://127.0.0.1:1",
                     "secretRef": {"namespace": "default", "name": "token"}}})
    };
    wait_until(
        "joe may create clusters, but not use the Secret",
        async || {
            let error = joe.try_create(cluster("deputy")).await.unwrap_err();
            let status = error.status().unwrap();
            assert_eq!(status.code, 403, "{status}");
            status
                .message
                .contains("spec.secretRef: User \"joe\" cannot get the Secret")
        },
    )
    .await;
    control_plane.client.create(cluster("deputy")).await;
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"],
        "resourceNames": ["token"], "verbs": ["get"]});
    grant_cluster_role(&control_plane.client, "secret-reader", "joe", &secrets).await;
    wait_until("joe may use the Secret", async || {
        joe.try_create(cluster("own")).await.is_ok()
    })
    .await;
}

/// A token of a service account of the host authenticates direct requests.
async fn check_service_account_token(
    control_plane: &AggregatedControlPlane,
    caller: &DirectClient,
) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "bot", "namespace": "default"}});
    control_plane.client.create(account).await;
    let accounts = machinery::Gvr::new("", "v1", "serviceaccounts");
    let at = client::ResourcePath::object(&accounts, "default", "bot").subresource("token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let options = client::WriteOptions::default();
    let created = control_plane
        .client
        .api
        .create(at, request.into(), &options);
    let token = created.await.unwrap().value().unwrap()["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    tokio::task::block_in_place(|| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        let reply = caller.get(POLICIES_PATH, None, &headers);
        assert_eq!(reply.code, 200, "{}", reply.json());
        assert_eq!(
            caller
                .request("DELETE", POLICIES_PATH, None, &headers, "")
                .code,
            403
        );
    });
}
