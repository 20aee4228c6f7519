//! Tests of the controller over a control plane in memory.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use karmada_api::resources::CLUSTERS;
use machinery::Gvr;
use machinery::time::SystemClock;
use serde_json::{Value, json};

use crate::{CLUSTER_PROFILES, start};

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
const NAMESPACE: &str = "fleet";

struct InventoryFixture {
    api: Arc<FakeApi>,
    tasks: TaskGroup,
    /// Informers stop when they are dropped.
    _informers: InformerFactory,
}

impl InventoryFixture {
    async fn start(api: &Arc<FakeApi>) -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let control_plane = Arc::clone(api) as Arc<dyn Api>;
        let clock = Arc::new(SystemClock);
        let recorder =
            EventRecorder::new(Arc::clone(&control_plane), "test", clock.clone(), &tasks);
        let context = ControllerContext {
            control_plane,
            informers: InformerFactory::new(&tasks),
            clock,
            recorder,
            tasks: tasks.clone(),
        };
        start(&context, NAMESPACE).await;
        Self {
            api: Arc::clone(api),
            tasks,
            _informers: context.informers,
        }
    }

    /// Waits until the profile of a name satisfies `is_desired`; `Null` if there is none.
    async fn wait_for_profile(
        &self,
        namespace: &str,
        name: &str,
        is_desired: impl Fn(&Value) -> bool,
    ) {
        wait_until(|| is_desired(&profile(&self.api, namespace, name))).await;
    }

    async fn wait_until_idle(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits, under virtual time.
async fn wait_until(done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap();
}

fn profile(api: &FakeApi, namespace: &str, name: &str) -> Value {
    let profile = api.get_object(&CLUSTER_PROFILES, namespace, name);
    profile.unwrap_or_default()
}

fn cluster(name: &str, ready: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"syncMode": "Push", "region": "north"},
        "status": {"kubernetesVersion": "v1.36.0", "conditions": [{"type": "Ready", "status": ready,
            "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn cluster_info(server: &str) -> Value {
    let kubeconfig = format!(
        "clusters: [{{cluster: {{server: '{server}', certificate-authority-data: Y2E=}}}}]"
    );
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"kubeconfig": kubeconfig},
        "metadata": {"name": "cluster-info", "namespace": "kube-public"}})
}

fn foreign_profile(namespace: &str, name: &str, owner: &str) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"),
            "ownerReferences": [{"apiVersion": "x/v1", "kind": "Cluster", "name": "x", "uid": "x"}]},
        "spec": {"clusterManager": {"name": owner}}})
}

// proves: INV-profile, INV-access
#[tokio::test(start_paused = true)]
async fn every_cluster_has_a_profile_with_its_state() {
    let api = FakeApi::new();
    api.seed(&CLUSTERS, cluster("a", "True"));
    api.seed(&CONFIG_MAPS, cluster_info("https://one:6443"));
    let fixture = InventoryFixture::start(&api).await;
    fixture
        .wait_for_profile(NAMESPACE, "a", |profile| !profile["status"].is_null())
        .await;
    let first_profile = profile(&api, NAMESPACE, "a");
    assert_eq!(
        first_profile["spec"],
        json!({"displayName": "a", "clusterManager": {"name": "flotilla"}})
    );
    assert_eq!(
        first_profile["metadata"]["labels"]["x-k8s.io/cluster-manager"],
        "flotilla"
    );
    assert_eq!(
        first_profile["metadata"]["ownerReferences"][0]["uid"],
        "uid-a"
    );
    assert_eq!(
        first_profile["status"]["accessProviders"],
        json!([{"name": "flotilla", "cluster": {
            "server": "https://one:6443/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy",
            "certificate-authority-data": "Y2E=",
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "a"}}],
        }}])
    );
    api.seed(&CLUSTERS, cluster("a", "False"));
    api.seed(&CLUSTERS, cluster("b", "True"));
    api.seed(&CONFIG_MAPS, cluster_info("https://two:6443"));
    for (name, status) in [("a", "False"), ("b", "True")] {
        fixture
            .wait_for_profile(NAMESPACE, name, |profile| {
                let server = &profile["status"]["accessProviders"][0]["cluster"]["server"];
                profile["status"]["conditions"][0]["status"] == status
                    && server
                        .as_str()
                        .is_some_and(|url| url.starts_with("https://two"))
            })
            .await;
    }
    fixture.tasks.stop().await;
}

