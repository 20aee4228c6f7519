//! Tests of backend stores over fake members and a fake OpenSearch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::remote::NetworkSendFence;
use client::{ShutdownToken, TaskGroup};
use harness::FakeOpenSearch;
use harness::fake_open_search::FakeDocument;
use karmada_api::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use serde_json::{Value, json};

use super::BackendStoreOptions;
use super::controller::start_with_limits;
use super::limits::BackendStoreLimits;
use crate::tests::{MAPS, SECRETS, SearchFixture, cluster, context, map, registry, wait_until};

const INDEX: &str = "kubernetes-configmap";
const USER: &str = "ann";
const PASSWORD: &str = "hidden-password";

fn limits() -> BackendStoreLimits {
    BackendStoreLimits {
        min_retry_delay: Duration::from_millis(20),
        max_retry_delay: Duration::from_millis(200),
        long_outage: Duration::from_millis(500),
        scan_page: 2,
        ..BackendStoreLimits::default()
    }
}

/// A map of a member whose UID no other member has.
fn member_map(member: usize, name: &str, value: &str) -> Value {
    let mut object = map("ns", name);
    object["metadata"]["uid"] = format!("{member}-{name}").into();
    object["data"] = json!({"key": value});
    object
}

/// The cache of two members, a registry that sends their maps to OpenSearch, and the stores of a
/// leader.
struct BackendStoreFixture {
    search: SearchFixture,
    open_search: FakeOpenSearch,
    leader: TaskGroup,
}

impl BackendStoreFixture {
    /// Without a leader.
    async fn new(objects: [&[&str]; 2]) -> Self {
        let search = SearchFixture::new();
        for (at, names) in objects.into_iter().enumerate() {
            for name in names {
                search.members[at].seed(&MAPS, member_map(at, name, "1"));
            }
        }
        search.host.seed(&CLUSTERS, cluster("m1", true));
        search.host.seed(&CLUSTERS, cluster("m2", true));
        let open_search = FakeOpenSearch::start(USER, PASSWORD).await;
        let fixture = Self {
            search,
            open_search,
            leader: TaskGroup::new(ShutdownToken::new()),
        };
        fixture.seed_secret(PASSWORD);
        fixture.seed_registry(registry(""));
        fixture
    }

    async fn started(objects: [&[&str]; 2], limits: BackendStoreLimits) -> Self {
        let mut fixture = Self::new(objects).await;
        fixture.lead(limits, None).await;
        fixture
    }

    /// Starts the stores as a new leader does.
    async fn lead(&mut self, limits: BackendStoreLimits, fence: Option<NetworkSendFence>) {
        self.leader.stop().await;
        self.leader = TaskGroup::new(ShutdownToken::new());
        let context = context(&self.search.host, &self.leader);
        let options = BackendStoreOptions {
            caches: self.search.caches.clone(),
            send_fence: fence,
        };
        start_with_limits(&context, options, limits);
    }

    fn seed_secret(&self, password: &str) {
        let data = self.open_search.secret_data(USER, password);
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "kc", "name": "search"}, "data": data});
        self.search.host.seed(&SECRETS, secret);
    }

    fn seed_registry(&self, mut registry: Value) {
        registry["spec"]["backendStore"] = json!({"openSearch": {
            "addresses": [self.open_search.url()],
            "secretRef": {"namespace": "kc", "name": "search"}}});
        self.search.host.seed(&RESOURCE_REGISTRIES, registry);
    }

    async fn wait_for(&self, expected: &[&str]) {
        self.wait_for_index(INDEX, expected).await;
    }

    async fn wait_for_index(&self, index: &str, expected: &[&str]) {
        wait_until(async || self.open_search.names(index) == expected).await;
    }

    /// Waits until a document has the resourceVersion that its object has now.
    async fn wait_for_version(&self, id: &str, version: u64) {
        wait_until(async || {
            let documents = self.open_search.documents(INDEX);
            documents.get(id).is_some_and(|d| d.version == version)
        })
        .await;
    }

    async fn wait_for_reason(&self, reason: &str) -> Value {
        let condition = || {
            let host = &self.search.host;
            let registry = host.get_object(&RESOURCE_REGISTRIES, "", "r")?;
            Some(registry["status"]["conditions"][0].clone())
        };
        wait_until(async || condition().is_some_and(|c| c["reason"] == reason)).await;
        condition().unwrap()
    }

    fn sent(&self) -> usize {
        self.open_search.bulk_requests().iter().sum()
    }

    async fn stop(self) {
        self.leader.stop().await;
        self.search.stop().await;
    }
}

