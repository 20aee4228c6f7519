//! Tests propagation end to end over in-memory API servers: from a policy and a template to objects
//! in two members.

/// Which policy claims a template, and what its binding contains.
mod claims;
/// From a binding to the objects in members.
mod delivery;
/// Dependencies of templates.
mod dependents;
/// Evicted copies and their replacements.
mod evictions;
/// Event handlers use indexes.
mod handlers;
/// Lazy policies.
mod lazy;
/// From Works to the objects in members.
mod members;
/// Shares and usage of FederatedResourceQuotas.
mod quotas;
/// WorkloadRebalancers.
mod rebalancers;
/// Released claims and recreated templates.
mod released;
/// Namespaces in every cluster.
mod spaces;
/// Events and metrics of the detector.
mod told;
/// From bindings to their Works.
mod works;

use std::sync::Arc;
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, ApiResource};
use machinery::Gvr;
use machinery::time::SystemClock;
use openapi::karmada::resources::{BINDINGS, CLUSTERS, WORKS};
use openapi::karmada::{FeatureGates, Gate, labels};
use parking_lot::Mutex;
use flotilla_runtime::{HostWorkloads, Informer, Informers, Recorder, Select, Shutdown, Tasks};
use scheduler::core::{Plugins, Rules};
use serde_json::{Value, json};

use crate::access::{OnConnect, OnObject};
use crate::{Deps, MemberAccess, Options, start};

pub(crate) static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
pub(crate) static CONFIG_MAPS: Gvr = Gvr::constant("", "v1", "configmaps");
pub(crate) static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
static EVENTS: Gvr = Gvr::constant("", "v1", "events");
static CLUSTER_ROLES: Gvr = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterroles");

/// Members with fake API servers.
struct FakeMembers {
    apis: Vec<(String, Arc<dyn Api>)>,
    informers: Informers,
    handlers: Arc<Mutex<Vec<OnObject>>>,
    heard: Followed,
}

fn managed(resource: &Gvr) -> Select {
    Select::all(resource).labels("karmada.io/managed=true")
}

impl MemberAccess for FakeMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let found = self.apis.iter().find(|(name, _)| name == cluster);
        found
            .map(|(_, api)| Arc::clone(api))
            .ok_or_else(|| "no connection".to_owned())
    }

    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        let informer = self.informers.get(&self.api(cluster)?, &managed(resource));
        let key = (cluster.to_owned(), resource.clone());
        let first = {
            let mut informed = self.heard.lock();
            let first = !informed.contains(&key);
            if first {
                informed.push(key.clone());
            }
            first
        };
        if first {
            let handlers = Arc::clone(&self.handlers);
            informer.on_change(move |change| {
                for handler in handlers.lock().iter() {
                    handler(&key.0, &key.1, change);
                }
            });
        }
        Ok(informer)
    }

    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        let informed = self.heard.lock();
        let followed = informed.contains(&(cluster.to_owned(), resource.clone()));
        drop(informed);
        followed.then(|| self.managed(cluster, resource).ok())?
    }

    fn unfollow(&self, cluster: &str, resource: &Gvr) {
        let key = (cluster.to_owned(), resource.clone());
        self.heard.lock().retain(|informed| *informed != key);
        if let Ok(api) = self.api(cluster) {
            self.informers.release(&api, &managed(resource));
        }
    }

    fn on_object(&self, handler: OnObject) {
        self.handlers.lock().push(handler);
    }

    fn on_connect(&self, handler: OnConnect) {
        for (name, _) in &self.apis {
            handler(name, true);
        }
    }
}

pub(crate) struct Plane {
    pub(crate) control: Arc<FakeApi>,
    pub(crate) members: Vec<Arc<FakeApi>>,
    pub(crate) tasks: Tasks,
    tells_events: bool,
    followed: Followed,
}

/// The clusters and resources whose managed objects have an informer.
type Followed = Arc<Mutex<Vec<(String, Gvr)>>>;

pub(crate) fn serve(api: &FakeApi, resource: &Gvr, kind: &str, namespaced: bool) {
    api.serve(ApiResource {
        resource: resource.clone(),
        kind: kind.into(),
        namespaced,
        verbs: [
            "get", "list", "watch", "create", "update", "patch", "delete",
        ]
        .map(Into::into)
        .into(),
        subresources: vec!["status".into()],
        categories: vec![],
        short_names: vec![],
    });
}

pub(crate) fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Push"},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]},
                               {"groupVersion": "rbac.authorization.k8s.io/v1", "resources": [{"kind": "ClusterRole", "name": "clusterroles"}]},
                               {"groupVersion": "v1", "resources": [{"kind": "ConfigMap", "name": "configmaps"}]}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "CompleteAPIEnablements", "status": "True"}],
            "resourceSummary": {"allocatable": {"pods": "100", "cpu": "100"}},
        },
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "n"},
        "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}}})
}

pub(crate) fn policy(spec: Value) -> Value {
    let mut full = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]}}, "schedulerName": "default-scheduler", "conflictResolution": "Abort"});
    full.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "n", "labels": {labels::POLICY_ID: "policy-id"},
                     "finalizers": [labels::POLICY_FINALIZER]},
        "spec": full})
}

