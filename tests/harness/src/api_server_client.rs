//! A client of an API server for tests, with JSON values in and out: calls that must
//! succeed, and waits with a timeout that panic with the object last read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Api, DeleteOptions, Error, ListOptions, Patch, ResourcePath, WriteOptions};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::cluster::connect;
use crate::objects::{CLUSTERS, gvr};

const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A client of one API server.
pub struct ApiServerClient {
    pub name: String,
    pub api: Arc<dyn Api>,
}

impl ApiServerClient {
    /// Must be called where tokio runs.
    pub fn connect(name: &str, kubeconfig: &Path) -> Self {
        Self {
            name: name.to_owned(),
            api: connect(kubeconfig),
        }
    }

    pub async fn create(&self, object: Value) -> Value {
        let created = self.try_create(object.clone()).await;
        created.unwrap_or_else(|message| panic!("{}: {message}: {object:#}", self.name))
    }

    pub async fn try_create(&self, object: Value) -> client::Result<Value> {
        let resource = gvr(&object);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
        let at = ResourcePath::collection(resource, namespace);
        let options = write_options();
        let created = self.api.create(at, object.clone().into(), &options);
        Ok(created.await?.value()?)
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, name: &str) {
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }

    pub async fn get(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        match self
            .api
            .get(ResourcePath::object(resource, namespace, name))
            .await
        {
            Ok(object) => Some(object.value().unwrap()),
            Err(Error::Status(status)) if status.code == 404 => None,
            Err(error) => panic!("{} {resource:?} {namespace}/{name}: {error}", self.name),
        }
    }

    pub async fn list(&self, resource: &Gvr, namespace: &str) -> Vec<Value> {
        let options = ListOptions::default();
        let list = self
            .api
            .list(ResourcePath::collection(resource, namespace), &options);
        let list = list.await.unwrap();
        list.items.iter().map(|o| o.value().unwrap()).collect()
    }

    /// A merge patch.
    pub async fn merge_patch(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Value {
        let at = ResourcePath::object(resource, namespace, name);
        let done = self
            .api
            .patch(at, Patch::Merge(patch), &write_options())
            .await;
        let done =
            done.unwrap_or_else(|message| panic!("{} {namespace}/{name}: {message}", self.name));
        done.value().unwrap()
    }

    /// Patches the status of an existing object, as a controller would.
    pub async fn patch_status(&self, object: &Value, status: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("");
        let (namespace, name) = (text("namespace"), text("name"));
        let at = ResourcePath::object(gvr(object), namespace, name).subresource("status");
        let patch = Patch::Merge(json!({ "status": status }));
        let done = self.api.patch(at, patch, &write_options()).await;
        done.unwrap_or_else(|message| panic!("{} {namespace}/{name}: {message}", self.name));
    }

    pub async fn delete(&self, resource: &Gvr, namespace: &str, name: &str) {
        let at = ResourcePath::object(resource, namespace, name);
        let gone = self.api.delete(at, &DeleteOptions::default()).await;
        gone.unwrap_or_else(|message| panic!("{} {namespace}/{name}: {message}", self.name));
    }

    /// Waits until the object exists and `matches`; `description` names it in the panic text.
    pub async fn wait_until(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        description: &str,
        matches: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let object = self.get(resource, namespace, name).await;
            match object {
                Some(object) if matches(&object) => return object,
                _ if Instant::now() < end => tokio::time::sleep(POLL_INTERVAL).await,
                Some(object) => panic!(
                    "{}: {namespace}/{name}: not {description}: {object:#}",
                    self.name
                ),
                None => panic!(
                    "{}: no {} {namespace}/{name}: not {description}",
                    self.name, resource.resource
                ),
            }
        }
    }

    /// Waits until the object exists.
    pub async fn wait_until_exists(&self, resource: &Gvr, namespace: &str, name: &str) -> Value {
        self.wait_until(resource, namespace, name, "there", |_| true)
            .await
    }

    /// Waits until the object is deleted.
    pub async fn wait_until_deleted(&self, resource: &Gvr, namespace: &str, name: &str) {
        let end = Instant::now() + WAIT_TIMEOUT;
        while let Some(object) = self.get(resource, namespace, name).await {
            assert!(
                Instant::now() < end,
                "{}: still there: {object:#}",
                self.name
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a Cluster is Ready and its API enablements are complete.
    pub async fn wait_until_cluster_ready(&self, cluster: &str) -> Value {
        self.wait_until(&CLUSTERS, "", cluster, "ready", |c| {
            find_condition(c, "Ready")["status"] == "True"
                && find_condition(c, "CompleteAPIEnablements")["status"] == "True"
        })
        .await
    }
}

/// A condition of an object by its type; null when the object has none.
pub fn find_condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    all.find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

/// Whether a Rollout has ended, in all of so many clusters: until its template is scheduled, it has
/// ended in none.
pub fn is_rolled_out(rollout: &Value, clusters: usize) -> bool {
    let status = &rollout["status"];
    status["state"] == "Completed" && status["progress"] == format!("{clusters}/{clusters}")
}

/// Writes as another manager of fields than the control plane, whose client this is.
fn write_options() -> WriteOptions {
    WriteOptions {
        field_manager: "test-client".to_owned(),
        ..WriteOptions::default()
    }
}

/// Waits until `holds` returns true; `description` names it in the panic text.
pub async fn wait_until(description: &str, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < end, "not in time: {description}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
