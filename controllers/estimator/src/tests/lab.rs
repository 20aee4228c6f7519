//! A host and its members in memory.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, Informers, Shutdown, Tasks};
use machinery::Gvr;
use members::{Detail, Endpoint, Member, Members};
use openapi::karmada::resources::CLUSTERS;
use serde_json::{Value, json};

pub(crate) static NODES: Gvr = Gvr::constant("", "v1", "nodes");
pub(crate) static PODS: Gvr = Gvr::constant("", "v1", "pods");
pub(crate) static QUOTAS: Gvr = Gvr::constant("", "v1", "resourcequotas");
pub(crate) static SERVICES: Gvr = Gvr::constant("", "v1", "services");
static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");

/// One host and its members, which share their objects.
pub(crate) struct Lab {
    pub(crate) host: Arc<FakeApi>,
    pub(crate) member: Arc<FakeApi>,
    pub(crate) members: Members,
    pub(crate) informers: Informers,
    pub(crate) tasks: Tasks,
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: impl Fn() -> F) {
    let poll = async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), poll).await;
    reached.unwrap();
}

impl Lab {
    pub(crate) fn new(detail: Detail) -> Self {
        let (host, member) = (FakeApi::new(), FakeApi::new());
        let tasks = Tasks::new(Shutdown::new());
        let informers = Informers::new(&tasks);
        let api = Arc::clone(&member);
        let connect = move |_: &Endpoint, _: &Tasks| Ok(Arc::clone(&api) as Arc<dyn Api>);
        let members = Members::telling(detail, host.clone(), &informers, Arc::new(connect), &tasks);
        Self {
            host,
            member,
            members,
            informers,
            tasks,
        }
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
    pub(crate) async fn listed(&self, name: &str, quotas: bool) -> Arc<Member> {
        until(async || {
            let member = self.members.get(name);
            member.is_ok_and(|m| m.nodes(|_| ()).is_some() && (!quotas || m.quotas("n").is_some()))
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
