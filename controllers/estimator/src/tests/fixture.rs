//! A host and its members in memory.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use karmada_api::resources::CLUSTERS;
use machinery::Gvr;
use machinery::time::SystemClock;
use members::{MemberCluster, MemberClusterManager, MemberEndpoint, MemberTrackingOptions};
use serde_json::{Value, json};

use crate::{EstimatorCache, EstimatorOptions};

pub(crate) static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
pub(crate) static PODS: Gvr = Gvr::from_static("", "v1", "pods");
pub(crate) static QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");
pub(crate) static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// One host and its members, which share their objects.
pub(crate) struct EstimatorMembersFixture {
    pub(crate) host: Arc<FakeApi>,
    pub(crate) member: Arc<FakeApi>,
    pub(crate) members: MemberClusterManager,
    pub(crate) informers: InformerFactory,
    pub(crate) tasks: TaskGroup,
}

/// Waits until a condition holds.
pub(crate) async fn wait_until<F: Future<Output = bool>>(what: impl Fn() -> F) {
    let poll = async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), poll).await;
    reached.unwrap();
}

impl EstimatorMembersFixture {
    pub(crate) fn new(detail: MemberTrackingOptions) -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let api = Arc::clone(&member);
        let connect = move |_: &MemberEndpoint, _: &TaskGroup| Ok(Arc::clone(&api) as Arc<dyn Api>);
        let members = MemberClusterManager::start_with_tracking(
            detail,
            host.clone(),
            &informers,
            Arc::new(connect),
            &tasks,
        );
        Self {
            host,
            member,
            members,
            informers,
            tasks,
        }
    }

    /// A context of the host, without events.
    pub(crate) fn context(&self) -> ControllerContext {
        ControllerContext {
            control_plane: self.host.clone(),
            informers: self.informers.clone(),
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: self.tasks.clone(),
        }
    }

    /// Starts to discover estimators.
    pub(crate) fn connect(&self, options: EstimatorOptions) -> Arc<EstimatorCache> {
        EstimatorCache::start(&self.context(), options)
    }

    /// Joins a cluster that reports capacity for `pods` pods and serves Deployments.
    pub(crate) fn join(&self, name: &str, mode: &str, pods: i64) {
        let secret = json!({"metadata": {"name": name, "namespace": "kc"}, "data": {"token": "dA==", "caBundle": "Y2E="}});
        self.host.seed(&SECRETS, secret);
        let kinds = json!([{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]);
        let summary = json!({"allocatable": {"pods": pods.to_string(), "cpu": "1000"}});
        self.host.seed(
            &CLUSTERS,
            json!({"metadata": {"name": name, "generation": 1},
                   "spec": {"syncMode": mode, "apiEndpoint": "https://m", "secretRef": {"namespace": "kc", "name": name}},
                   "status": {"apiEnablements": kinds, "resourceSummary": summary}}),
        );
    }

    /// Waits until the nodes and quotas of the member are listed.
    pub(crate) async fn wait_until_listed(&self, name: &str, quotas: bool) -> Arc<MemberCluster> {
        wait_until(async || {
            let member = self.members.get(name);
            member.is_ok_and(|m| {
                m.with_nodes(|_| ()).is_some() && (!quotas || m.quotas("n").is_some())
            })
        })
        .await;
        self.members.get(name).unwrap()
    }
}

/// A node from `name cpu pods`, labels `a=b`, taints `!key=value:Effect` and `cordoned`.
pub(crate) fn node(text: &str) -> Value {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (name, cpu, pods) = (next(), next(), next());
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": []},
        "status": {"allocatable": {"cpu": cpu, "pods": pods, "memory": "64Gi", "gpu.x/y": "2"}},
    });
    for word in words {
        if word == "cordoned" {
            node["spec"]["unschedulable"] = true.into();
        } else if let Some(taint) = word.strip_prefix('!') {
            let (pair, effect) = taint.split_once(':').unwrap();
            let (key, value) = pair.split_once('=').unwrap();
            let taint = json!({"key": key, "value": value, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
            node["spec"]["taints"].as_array_mut().unwrap().push(taint);
        } else {
            let (key, value) = word.split_once('=').unwrap();
            node["metadata"]["labels"][key] = value.into();
        }
    }
    node
}

pub(crate) fn pod(name: &str, on: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"},
           "spec": {"nodeName": on, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}})
}
