//! Reads the fleet view through a kube-apiserver, with the roles that it needs there.

use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::http_client::{HttpTestClient, HttpTestRequest, HttpTestResponse};
use hyper::Method;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::auth::grant_cluster_role;
use crate::aggregated::proxy::{LOOPBACK, connect};
use crate::flow::search::WatchLines;

const FLEET: &str = "/apis/search.karmada.io/v1alpha1/proxying/fleet/proxy";
const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";
const ADMIN: &str = "fleet-admin";

fn proxy_rule() -> Value {
    json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]})
}

/// Lists the objects of the scenario as a user of some groups.
async fn list_as(client: &HttpTestClient, user: &str, group: &str) -> HttpTestResponse {
    let path = format!("{FLEET}{CONFIG_MAPS_PATH}?labelSelector=fleet");
    let request = HttpTestRequest::new(Method::GET, &path)
        .header("impersonate-user", user)
        .header("impersonate-group", group);
    client.call(request).await
}

async fn wait_for_both(client: &HttpTestClient, user: &str, group: &str) {
    wait_until(&format!("the objects for {user}"), async || {
        let response = list_as(client, user, group).await;
        let list = response.json();
        let items = list["items"].as_array().into_iter().flatten();
        let labels = items.map(|item| &item["metadata"]["labels"]);
        let origins: Vec<&Value> = labels
            .map(|l| &l["resource.karmada.io/cached-from-cluster"])
            .collect();
        response.code == 200 && origins == ["member1", "member2"]
    })
    .await;
}

/// `members` are joined as `member1` and `member2`.
pub(crate) async fn run_scenario(
    control_plane: &AggregatedControlPlane,
    members: [&ApiServerClient; 2],
) {
    let (control, host) = (&control_plane.client, &control_plane.host);
    let reader = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    for member in members {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "shown", "labels": {"fleet": "yes"}}});
        member.create(object).await;
        for user in ["ann", "bea"] {
            grant_cluster_role(member, &format!("reader-{user}"), user, &reader).await;
        }
    }
    let identity = host.client_certificate(ADMIN, &["system:masters"]);
    let client = connect(&host.server, LOOPBACK, host.ca_pem(), &identity);

    // Rights in the members alone give nothing, nor does one of the two roles here.
    assert_eq!(list_as(&client, "ann", "team").await.code, 403);
    let view = json!({"apiGroups": ["search.karmada.io"], "resources": ["proxying/proxy"],
        "resourceNames": ["fleet"], "verbs": ["*"]});
    for user in ["ann", "bea"] {
        grant_cluster_role(control, &format!("fleet-view-{user}"), user, &view).await;
    }
    wait_until("the refusal of the view itself", async || {
        let rejection = list_as(&client, "ann", "team").await;
        let message = rejection.json()["message"].to_string();
        rejection.code == 403 && message.contains("in any cluster")
    })
    .await;
    grant_cluster_role(control, "fleet-proxy-ann", "ann", &proxy_rule()).await;
    wait_for_both(&client, "ann", "team").await;

    // The host's administrators are bound by their group only, and no member takes their names for that.
    assert_eq!(list_as(&client, ADMIN, "system:masters").await.code, 403);
    grant_cluster_role(control, "fleet-proxy-admin", ADMIN, &proxy_rule()).await;
    wait_for_both(&client, ADMIN, "system:masters").await;

    let version = "rbac.authorization.k8s.io/v1";
    let binding = json!({"apiVersion": version, "kind": "ClusterRoleBinding",
        "metadata": {"name": "fleet-proxy-team"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet-proxy-ann"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}]});
    control.create(binding).await;
    wait_for_both(&client, "bea", "team").await;
    check_documents(&client).await;
}

/// Discovery and a watch pass through the host.
async fn check_documents(client: &HttpTestClient) {
    let document = client.get(&format!("{FLEET}/api/v1")).await.json();
    let resources = document["resources"].as_array().unwrap();
    assert!(resources.iter().any(|r| r["name"] == "configmaps"));
    let path =
        format!("{FLEET}{CONFIG_MAPS_PATH}?labelSelector=fleet&watch=true&resourceVersion=0");
    let watch = HttpTestRequest::new(Method::GET, &path);
    let mut events = WatchLines::start(client, watch).await;
    let mut shown = [events.next_event().await.0, events.next_event().await.0];
    shown.sort();
    assert_eq!(shown, ["ADDED member1/shown", "ADDED member2/shown"]);
}
