//! Tests of the controllers with a real registry in memory.

mod collector;
mod definitions;
mod jobs;
mod namespaces;
mod quotas;
mod shadowing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{
    Api, DeleteOptions, DeletionPropagation, InformerFactory, ListOptions, Patch, ResourcePath,
    ShutdownToken, TaskGroup, WriteOptions,
};
use flotilla_runtime::{ControllerContext, EventRecorder};
use machinery::time::SystemClock;
use machinery::{Gvr, UserInfo};
use registry::{LoopbackApi, Registry};
use serde_json::{Value, json};
use storage::EmbeddedStore;
use tokio::sync::watch;
use watchcache::WatchCaches;

use crate::KubeControllersOptions;

/// A context without events.
fn context(api: &Arc<dyn Api>, tasks: &TaskGroup) -> ControllerContext {
    ControllerContext {
        control_plane: Arc::clone(api),
        informers: InformerFactory::new(tasks),
        clock: Arc::new(SystemClock),
        recorder: EventRecorder::disabled(),
        tasks: tasks.clone(),
    }
}

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
static ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static REPLICA_SETS: Gvr = Gvr::from_static("apps", "v1", "replicasets");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
static THINGS: Gvr = Gvr::from_static("g.io", "v1", "things");

/// An in-process API server with the controllers of this crate.
struct KubeControllersFixture {
    api: Arc<dyn Api>,
    tasks: TaskGroup,
    root_ca: watch::Sender<String>,
    client_ca: watch::Sender<String>,
}

impl KubeControllersFixture {
    async fn new() -> Self {
        let store =
            Arc::new(EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap());
        let watch_caches = WatchCaches::new(store.clone(), watchcache::WatchCacheConfig::default());
        let chain = Arc::new(admission::AdmissionChain::new(
            admission::AdmissionChainOptions::default(),
        ));
        let registry = Registry::new(
            store,
            watch_caches,
            registry::RegistryOptions::new(Arc::clone(&chain)),
        );
        registry.bootstrap().await.unwrap();
        let api: Arc<dyn Api> = LoopbackApi::new(Arc::clone(&registry), UserInfo::internal());
        chain.set_api(Arc::clone(&api));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move { registry.run(async move { stop.wait().await }).await });
        let root_ca = watch::Sender::new("CA".to_owned());
        let client_ca = watch::Sender::new("CLIENT CA".to_owned());
        let options = KubeControllersOptions {
            serves_group: |_| true,
            root_ca: root_ca.subscribe(),
            client_ca: client_ca.subscribe(),
            issue_token: Arc::new(|ns, account, _, secret| Ok(format!("{ns}/{account}/{secret}"))),
            sign_certificate: Arc::new(|_| Err("nothing is signed here".into())),
            type_check: Arc::new(|_| Vec::new()),
            cluster_info_url: None,
        };
        crate::start(&context(&api, &tasks), options).await.unwrap();
        let fixture = Self {
            api,
            tasks,
            root_ca,
            client_ca,
        };
        wait_until("roles are aggregated", async || {
            fixture.roles_are_aggregated().await
        })
        .await;
        fixture
    }

    /// Whether `admin`, `edit` and `view` have all rules of the roles that they select.
    async fn roles_are_aggregated(&self) -> bool {
        let roles = self.list(&CLUSTER_ROLES, "").await;
        let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
        ["admin", "edit", "view"].iter().all(|name| {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
            let selected = roles
                .iter()
                .filter(|r| r["metadata"]["labels"][&label] == "true");
            let sum = roles
                .iter()
                .find(|r| r["metadata"]["name"] == *name)
                .map(rules);
            let sum = sum.unwrap_or_default();
            !sum.is_empty() && selected.flat_map(rules).all(|rule| sum.contains(&rule))
        })
    }

    async fn create(&self, gvr: &Gvr, body: Value) -> Value {
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or("");
        let at = ResourcePath::collection(gvr, namespace);
        let created = self
            .api
            .create(at, body.clone().into(), &WriteOptions::default())
            .await;
        created.unwrap().value().unwrap()
    }

    /// Creates a ConfigMap; owners are (apiVersion, kind, owner).
    async fn create_config_map(&self, namespace: &str, name: &str, owners: Value) -> Value {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners}});
        self.create(&CONFIG_MAPS, map).await
    }

    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        match self
            .api
            .get(ResourcePath::object(gvr, namespace, name))
            .await
        {
            Ok(object) => Some(object.value().unwrap()),
            Err(e) if e.is_not_found() => None,
            Err(e) => panic!("{e}"),
        }
    }

    async fn list(&self, gvr: &Gvr, namespace: &str) -> Vec<Value> {
        let at = ResourcePath::collection(gvr, namespace);
        let list = self.api.list(at, &ListOptions::default()).await;
        let items = list.unwrap().items;
        items.iter().map(|o| o.value().unwrap()).collect()
    }

    async fn delete(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        how: Option<DeletionPropagation>,
    ) {
        let options = DeleteOptions {
            propagation: how,
            ..DeleteOptions::default()
        };
        let at = ResourcePath::object(gvr, namespace, name);
        self.api.delete(at, &options).await.unwrap();
    }

    async fn merge(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value) {
        let at = ResourcePath::object(gvr, namespace, name);
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options).await;
        patched.unwrap();
    }

    async fn wait_until_gone(&self, gvr: &Gvr, namespace: &str, name: &str) {
        let what = format!("{gvr} {namespace}/{name} is gone");
        wait_until(&what, async || {
            self.get(gvr, namespace, name).await.is_none()
        })
        .await;
    }

    async fn wait_for_event(&self, reason: &str) {
        wait_until(reason, async || {
            let all = self.list(&EVENTS, "").await;
            all.iter().any(|e| e["reason"] == reason)
        })
        .await;
    }
}

/// Polls until a condition holds.
async fn wait_until(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn owner(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

fn definition(plural: &str, kind: &str) -> Value {
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.g.io")},
        "spec": {"group": "g.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": open}]}})
}
