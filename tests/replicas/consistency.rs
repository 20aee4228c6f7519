//! Consistency between two replicas: shared signing keys and CA, lists that are never stale,
//! unique cluster IPs and node ports, CRDs served by both, the same scheduling decisions.

use client::{DeleteOptions, ListOptions, ResourcePath, WriteOptions};
use harness::etcd::{VERSION_3_4, VERSION_3_5};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, SERVICE_ACCOUNTS, SERVICES, WIDGETS, config_map, policy,
    widget, widget_definition,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::replicas::flotilla_process::FAST_ELECTION_FLAGS;
use crate::replicas::replica_pair::{ControlPlaneMode, ReplicaPair};

const NS: &str = "default";
static REVIEWS: Gvr = Gvr::from_static("authentication.k8s.io", "v1", "selfsubjectreviews");

/// The kubeconfig of the first replica with the address of the second.
fn kubeconfig_of_one_for_the_other(
    pair: &ReplicaPair,
    dir: &std::path::Path,
) -> std::path::PathBuf {
    let [a, b] = &pair.replicas;
    let text = std::fs::read_to_string(a.kubeconfig()).unwrap();
    let file = dir.join("crossed");
    std::fs::write(&file, text.replace(&a.address, &b.address)).unwrap();
    file
}

async fn check_shared_identities(pair: &ReplicaPair) {
    let dir = tempfile::tempdir().unwrap();
    let admin = harness::ApiServerClient::connect(
        "b, as of a",
        &kubeconfig_of_one_for_the_other(pair, dir.path()),
    );
    admin.list(&CONFIG_MAPS, NS).await;
    // The other replica accepts a token that one issued.
    let a = pair.replicas[0].connect("a");
    a.wait_until_exists(&SERVICE_ACCOUNTS, NS, "default").await;
    let at = ResourcePath::object(&SERVICE_ACCOUNTS, NS, "default").subresource("token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let created = a
        .api
        .create(at, request.into(), &WriteOptions::default())
        .await;
    let token = created.unwrap().value().unwrap()["status"]["token"].clone();
    let b = &pair.replicas[1];
    let config = b.kubeconfig();
    let ca = std::fs::read_to_string(&config).unwrap();
    let ca = ca
        .lines()
        .find_map(|l| l.trim().strip_prefix("certificate-authority-data: "))
        .unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://{}\", certificate-authority-data: {ca}}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        b.address
    );
    let file = dir.path().join("token");
    std::fs::write(&file, text).unwrap();
    let account = harness::ApiServerClient::connect("b, as an account", &file);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let at = ResourcePath::collection(&REVIEWS, "");
    let who = account
        .api
        .create(at, review.into(), &WriteOptions::default())
        .await;
    let who = who.unwrap().value().unwrap();
    assert_eq!(
        who["status"]["userInfo"]["username"],
        "system:serviceaccount:default:default"
    );
}

/// A write that one replica acknowledged is in the other's next list, and so is a deletion.
async fn check_fresh_lists(pair: &ReplicaPair) {
    let servers = pair.replicas.each_ref().map(|n| n.connect("replica"));
    let at = ResourcePath::collection(&CONFIG_MAPS, NS);
    for n in 0..100 {
        let (writer, reader) = (&servers[n % 2], &servers[(n + 1) % 2]);
        let name = format!("fresh-{n}");
        let created = writer.create(config_map(NS, &name, "1")).await;
        let list = reader.api.list(at, &ListOptions::default()).await.unwrap();
        let listed = list.items.iter().find(|o| o.name() == name);
        let listed = listed.unwrap_or_else(|| panic!("{name} is not in the list"));
        let revision: u64 = created["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse().ok())
            .unwrap();
        assert!(listed.revision() == revision && list.revision >= revision);
        assert!(reader.get(&CONFIG_MAPS, NS, &name).await.is_some());
        writer.delete(&CONFIG_MAPS, NS, &name).await;
        let left = reader.list(&CONFIG_MAPS, NS).await;
        assert!(left.iter().all(|o| o["metadata"]["name"] != name.as_str()));
    }
}

/// A replica whose cache does not have the newest object yet asks the store before it refuses
/// a precondition.
async fn check_preconditions_on_stale_caches(pair: &ReplicaPair) {
    let servers = pair.replicas.each_ref().map(|n| n.connect("replica"));
    let at = ResourcePath::object(&CONFIG_MAPS, NS, "precondition");
    for n in 0..50 {
        let (writer, other) = (&servers[n % 2], &servers[(n + 1) % 2]);
        writer.create(config_map(NS, "precondition", "old")).await;
        writer.delete(&CONFIG_MAPS, NS, "precondition").await;
        let mut newest = writer.create(config_map(NS, "precondition", "new")).await;
        newest["data"]["by"] = json!("another replica");
        let options = WriteOptions::default();
        let updated = other.api.update(at, newest.into(), &options).await;
        let updated = updated.unwrap().value().unwrap();
        let text = |field: &str| updated["metadata"][field].as_str().map(str::to_owned);
        let options = DeleteOptions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..DeleteOptions::default()
        };
        writer.api.delete(at, &options).await.unwrap();
    }
}

