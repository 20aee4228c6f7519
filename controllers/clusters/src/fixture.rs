//! The fixture of this crate's tests: a control plane and one member in memory, under
//! virtual time.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{
    Api, ApiCall, ApiReply, ApiResource, InformerFactory, Patch, ResourcePath, Result,
    ShutdownToken, TaskGroup, WriteOptions,
};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use interpreter::ResourceInterpreter;
use jiff::Timestamp;
use karmada_api::resources::{BINDINGS, CLUSTERS};
use karmada_api::well_known_keys::APPLIED_PLACEMENT;
use machinery::Gvr;
use machinery::time::Clock;
use members::{MemberClusterManager, MemberEndpoint};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::NAMESPACES;
use crate::options::{ClusterControllersOptions, ClusterControllersSettings};
use crate::start::{start, start_agent};

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// A clock on tokio's time, so that tests need not wait.
pub(crate) struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_767_225_600).unwrap() + self.0.elapsed()
    }
}

pub(crate) struct ClustersFixture {
    pub(crate) host: Arc<FakeApi>,
    pub(crate) member: Arc<FakeApi>,
    pub(crate) members: MemberClusterManager,
    pub(crate) tasks: TaskGroup,
    pub(crate) started_at: Instant,
}

pub(crate) fn api_resource(group: &str, version: &str, name: &str, kind: &str) -> ApiResource {
    ApiResource {
        resource: Gvr::new(group, version, name),
        kind: kind.into(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        categories: Vec::new(),
        short_names: Vec::new(),
    }
}

pub(crate) fn cluster(name: &str, mode: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
           "metadata": {"name": name, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
           "spec": {"syncMode": mode, "apiEndpoint": "https://m", "secretRef": {"namespace": "kc", "name": name}}})
}

pub(crate) fn condition_of<'a>(cluster: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = cluster["status"]["conditions"].as_array();
    let condition = all.into_iter().flatten().find(|c| c["type"] == kind);
    condition.map_or(("", ""), |c| {
        (c["status"].as_str().unwrap(), c["reason"].as_str().unwrap())
    })
}

pub(crate) fn ready_condition(cluster: &Value) -> (&str, &str) {
    condition_of(cluster, "Ready")
}

pub(crate) fn taint_keys(cluster: &Value) -> Vec<String> {
    let all = cluster["spec"]["taints"].as_array();
    let keys = all
        .into_iter()
        .flatten()
        .map(|t| t["key"].as_str().unwrap());
    keys.map(|k| k.replace("cluster.karmada.io/", "")).collect()
}

impl ClustersFixture {
    pub(crate) fn start() -> Self {
        Self::with_options(ClusterControllersSettings::default())
    }

    pub(crate) fn with_options(options: ClusterControllersSettings) -> Self {
        Self::build(options, false)
    }

    /// Also records events.
    pub(crate) fn with_events(options: ClusterControllersSettings) -> Self {
        Self::build(options, true)
    }

    fn build(settings: ClusterControllersSettings, telling: bool) -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        member.add_resource(api_resource("", "v1", "pods", "Pod"));
        member.set_raw_body("/readyz", "ok");
        member.set_raw_body("/version", r#"{"gitVersion":"v1.36.0"}"#);
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let control: Arc<dyn Api> = host.clone();
        let api = Arc::clone(&member);
        let connect = move |to: &MemberEndpoint, _: &TaskGroup| {
            Ok(match to.cluster.starts_with(HANGING_MEMBER_PREFIX) {
                true => Arc::new(HangingApi) as Arc<dyn Api>,
                false => Arc::clone(&api) as Arc<dyn Api>,
            })
        };
        let members =
            MemberClusterManager::start(control.clone(), &informers, Arc::new(connect), &tasks);
        let started_at = Instant::now();
        let clock = Arc::new(TokioClock(started_at));
        let recorder = match telling {
            true => EventRecorder::new(Arc::clone(&control), "test", clock.clone(), &tasks),
            false => EventRecorder::disabled(),
        };
        let start = match settings.agent_cluster {
            Some(_) => start_agent,
            None => start,
        };
        let context = ControllerContext {
            control_plane: control,
            informers,
            clock,
            recorder,
            tasks: tasks.clone(),
        };
        let options = ClusterControllersOptions {
            members: members.clone(),
            interpreter: ResourceInterpreter::default(),
            settings,
        };
        start(&context, &options);
        Self {
            host,
            member,
            members,
            tasks,
            started_at,
        }
    }