impl Plane {
    pub(crate) fn new() -> Self {
        let control = FakeApi::new();
        for (resource, kind, namespaced) in [
            (&DEPLOYMENTS, "Deployment", true),
            (&CONFIG_MAPS, "ConfigMap", true),
            (&SECRETS, "Secret", true),
            (&NAMESPACES, "Namespace", false),
            (&CLUSTER_ROLES, "ClusterRole", false),
        ] {
            serve(&control, resource, kind, namespaced);
        }
        for name in ["m1", "m2"] {
            control.seed(&CLUSTERS, cluster(name));
        }
        Self {
            control,
            members: vec![FakeApi::new(), FakeApi::new()],
            tasks: Tasks::new(Shutdown::new()),
            tells_events: false,
            followed: Arc::default(),
        }
    }

    /// Returns a control plane whose controllers write events.
    fn telling_events() -> Self {
        let mut plane = Self::new();
        plane.tells_events = true;
        plane
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(Options::default(), None).await;
    }

    /// `propagate`: `None` if the control plane cannot run workloads, otherwise the value of
    /// [`HostWorkloads::watch`].
    pub(crate) async fn start_with(&mut self, options: Options, propagate: Option<bool>) {
        let deps = self.deps(options, propagate);
        start(deps, &self.tasks).await.unwrap();
    }

    /// The dependencies of the controllers of a new process; `propagate` as in
    /// [`Self::start_with`].
    pub(crate) fn deps(&mut self, options: Options, propagate: Option<bool>) -> Deps {
        self.tasks = Tasks::new(Shutdown::new());
        self.followed.lock().clear();
        let informers = Informers::new(&self.tasks);
        let control: Arc<dyn Api> = self.control.clone();
        let apis = ["m1", "m2"].iter().zip(&self.members);
        let members = FakeMembers {
            apis: apis
                .map(|(name, api)| ((*name).to_owned(), api.clone() as Arc<dyn Api>))
                .collect(),
            informers: Informers::new(&self.tasks),
            handlers: Arc::default(),
            heard: Arc::clone(&self.followed),
        };
        let informer = informers.get(&control, &Select::all(&CLUSTERS));
        let rules = Rules::new(options.gates, Plugins::default(), false);
        let clusters = scheduler::Clusters::under(informer, rules);
        let clock = Arc::new(SystemClock);
        let recorder = if self.tells_events {
            Recorder::new(Arc::clone(&control), "test", clock.clone(), &self.tasks)
        } else {
            Recorder::disabled()
        };
        let host = propagate
            .map(|propagate| HostWorkloads::follow(&control, &informers, propagate))
            .unwrap_or_default();
        Deps {
            interpreter: interpreter::Interpreter::default(),
            control,
            members: Arc::new(members),
            clusters,
            recorder,
            clock,
            informers,
            host,
            options,
        }
    }

    pub(crate) async fn started(mut self) -> Self {
        self.start().await;
        self
    }

    async fn started_with(mut self, gates: &[Gate]) -> Self {
        let all = FeatureGates::default();
        let options = Options {
            gates: gates.iter().fold(all, |all, gate| all.with(*gate, true)),
            ..Options::default()
        };
        self.start_with(options, None).await;
        self
    }

    pub(crate) fn binding(&self, name: &str) -> Option<Value> {
        self.control.object(&BINDINGS, "n", name)
    }

    /// The messages of the events with a reason.
    fn told(&self, reason: &str) -> Vec<String> {
        let all = self.control.objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        some.map(|event| event["message"].as_str().unwrap().to_owned())
            .collect()
    }

    fn follows(&self, cluster: &str, resource: &Gvr) -> bool {
        let followed = self.followed.lock();
        followed.contains(&(cluster.to_owned(), resource.clone()))
    }

    pub(crate) fn in_member(&self, at: usize, name: &str) -> Option<Value> {
        self.members[at].object(&DEPLOYMENTS, "n", name)
    }

    pub(crate) fn work(&self, cluster: &str, name: &str) -> Option<Value> {
        let name = openapi::karmada::names::work("Deployment", name, "n");
        self.control
            .object(&WORKS, &format!("karmada-es-{cluster}"), &name)
    }

    pub(crate) fn change(&self, resource: &Gvr, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.control.object(resource, "n", name).unwrap();
        change(&mut object);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
        self.control.seed(resource, object);
    }

    pub(crate) async fn applied(&self, name: &str) {
        until("both applied", || {
            ["m1", "m2"].iter().all(|c| {
                self.work(c, name).is_some_and(|w| {
                    applied(&w) == Some("True")
                        && w["metadata"]["generation"]
                            == condition(&w, "Applied")["observedGeneration"]
                })
            })
        })
        .await;
    }
}

pub(crate) fn condition<'a>(work: &'a Value, kind: &str) -> &'a Value {
    let all = work["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .unwrap_or(&Value::Null)
}

fn applied(work: &Value) -> Option<&str> {
    condition(work, "Applied")["status"].as_str()
}

pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not reached: {what}");
}
