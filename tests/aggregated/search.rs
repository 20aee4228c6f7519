//! The search and the global proxy in aggregated mode: through a kube-apiserver, from the cache of
//! a member.

use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::http_client::{HttpTestClient, HttpTestRequest};
use harness::objects::CONFIG_MAPS;
use hyper::Method;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::auth::grant_cluster_role;
use crate::aggregated::autoscalers_and_services::PROVIDER as MEMBER;

const ADMIN: &str = "admin";
const GROUP: &str = "/apis/search.karmada.io/v1alpha1";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name, "labels": {"search": "yes"}}})
}

/// `member` is joined as [`MEMBER`].
pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane, member: &ApiServerClient) {
    let (control, host) = (&control_plane.client, &control_plane.host);
    let service = control_plane.api_services().await.into_iter();
    let service = service.map(|s| s["spec"].clone());
    let mut own = service.filter(|s| s["group"] == "search.karmada.io");
    let service = own.next().unwrap();
    assert_eq!(service["groupPriorityMinimum"], 2000);

    member.create(config_map("a")).await;
    let registry = json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": "maps"}, "spec": {"targetCluster": {"clusterNames": [MEMBER]},
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "backendStore": {"openSearch": {"addresses": ["https://localhost:9200"],
                "secretRef": {"namespace": "default", "name": "none"}}}}});
    control.create(registry).await;
    let identity = host.client_certificate(ADMIN, &["system:masters"]);
    let pems = (
        identity.certificate_pem.as_bytes(),
        identity.key_pem.as_bytes(),
    );
    let address = host.server.strip_prefix("https://").unwrap();
    let ca = host.ca_pem().as_bytes();
    let client = HttpTestClient::new(address, "127.0.0.1", ca, Some(pems));
    let native = "api/v1/namespaces/default/configmaps?labelSelector=search";
    let paths = [
        format!("{GROUP}/search/cache/{native}"),
        format!("{GROUP}/proxying/karmada/proxy/{native}"),
    ];
    for path in &paths {
        wait_until(path, async || {
            let response = client.get(path).await;
            response.code == 200 && response.json()["items"][0]["metadata"]["name"] == "a"
        })
        .await;
        let user = HttpTestRequest::new(Method::GET, path).header("impersonate-user", "ann");
        assert_eq!(client.call(user).await.code, 403);
    }
    write_back(&client, [control, member]).await;
    wait_until("the condition of OpenSearch", async || {
        let path = format!("{GROUP}/resourceregistries/maps");
        let registry = client.get(&path).await.json();
        registry["status"]["conditions"][0]["reason"] == "SecretNotFound"
    })
    .await;
    // The host itself answers for what is not selected.
    let nodes = format!("{GROUP}/proxying/karmada/proxy/api/v1/nodes");
    let response = client.get(&nodes).await;
    assert_eq!(
        (response.code, &response.json()["kind"]),
        (200, &json!("NodeList"))
    );
    let proxy = format!("{GROUP}/proxying/karmada/proxy");
    let services = format!("{proxy}/api/v1/namespaces/default/services");
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "own", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(client.post(&services, &service).await.code, 201);
    let version = client.get(&format!("{proxy}/version")).await.json();
    assert_eq!(version["gitVersion"], control_plane.version().await);
    // The host sees the user himself.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "proxy-user"}, "rules": [{"apiGroups": ["search.karmada.io"],
            "resources": ["proxying/proxy"], "verbs": ["*"]}]});
    control.create(role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "proxy-user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "proxy-user"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    control.create(binding).await;
    wait_until("the host's own refusal", async || {
        let user = HttpTestRequest::new(Method::GET, &nodes).header("impersonate-user", "bob");
        let rejection = client.call(user).await;
        let message = rejection.json()["message"].to_string();
        rejection.code == 403 && message.contains("cannot list resource")
    })
    .await;
}

/// Writes an object to its member as it was read, with the resourceVersion that names the member.
async fn write_back(client: &HttpTestClient, [control, member]: [&ApiServerClient; 2]) {
    let proxies = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
        "verbs": ["*"]});
    let maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    for (server, rule) in [(control, proxies), (member, maps)] {
        grant_cluster_role(server, "search-writer", ADMIN, &rule).await;
    }
    let path = format!("{GROUP}/proxying/karmada/proxy/api/v1/namespaces/default/configmaps/a");
    wait_until("an update in the member", async || {
        let mut object = client.get(&path).await.json();
        object["data"] = json!({"k": "written"});
        let update = HttpTestRequest::new(Method::PUT, &path).json(&object);
        client.call(update).await.code == 200
    })
    .await;
    let object = member.get(&CONFIG_MAPS, "default", "a").await.unwrap();
    assert_eq!(object["data"]["k"], "written");
    assert!(object["metadata"]["annotations"].is_null(), "{object}");
}