// proves: SRC-backend-documents, SRC-backend-condition
#[tokio::test]
async fn what_changes_in_members_is_a_document() {
    let fixture = BackendStoreFixture::started([&["a", "b"], &["c"]], limits()).await;
    fixture.wait_for(&["m1/a", "m1/b", "m2/c"]).await;
    let condition = fixture.wait_for_reason("Connected").await;
    assert_eq!(condition["status"], "True");
    let mappings = fixture.open_search.mappings(INDEX);
    let labels = &mappings["properties"]["metadata"]["properties"]["labels"];
    assert_eq!(labels["type"], "flat_object");

    let mut changed = member_map(0, "a", "2");
    changed["spec"] = json!({"x": [1, "\u{e9}\n"]});
    let changed = fixture.search.members[0].seed(&MAPS, changed);
    fixture.wait_for_version("0-a", changed.revision()).await;
    let document = fixture.open_search.documents(INDEX)["0-a"].source.clone();
    assert_eq!(document["apiVersion"], "v1");
    assert_eq!(document["kind"], "ConfigMap");
    assert_eq!(document["metadata"]["namespace"], "ns");
    assert_eq!(document["metadata"]["labels"], json!({"name": "a"}));
    let origin = &document["metadata"]["annotations"][CACHED_FROM_CLUSTER];
    assert_eq!(origin, "m1");
    let spec: Value = machinery::json::from_str(document["spec"].as_str().unwrap()).unwrap();
    assert_eq!(spec, json!({"x": [1, "\u{e9}\n"]}));
    assert_eq!(document["status"], "null");
    // Only what Karmada sends: no data.
    assert!(document["data"].is_null());

    fixture.search.members[1].remove(&MAPS, "ns", "c");
    // A new object of the same name is another document.
    fixture.search.members[0].remove(&MAPS, "ns", "b");
    let mut again = member_map(0, "b", "3");
    again["metadata"]["uid"] = "0-again".into();
    fixture.search.members[0].seed(&MAPS, again);
    fixture.wait_for(&["m1/a", "m1/b"]).await;
    wait_until(async || {
        let documents = fixture.open_search.documents(INDEX);
        documents.keys().eq(["0-a", "0-again"])
    })
    .await;
    fixture.search.host.remove(&RESOURCE_REGISTRIES, "", "r");
    fixture.stop().await;
}

// proves: SRC-backend-resync, SRC-backend-owner
#[tokio::test]
async fn a_new_leader_sends_only_what_differs() {
    let names = ["a", "b", "c", "d", "e"];
    let mut fixture = BackendStoreFixture::started([&names, &[]], limits()).await;
    let all = ["m1/a", "m1/b", "m1/c", "m1/d", "m1/e"];
    fixture.wait_for(&all).await;
    fixture.leader.stop().await;
    // While nobody leads one object is added, one changes and one vanishes.
    let member = &fixture.search.members[0];
    let changed = member.seed(&MAPS, member_map(0, "a", "2"));
    member.remove(&MAPS, "ns", "b");
    member.seed(&MAPS, member_map(0, "f", "1"));
    // Documents of others are theirs.
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ns", "name": "x"}, "cluster": {"name": "m1", "uid": "other"}});
    let foreign = FakeDocument {
        version: 1,
        source: foreign,
    };
    fixture.open_search.put_document(INDEX, "foreign", foreign);
    let before = fixture.sent();
    fixture.lead(limits(), None).await;
    fixture
        .wait_for(&["m1/a", "m1/c", "m1/d", "m1/e", "m1/f", "m1/x"])
        .await;
    fixture.wait_for_version("0-a", changed.revision()).await;
    assert_eq!(fixture.sent() - before, 3);
    wait_until(async || fixture.open_search.open_scrolls() == 0).await;
    fixture.stop().await;
}

// proves: SRC-backend-partial-failures
#[tokio::test]
async fn each_document_has_its_own_result() {
    let fixture = BackendStoreFixture::new([&["busy", "full", "good", "wrong"], &[]]).await;
    let open_search = &fixture.open_search;
    open_search.fail_documents("busy", 429, "rejected_execution_exception", 3);
    open_search.fail_documents("full", 403, "cluster_block_exception", 2);
    open_search.fail_documents("wrong", 400, "mapper_parsing_exception", 1);
    let mut fixture = fixture;
    fixture.lead(limits(), None).await;
    fixture.wait_for(&["m1/busy", "m1/full", "m1/good"]).await;
    // The refused one is reported, without what OpenSearch quotes.
    let condition = fixture.wait_for_reason("ObjectsRejected").await;
    assert_eq!(condition["status"], "True");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.ends_with("cluster \"m1\": ConfigMap ns/wrong (mapper_parsing_exception)"),
        "{message}"
    );
    // It is sent again when its object changes.
    fixture.search.members[0].seed(&MAPS, member_map(0, "wrong", "2"));
    fixture
        .wait_for(&["m1/busy", "m1/full", "m1/good", "m1/wrong"])
        .await;
    fixture.stop().await;
}