async fn check_unique_allocations(pair: &ReplicaPair) {
    let [a, b] = pair.replicas.each_ref().map(|n| n.connect("replica"));
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NS},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30500}]}})
    };
    let (x, y) = tokio::join!(a.try_create(service("x")), b.try_create(service("y")));
    assert!(x.is_ok() != y.is_ok(), "{x:?} {y:?}");
    let ip = x.or(y).unwrap()["spec"]["clusterIP"].clone();
    let mut same = service("z");
    same["spec"] = json!({"clusterIP": ip, "ports": [{"port": 80}]});
    assert!(a.try_create(same.clone()).await.is_err());
    assert!(b.try_create(same).await.is_err());
    for service in a.list(&SERVICES, NS).await {
        let name = service["metadata"]["name"].as_str().unwrap();
        if ["x", "y"].contains(&name) {
            b.delete(&SERVICES, NS, name).await;
        }
    }
    assert!(a.try_create(service("w")).await.is_ok());
}

async fn check_crd_on_both_replicas(pair: &ReplicaPair) {
    let [a, b] = pair.replicas.each_ref().map(|n| n.connect("replica"));
    a.create(widget_definition()).await;
    let established = |d: &Value| {
        harness::api_server_client::find_condition(d, "Established")["status"] == "True"
    };
    a.wait_until(
        &DEFINITIONS,
        "",
        "widgets.example.org",
        "established",
        established,
    )
    .await;
    // At once, on the replica whose watch may not have delivered the CRD.
    b.create(widget(NS, "w", 1)).await;
    assert!(a.get(&WIDGETS, NS, "w").await.is_some());
}

/// The leader serves the decision that it has in memory; the other replica recomputes it.
async fn check_decisions_of_both_replicas(pair: &ReplicaPair) {
    let [a, b] = pair.replicas.each_ref().map(|n| n.connect("replica"));
    let object = config_map(NS, "why", "1");
    a.create(policy(NS, "why", &object, &["nowhere"])).await;
    a.create(object).await;
    let unfit =
        |b: &Value| harness::api_server_client::find_condition(b, "Scheduled")["status"] == "False";
    a.wait_until(&BINDINGS, NS, "why-configmap", "unscheduled", unfit)
        .await;
    let decision_path =
        ResourcePath::object(&BINDINGS, NS, "why-configmap").subresource("decision");
    let failure = async |server: &harness::ApiServerClient| {
        let decision = server
            .api
            .get(decision_path)
            .await
            .unwrap()
            .value()
            .unwrap();
        let failure = decision["failure"].as_str().unwrap().to_owned();
        (decision["recomputed"] == true, failure)
    };
    let (of_a, of_b) = (failure(&a).await, failure(&b).await);
    assert!(of_a.0 != of_b.0, "{of_a:?} {of_b:?}");
    assert_eq!(of_a.1, of_b.1);
}

async fn check_consistency(version: &str) {
    let Some(pair) =
        ReplicaPair::start(ControlPlaneMode::Standalone, version, &FAST_ELECTION_FLAGS).await
    else {
        return;
    };
    check_shared_identities(&pair).await;
    check_fresh_lists(&pair).await;
    check_preconditions_on_stale_caches(&pair).await;
    check_unique_allocations(&pair).await;
    check_crd_on_both_replicas(&pair).await;
    check_decisions_of_both_replicas(&pair).await;
}

#[tokio::test]
async fn replicas_are_consistent_without_etcd_progress_notifications() {
    check_consistency(VERSION_3_4).await;
}

#[tokio::test]
async fn replicas_are_consistent_with_etcd_progress_notifications() {
    check_consistency(VERSION_3_5).await;
}