    /// The involved kinds and the messages of the events with a reason.
    pub(crate) fn recorded_events(&self, reason: &str) -> Vec<(String, String)> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let all = self.host.list_objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        some.map(|e| (text(&e["involvedObject"]["kind"]), text(&e["message"])))
            .collect()
    }

    pub(crate) fn seed_secret(&self, name: &str) {
        self.host.seed(
            &SECRETS,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kc"},
                   "data": {"token": "dA==", "caBundle": "Yw=="}}),
        );
    }

    /// Creates a cluster in push mode and its secret.
    pub(crate) fn seed_push_cluster(&self, name: &str) {
        self.seed_secret(name);
        self.host.seed(&CLUSTERS, cluster(name, "Push"));
    }

    pub(crate) fn cluster(&self, name: &str) -> Value {
        self.host
            .get_object(&CLUSTERS, "", name)
            .unwrap_or_default()
    }

    pub(crate) fn execution_space(&self, name: &str) -> Option<Value> {
        let space = karmada_api::names::execution_space_name(name);
        self.host.get_object(&NAMESPACES, "", &space)
    }

    /// Waits, in virtual time, until the cluster satisfies `what`.
    pub(crate) async fn wait_for_cluster(
        &self,
        name: &str,
        what: impl Fn(&Value) -> bool,
    ) -> Value {
        for _ in 0..100_000 {
            let cluster = self.cluster(name);
            if what(&cluster) {
                return cluster;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!(
            "the cluster did not reach the expected state: {}",
            self.cluster(name)
        );
    }

    /// Creates a cluster in push mode without a secret, so that it is not probed, with
    /// this Ready condition.
    pub(crate) fn seed_unprobed_cluster(&self, name: &str, ready: &str, since: &str) {
        let mut cluster = cluster(name, "Push");
        cluster["spec"]["secretRef"] = Value::Null;
        cluster["status"]["conditions"] = json!([{"type": "Ready", "status": ready, "reason": "R", "message": "",
                                                  "lastTransitionTime": since}]);
        self.host.seed(&CLUSTERS, cluster);
    }

    /// Merge-patches an object and its status.
    pub(crate) async fn merge_patch(
        &self,
        resource: &Gvr,
        (namespace, name): (&str, &str),
        patch: Value,
    ) {
        for part in ["", "status"] {
            let at = ResourcePath::object(resource, namespace, name).subresource(part);
            let options = WriteOptions::default();
            let patched = self.host.patch(at, Patch::Merge(patch.clone()), &options);
            patched.await.unwrap();
        }
    }

    /// Writes the binding's status: observed by the scheduler, with these healths by
    /// cluster.
    pub(crate) async fn set_observed_status(&self, name: &str, healths: &[(&str, &str)]) {
        let items: Vec<Value> = healths
            .iter()
            .map(|(c, h)| json!({"clusterName": c, "applied": true, "health": h, "status": {}}))
            .collect();
        let generation = &self.binding(name)["metadata"]["generation"];
        let status = json!({"schedulerObservedGeneration": generation, "aggregatedStatus": items});
        self.merge_patch(&BINDINGS, ("n", name), json!({"status": status}))
            .await;
    }

    pub(crate) fn binding(&self, name: &str) -> Value {
        self.host
            .get_object(&BINDINGS, "n", name)
            .unwrap_or_default()
    }

    /// The clusters a binding is scheduled to.
    pub(crate) fn scheduled_clusters(&self, name: &str) -> Value {
        self.binding(name)["spec"]["clusters"].clone()
    }

    pub(crate) fn eviction_tasks(&self, name: &str) -> Vec<Value> {
        let tasks = &self.binding(name)["spec"]["gracefulEvictionTasks"];
        tasks.as_array().cloned().unwrap_or_default()
    }

    /// Creates a binding scheduled to `clusters`, with these cluster tolerations.
    pub(crate) fn seed_binding(&self, name: &str, clusters: &[&str], tolerations: &Value) {
        let targets: Vec<Value> = clusters.iter().map(|c| json!({"name": c})).collect();
        let applied = json!({"clusterTolerations": tolerations}).to_string();
        self.host.seed(
            &BINDINGS,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                   "metadata": {"name": name, "namespace": "n", "generation": 1,
                                "annotations": {APPLIED_PLACEMENT: applied}},
                   "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": name},
                            "placement": {}, "clusters": targets}}),
        );
    }

    /// Waits until the controllers have reacted to the last change.
    pub(crate) async fn wait_until_idle(&self) {
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
}

/// Members with this name prefix accept connections and never respond.
pub(crate) const HANGING_MEMBER_PREFIX: &str = "hanging";

pub(crate) struct HangingApi;

#[async_trait]
impl Api for HangingApi {
    async fn call(&self, _: ApiCall<'_>) -> Result<ApiReply> {
        pending().await
    }
}