// proves: SRC-backend-throttled
#[tokio::test]
async fn a_throttled_request_is_repeated_when_the_store_says() {
    let mut fixture = BackendStoreFixture::new([&["a"], &["b"]]).await;
    fixture.open_search.fail_requests(429, Some(1), 1);
    fixture.open_search.fail_requests(503, None, 1);
    let began = tokio::time::Instant::now();
    fixture.lead(limits(), None).await;
    fixture.wait_for(&["m1/a", "m2/b"]).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    fixture.stop().await;
}

// proves: SRC-backend-bounds
#[tokio::test]
async fn requests_and_the_queue_are_bounded() {
    let names: Vec<String> = (10..40).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bounded = BackendStoreLimits {
        pending_documents: 4,
        bulk_documents: 3,
        bulk_bytes: 1_500,
        ..limits()
    };
    let mut fixture = BackendStoreFixture::new([&names, &[]]).await;
    // A request that is too large is divided, and a single document that is, is refused.
    fixture.open_search.set_max_request_bytes(900);
    let mut large = member_map(0, "large", "1");
    large["spec"] = "x".repeat(2_000).into();
    fixture.search.members[0].seed(&MAPS, large);
    fixture.lead(bounded, None).await;
    let expected: Vec<String> = names.iter().map(|name| format!("m1/{name}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    fixture.wait_for(&expected).await;
    fixture.wait_for_reason("ObjectsRejected").await;
    let requests = fixture.open_search.bulk_requests();
    assert!(
        requests.iter().all(|documents| *documents <= 3),
        "{requests:?}"
    );
    fixture.stop().await;
}

// proves: SRC-backend-restart
#[tokio::test]
async fn an_outage_loses_nothing() {
    let bounded = BackendStoreLimits {
        pending_documents: 2,
        ..limits()
    };
    let fixture = BackendStoreFixture::started([&["a", "b"], &[]], bounded).await;
    fixture.wait_for(&["m1/a", "m1/b"]).await;
    fixture.open_search.stop();
    let member = &fixture.search.members[0];
    member.remove(&MAPS, "ns", "a");
    for n in 0..8 {
        member.seed(&MAPS, member_map(0, &format!("n{n}"), "1"));
    }
    let newest = member.seed(&MAPS, member_map(0, "b", "2"));
    let condition = fixture.wait_for_reason("Unreachable").await;
    assert_eq!(condition["status"], "False");
    fixture.open_search.restart();
    let expected = [
        "m1/b", "m1/n0", "m1/n1", "m1/n2", "m1/n3", "m1/n4", "m1/n5", "m1/n6", "m1/n7",
    ];
    fixture.wait_for(&expected).await;
    fixture.wait_for_version("0-b", newest.revision()).await;
    fixture.wait_for_reason("Connected").await;

    // A store that comes back empty after a long outage is filled again.
    fixture.open_search.stop();
    fixture.open_search.lose_documents();
    member.seed(&MAPS, member_map(0, "last", "1"));
    fixture.wait_for_reason("Unreachable").await;
    tokio::time::sleep(limits().long_outage).await;
    fixture.open_search.restart();
    let mut expected = expected.to_vec();
    expected.insert(1, "m1/last");
    fixture.wait_for(&expected).await;
    fixture.stop().await;
}

// proves: SRC-backend-versions
#[tokio::test]
async fn newer_documents_are_kept_unless_the_member_was_restored() {
    let mut fixture = BackendStoreFixture::new([&["a", "b"], &[]]).await;
    let cluster_uid = {
        let cluster = fixture.search.host.get_object(&CLUSTERS, "", "m1").unwrap();
        cluster["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let future = |name: &str| FakeDocument {
        version: 1_000_000,
        source: json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": "future",
            "metadata": {"namespace": "ns", "name": name},
            "cluster": {"name": "m1", "uid": cluster_uid}}),
    };
    fixture.open_search.put_document(INDEX, "0-a", future("a"));
    fixture
        .open_search
        .put_document(INDEX, "0-gone", future("gone"));
    fixture.lead(limits(), None).await;
    // The first attempts conflict; then the member's own state counts.
    wait_until(async || {
        let documents = fixture.open_search.documents(INDEX);
        documents.contains_key("0-b") && documents["0-a"].source["spec"] == "null"
    })
    .await;
    fixture.wait_for(&["m1/a", "m1/b"]).await;
    let conflicts = fixture.sent() - 3;
    assert!(conflicts >= 2, "{conflicts}");
    fixture.stop().await;
}

// proves: SRC-backend-secrets
#[tokio::test]
async fn secrets_are_sent_only_where_a_registry_names_them() {
    let mut fixture = BackendStoreFixture::new([&["a"], &[]]).await;
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "ns", "name": name, "uid": name}, "data": {"k": "dg=="}})
    };
    fixture.search.members[0].seed(&SECRETS, secret("s1"));
    // Another registry caches Secrets and has no backend store; wildcards select nothing.
    let mut cached = registry("");
    cached["metadata"]["name"] = "cached".into();
    cached["spec"]["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "Secret"}]);
    fixture.search.host.seed(&RESOURCE_REGISTRIES, cached);
    let mut wild = registry("");
    let selectors = wild["spec"]["resourceSelectors"].as_array_mut().unwrap();
    selectors.push(json!({"apiVersion": "*", "kind": "*"}));
    selectors.push(json!({"apiVersion": "v1", "kind": "*"}));
    fixture.seed_registry(wild);
    fixture.lead(limits(), None).await;
    fixture.wait_for(&["m1/a"]).await;
    wait_until(async || fixture.search.caches.0.find(&SECRETS).is_some()).await;
    fixture.search.members[0].seed(&SECRETS, secret("s2"));
    fixture.search.members[0].seed(&MAPS, member_map(0, "b", "1"));
    fixture.wait_for(&["m1/a", "m1/b"]).await;
    assert_eq!(fixture.open_search.indexes(), [INDEX]);

    let mut named = registry("");
    named["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "v1", "kind": "Secret", "namespace": "ns"}]);
    fixture.seed_registry(named);
    fixture
        .wait_for_index("kubernetes-secret", &["m1/s1", "m1/s2"])
        .await;
    // Documents of kinds that are not selected any more stay.
    assert_eq!(fixture.open_search.names(INDEX), ["m1/a", "m1/b"]);
    fixture.stop().await;
}

// proves: SRC-backend-credentials
#[tokio::test]
async fn credentials_are_followed() {
    let mut fixture = BackendStoreFixture::new([&["a"], &[]]).await;
    fixture.search.host.remove(&SECRETS, "kc", "search");
    fixture.lead(limits(), None).await;
    let condition = fixture.wait_for_reason("SecretNotFound").await;
    assert_eq!(condition["message"], "Secret kc/search does not exist");
    assert_eq!(fixture.open_search.unauthorized_requests(), 0);
    fixture.seed_secret("wrong");
    let condition = fixture.wait_for_reason("Unauthorized").await;
    assert_eq!(
        condition["message"],
        "OpenSearch responded with 401 (security_exception)"
    );
    fixture.seed_secret(PASSWORD);
    fixture.wait_for(&["m1/a"]).await;
    let metrics = flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
    let metrics = String::from_utf8(metrics).unwrap();
    let host = fixture.open_search.url().replace("https://", "");
    let available = format!("flotilla_search_backend_available{{backend=\"{host}\"}} 1");
    assert!(metrics.contains(&available), "{metrics}");
    assert!(!metrics.contains(PASSWORD));
    fixture.stop().await;
}

// proves: SRC-backend-leader
#[tokio::test]
async fn nothing_is_sent_after_the_term() {
    let mut fixture = BackendStoreFixture::new([&["a"], &[]]).await;
    let open = Arc::new(AtomicBool::new(true));
    let is_open = Arc::clone(&open);
    let fence = NetworkSendFence::new(move || is_open.load(Ordering::SeqCst));
    fixture.lead(limits(), Some(fence)).await;
    fixture.wait_for(&["m1/a"]).await;
    let before = fixture.sent();
    open.store(false, Ordering::SeqCst);
    fixture.search.members[0].seed(&MAPS, member_map(0, "b", "1"));
    fixture.wait_for_reason("Unreachable").await;
    assert_eq!(fixture.sent(), before);
    // The next leader goes on.
    fixture.lead(limits(), None).await;
    fixture.wait_for(&["m1/a", "m1/b"]).await;
    fixture.stop().await;
}

// proves: SRC-backend-index
#[tokio::test]
async fn labels_are_not_searchable_before_flat_objects() {
    let mut fixture = BackendStoreFixture::new([&["a"], &[]]).await;
    fixture.open_search.refuse_flat_object();
    fixture.lead(limits(), None).await;
    fixture.wait_for(&["m1/a"]).await;
    let mappings = fixture.open_search.mappings(INDEX);
    let labels = &mappings["properties"]["metadata"]["properties"]["labels"];
    assert_eq!(labels["enabled"], false);
    fixture.stop().await;
}
