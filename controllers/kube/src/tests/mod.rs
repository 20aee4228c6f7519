//! Tests of the controllers with a real registry in memory.

mod collector;
mod definitions;
mod namespaces;
mod shadowing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Api, At, DeleteOptions, ListOptions, Patch, Propagation, WriteOptions};
use machinery::time::SystemClock;
use machinery::{Gvr, UserInfo};
use registry::{Loopback, Registry};
use flotilla_runtime::{Informers, Shutdown, Tasks};
use serde_json::{Value, json};
use storage::Embedded;
use tokio::sync::watch;
use watchcache::Hub;

use crate::Options;

static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
static MAPS: Gvr = Gvr::constant("", "v1", "configmaps");
static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
static ACCOUNTS: Gvr = Gvr::constant("", "v1", "serviceaccounts");
static PODS: Gvr = Gvr::constant("", "v1", "pods");
static EVENTS: Gvr = Gvr::constant("", "v1", "events");
static SETS: Gvr = Gvr::constant("apps", "v1", "replicasets");
static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
static THINGS: Gvr = Gvr::constant("g.io", "v1", "things");

/// An in-process API server with the controllers of this crate.
struct Lab {
    api: Arc<dyn Api>,
    tasks: Tasks,
    root_ca: watch::Sender<String>,
}

impl Lab {
    async fn new() -> Self {
        let store = Arc::new(Embedded::memory(storage::Options::default()).unwrap());
        let hub = Hub::new(store.clone(), watchcache::Config::default());
        let chain = Arc::new(admission::Chain::new(admission::Options::default()));
        let registry = Registry::new(store, hub, registry::Options::new(Arc::clone(&chain)));
        registry.bootstrap().await.unwrap();
        let api: Arc<dyn Api> = Loopback::new(Arc::clone(&registry), UserInfo::internal());
        chain.connect(Arc::clone(&api));
        let tasks = Tasks::new(Shutdown::new());
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move { registry.run(async move { stop.wait().await }).await });
        let root_ca = watch::Sender::new("CA".to_owned());
        let options = Options {
            clock: Arc::new(SystemClock),
            serves: |_| true,
            root_ca: root_ca.subscribe(),
            issue: Arc::new(|ns, account, _, secret| Ok(format!("{ns}/{account}/{secret}"))),
        };
        let informers = Informers::new(&tasks);
        crate::start(Arc::clone(&api), options, &informers, &tasks)
            .await
            .unwrap();
        Self {
            api,
            tasks,
            root_ca,
        }
    }

    async fn create(&self, gvr: &Gvr, body: Value) -> Value {
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or("");
        let at = At::all(gvr, namespace);
        let made = self
            .api
            .create(at, body.clone(), &WriteOptions::default())
            .await;
        made.unwrap().value().unwrap()
    }

    /// Creates a ConfigMap; owners are (apiVersion, kind, owner).
    async fn map(&self, namespace: &str, name: &str, owners: Value) -> Value {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners}});
        self.create(&MAPS, map).await
    }

    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        match self.api.get(At::one(gvr, namespace, name)).await {
            Ok(object) => Some(object.value().unwrap()),
            Err(e) if e.is_not_found() => None,
            Err(e) => panic!("{e}"),
        }
    }

    async fn list(&self, gvr: &Gvr, namespace: &str) -> Vec<Value> {
        let at = At::all(gvr, namespace);
        let list = self.api.list(at, &ListOptions::default()).await;
        let items = list.unwrap().items;
        items.iter().map(|o| o.value().unwrap()).collect()
    }

    async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str, how: Option<Propagation>) {
        let options = DeleteOptions {
            propagation: how,
            ..DeleteOptions::default()
        };
        let at = At::one(gvr, namespace, name);
        self.api.delete(at, &options).await.unwrap();
    }

    async fn merge(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value) {
        let at = At::one(gvr, namespace, name);
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options).await;
        patched.unwrap();
    }

    async fn gone(&self, gvr: &Gvr, namespace: &str, name: &str) {
        let what = format!("{gvr} {namespace}/{name} is gone");
        until(&what, async || {
            self.get(gvr, namespace, name).await.is_none()
        })
        .await;
    }

    async fn event(&self, reason: &str) {
        until(reason, async || {
            let all = self.list(&EVENTS, "").await;
            all.iter().any(|e| e["reason"] == reason)
        })
        .await;
    }
}

/// Polls until a condition holds.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
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