// proves: INV-writes
#[tokio::test(start_paused = true)]
async fn only_differences_are_written_and_changes_are_taken_back() {
    let api = FakeApi::new();
    api.seed(&CLUSTERS, cluster("a", "True"));
    let fixture = InventoryFixture::start(&api).await;
    fixture
        .wait_for_profile(NAMESPACE, "a", |profile| !profile["status"].is_null())
        .await;
    fixture.wait_until_idle().await;
    fixture.tasks.stop().await;
    api.clear_writes();
    let fixture = InventoryFixture::start(&api).await;
    let mut same = cluster("a", "True");
    same["metadata"]["annotations"] = json!({"a": "b"});
    api.seed(&CLUSTERS, same);
    fixture.wait_until_idle().await;
    assert!(api.writes().is_empty(), "{:?}", api.writes().len());
    let mut changed = profile(&api, NAMESPACE, "a");
    changed["spec"]["displayName"] = "other".into();
    changed["status"]["version"]["kubernetes"] = "v0".into();
    api.seed(&CLUSTER_PROFILES, changed);
    fixture
        .wait_for_profile(NAMESPACE, "a", |profile| {
            profile["spec"]["displayName"] == "a"
                && profile["status"]["version"]["kubernetes"] == "v1.36.0"
        })
        .await;
    fixture.tasks.stop().await;
}

// proves: INV-foreign
#[tokio::test(start_paused = true)]
async fn profiles_of_other_managers_are_left_alone() {
    let api = FakeApi::new();
    let taken = foreign_profile(NAMESPACE, "a", "other");
    for foreign in [
        taken.clone(),
        foreign_profile(NAMESPACE, "gone", "other"),
        foreign_profile("elsewhere", "a", "other"),
    ] {
        api.seed(&CLUSTER_PROFILES, foreign);
    }
    api.seed(&CLUSTERS, cluster("a", "True"));
    api.clear_writes();
    let fixture = InventoryFixture::start(&api).await;
    wait_until(|| !api.list_objects(&EVENTS).is_empty()).await;
    api.seed(&CLUSTERS, cluster("a", "False"));
    fixture.wait_until_idle().await;
    let events = api.list_objects(&EVENTS);
    let events: Vec<&Value> = events.iter().map(|event| &event["reason"]).collect();
    assert_eq!(events, ["ClusterProfileTaken"]);
    let profiles = api.list_objects(&CLUSTER_PROFILES);
    assert_eq!(profiles.len(), 3);
    assert!(profile(&api, NAMESPACE, "a").get("status").is_none());
    fixture.tasks.stop().await;
}

// proves: INV-deleted, INV-namespace
#[tokio::test(start_paused = true)]
async fn profiles_without_a_cluster_and_of_another_namespace_are_deleted() {
    let api = FakeApi::new();
    api.seed(&CLUSTERS, cluster("a", "True"));
    for stale in [
        foreign_profile(NAMESPACE, "gone", "flotilla"),
        foreign_profile("former", "a", "flotilla"),
    ] {
        api.seed(&CLUSTER_PROFILES, stale);
    }
    let mut by_hand = foreign_profile(NAMESPACE, "by-hand", "flotilla");
    by_hand["metadata"]["ownerReferences"] = json!([]);
    api.seed(&CLUSTER_PROFILES, by_hand);
    let fixture = InventoryFixture::start(&api).await;
    fixture
        .wait_for_profile(NAMESPACE, "a", |profile| !profile["status"].is_null())
        .await;
    fixture
        .wait_for_profile(NAMESPACE, "gone", Value::is_null)
        .await;
    fixture
        .wait_for_profile("former", "a", Value::is_null)
        .await;
    api.remove(&CLUSTERS, "", "a");
    fixture
        .wait_for_profile(NAMESPACE, "a", Value::is_null)
        .await;
    assert!(!profile(&api, NAMESPACE, "by-hand").is_null());
    fixture.tasks.stop().await;
}
