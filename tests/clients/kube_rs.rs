//! Runs a reflector, a controller and server-side applies of kube-rs against the server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::RestartableServer;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const NAMESPACE: &str = "kube-rs";

/// Object name → the resource version at its last reconciliation.
type ReconciledVersions = Arc<Mutex<BTreeMap<String, String>>>;

async fn connect(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done().await {
        assert!(Instant::now() < end, "not in time: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name}, "data": {"k": value}});
    serde_json::from_value(map).unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

fn start_reflector(maps: &Api<ConfigMap>) -> Store<ConfigMap> {
    let (store, writer) = reflector::store();
    let stream = watcher(maps.clone(), watcher::Config::default().streaming_lists());
    let reflected = stream.default_backoff().reflect(writer);
    tokio::spawn(reflected.for_each(|_| async {}));
    store
}

fn start_controller(maps: &Api<ConfigMap>) -> ReconciledVersions {
    let reconciled = ReconciledVersions::default();
    let reconcile = |map: Arc<ConfigMap>, reconciled: Arc<ReconciledVersions>| async move {
        let version = map.resource_version().unwrap();
        reconciled.lock().insert(map.name_any(), version);
        Ok::<_, std::convert::Infallible>(Action::await_change())
    };
    let controller = Controller::new(maps.clone(), watcher::Config::default());
    let context = Arc::new(Arc::clone(&reconciled));
    let run = controller.run(reconcile, |_, _, _| Action::await_change(), context);
    tokio::spawn(run.for_each(|_| async {}));
    reconciled
}

async fn listed(maps: &Api<ConfigMap>) -> BTreeMap<String, String> {
    let list = maps.list(&ListParams::default()).await.unwrap();
    let items = list.items.iter();
    items
        .map(|m| (m.name_any(), m.resource_version().unwrap()))
        .collect()
}

fn stored(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    let state = store.state();
    let items = state.iter();
    items
        .map(|m| (m.name_any(), m.resource_version().unwrap()))
        .collect()
}

/// The objects that exist were reconciled in their present version.
async fn wait_for_agreement(
    maps: &Api<ConfigMap>,
    store: &Store<ConfigMap>,
    versions: &ReconciledVersions,
) {
    wait_until(
        "a reflector and a controller that agree with a list",
        async || {
            let listed = listed(maps).await;
            let reconciled = versions.lock().clone();
            let all = listed
                .iter()
                .all(|(name, version)| reconciled.get(name) == Some(version));
            stored(store) == listed && all
        },
    )
    .await;
}

async fn apply_as_two_managers(maps: &Api<ConfigMap>) {
    let wanted = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "applied"}, "data": {"k": value},
        }))
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    maps.patch("applied", &one, &wanted("1")).await.unwrap();
    let refused = maps.patch("applied", &two, &wanted("2")).await.unwrap_err();
    assert_eq!(code(&refused), 409, "{refused}");
    let forced = maps
        .patch("applied", &two.force(), &wanted("2"))
        .await
        .unwrap();
    assert_eq!(forced.data.unwrap()["k"], "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_works_over_a_restart() {
    let mut server = RestartableServer::start();
    let client = connect(&server.kubeconfig()).await;
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let create = PostParams::default();
    Api::all(client.clone())
        .create(&create, &namespace)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let (store, versions) = (start_reflector(&maps), start_controller(&maps));
    for name in ["a", "b", "c"] {
        maps.create(&create, &config_map(name, "1")).await.unwrap();
    }
    let twice = maps
        .create(&create, &config_map("a", "1"))
        .await
        .unwrap_err();
    assert_eq!(code(&twice), 409);
    let merge = Patch::Merge(json!({"data": {"k": "2"}}));
    maps.patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    maps.delete("c", &DeleteParams::default()).await.unwrap();
    apply_as_two_managers(&maps).await;
    wait_for_agreement(&maps, &store, &versions).await;

    server.restart();
    wait_until("a write after the restart", async || {
        match maps.create(&create, &config_map("after", "1")).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => status.code == 409,
            Err(_) => false,
        }
    })
    .await;
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    wait_for_agreement(&maps, &store, &versions).await;
    let names: Vec<String> = stored(&store).into_keys().collect();
    assert_eq!(names, ["a", "after", "applied", "kube-root-ca.crt"]);
}
