//! Consistency between two replicas: shared signing keys and CA, lists that are never stale,
//! unique cluster IPs and node ports, CRDs served by both, the same scheduling decisions.

use client::{At, ListOptions, WriteOptions};
use harness::etcd::{NEW, OLD};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, SERVICE_ACCOUNTS, SERVICES, WIDGETS, config_map, policy,
    widget, widgets,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::pair::{Form, Pair};
use crate::processes::FAST;

const NS: &str = "default";
static REVIEWS: Gvr = Gvr::constant("authentication.k8s.io", "v1", "selfsubjectreviews");

/// The kubeconfig of the first replica with the address of the second.
fn crossed(pair: &Pair, dir: &std::path::Path) -> std::path::PathBuf {
    let [a, b] = &pair.nodes;
    let text = std::fs::read_to_string(a.kubeconfig()).unwrap();
    let file = dir.join("crossed");
    std::fs::write(&file, text.replace(&a.address, &b.address)).unwrap();
    file
}

async fn identities_are_shared(pair: &Pair) {
    let dir = tempfile::tempdir().unwrap();
    let admin = harness::Server::connect("b, as of a", &crossed(pair, dir.path()));
    admin.list(&CONFIG_MAPS, NS).await;
    // The other replica accepts a token that one issued.
    let a = pair.nodes[0].connect("a");
    a.until_there(&SERVICE_ACCOUNTS, NS, "default").await;
    let at = At::one(&SERVICE_ACCOUNTS, NS, "default").sub("token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let created = a.api.create(at, request, &WriteOptions::default()).await;
    let token = created.unwrap().value().unwrap()["status"]["token"].clone();
    let b = &pair.nodes[1];
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
    let account = harness::Server::connect("b, as an account", &file);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let at = At::all(&REVIEWS, "");
    let who = account
        .api
        .create(at, review, &WriteOptions::default())
        .await;
    let who = who.unwrap().value().unwrap();
    assert_eq!(
        who["status"]["userInfo"]["username"],
        "system:serviceaccount:default:default"
    );
}

/// A write that one replica acknowledged is in the other's next list, and so is a deletion.
async fn lists_are_never_stale(pair: &Pair) {
    let servers = pair.nodes.each_ref().map(|n| n.connect("replica"));
    let at = At::all(&CONFIG_MAPS, NS);
    for n in 0..100 {
        let (writer, reader) = (&servers[n % 2], &servers[(n + 1) % 2]);
        let name = format!("fresh-{n}");
        let created = writer.create(config_map(NS, &name, "1")).await;
        let list = reader.api.list(at, &ListOptions::default()).await.unwrap();
        let found = list.items.iter().find(|o| o.name() == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not in the list"));
        let revision: u64 = created["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse().ok())
            .unwrap();
        assert!(found.revision() == revision && list.revision >= revision);
        assert!(reader.get(&CONFIG_MAPS, NS, &name).await.is_some());
        writer.delete(&CONFIG_MAPS, NS, &name).await;
        let left = reader.list(&CONFIG_MAPS, NS).await;
        assert!(left.iter().all(|o| o["metadata"]["name"] != name.as_str()));
    }
}

async fn addresses_are_given_once(pair: &Pair) {
    let [a, b] = pair.nodes.each_ref().map(|n| n.connect("replica"));
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

async fn definitions_are_served_by_both(pair: &Pair) {
    let [a, b] = pair.nodes.each_ref().map(|n| n.connect("replica"));
    a.create(widgets()).await;
    let established = |d: &Value| harness::server::condition(d, "Established")["status"] == "True";
    a.until(
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
async fn both_tell_why(pair: &Pair) {
    let [a, b] = pair.nodes.each_ref().map(|n| n.connect("replica"));
    let object = config_map(NS, "why", "1");
    a.create(policy(NS, "why", &object, &["nowhere"])).await;
    a.create(object).await;
    let unfit = |b: &Value| harness::server::condition(b, "Scheduled")["status"] == "False";
    a.until(&BINDINGS, NS, "why-configmap", "unscheduled", unfit)
        .await;
    let decision_path = At::one(&BINDINGS, NS, "why-configmap").sub("decision");
    let failure = async |server: &harness::Server| {
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

async fn everything(version: &str) {
    let Some(pair) = Pair::start(Form::Alone, version, &FAST).await else {
        return;
    };
    identities_are_shared(&pair).await;
    lists_are_never_stale(&pair).await;
    addresses_are_given_once(&pair).await;
    definitions_are_served_by_both(&pair).await;
    both_tell_why(&pair).await;
}

#[tokio::test]
async fn replicas_are_consistent_without_etcd_progress_notifications() {
    everything(OLD).await;
}

#[tokio::test]
async fn replicas_are_consistent_with_etcd_progress_notifications() {
    everything(NEW).await;
}
