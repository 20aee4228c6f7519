//! Tests propagation end to end over in-memory API servers: from a policy and a template to objects
//! in two members.

/// From bindings to their Works.
mod binding_works;
/// Which policy claims a template, and what its binding contains.
mod claims;
/// From a binding to the objects in members.
mod delivery;
/// Dependencies of templates.
mod dependencies;
/// Events and metrics of the detector.
mod detector_events;
/// Event handlers use indexes.
mod event_handlers;
/// Evicted copies and their replacements.
mod evictions;
/// Lazy policies.
mod lazy_policies;
/// Namespaces in every cluster.
mod namespaces;
/// Shares and usage of FederatedResourceQuotas.
mod quotas;
/// WorkloadRebalancers.
mod rebalancers;
/// Released claims and recreated templates.
mod released_claims;
/// From Works to the objects in members.
mod work_execution;

use std::sync::Arc;
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, ApiResource};
use flotilla_runtime::{
    EventRecorder, HostWorkloads, Informer, InformerFactory, ListWatchSelector, ShutdownToken,
    TaskGroup,
};
use machinery::Gvr;
use machinery::time::SystemClock;
use openapi::karmada::resources::{BINDINGS, CLUSTERS, WORKS};
use openapi::karmada::{FeatureGates, KarmadaFeature, well_known_keys};
use parking_lot::Mutex;
use scheduler::core::{SchedulerPluginSet, SchedulingRules};
use serde_json::{Value, json};

use crate::member_access::{MemberConnectionCallback, MemberObjectCallback};
use crate::{MemberAccess, Options, PropagationContext, start};

pub(crate) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub(crate) static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
pub(crate) static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");

/// Members with fake API servers.
struct FakeMembers {
    apis: Vec<(String, Arc<dyn Api>)>,
    informers: InformerFactory,
    handlers: Arc<Mutex<Vec<MemberObjectCallback>>>,
    informed: InformedResources,
}

fn managed_selector(resource: &Gvr) -> ListWatchSelector {
    ListWatchSelector::all(resource).labels("karmada.io/managed=true")
}

impl MemberAccess for FakeMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let found = self.apis.iter().find(|(name, _)| name == cluster);
        found
            .map(|(_, api)| Arc::clone(api))
            .ok_or_else(|| "no connection".to_owned())
    }

    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        let informer = self
            .informers
            .get(&self.api(cluster)?, &managed_selector(resource));
        let key = (cluster.to_owned(), resource.clone());
        let first = {
            let mut informed = self.informed.lock();
            let first = !informed.contains(&key);
            if first {
                informed.push(key.clone());
            }
            first
        };
        if first {
            let handlers = Arc::clone(&self.handlers);
            informer.add_event_handler(move |change| {
                for handler in handlers.lock().iter() {
                    handler(&key.0, &key.1, change);
                }
            });
        }
        Ok(informer)
    }

    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        let informed = self.informed.lock();
        let followed = informed.contains(&(cluster.to_owned(), resource.clone()));
        drop(informed);
        followed.then(|| self.managed_informer(cluster, resource).ok())?
    }

    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr) {
        let key = (cluster.to_owned(), resource.clone());
        self.informed.lock().retain(|informed| *informed != key);
        if let Ok(api) = self.api(cluster) {
            self.informers
                .begin_stop_informer(&api, &managed_selector(resource));
        }
    }

    fn on_managed_object(&self, handler: MemberObjectCallback) {
        self.handlers.lock().push(handler);
    }

    fn on_connect(&self, handler: MemberConnectionCallback) {
        for (name, _) in &self.apis {
            handler(name, true);
        }
    }
}

pub(crate) struct PropagationFixture {
    pub(crate) control_plane: Arc<FakeApi>,
    pub(crate) members: Vec<Arc<FakeApi>>,
    pub(crate) tasks: TaskGroup,
    records_events: bool,
    informed: InformedResources,
}

/// The clusters and resources whose managed objects have an informer.
type InformedResources = Arc<Mutex<Vec<(String, Gvr)>>>;

pub(crate) fn serve(api: &FakeApi, resource: &Gvr, kind: &str, namespaced: bool) {
    api.add_resource(ApiResource {
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
        "metadata": {"name": "p", "namespace": "n", "labels": {well_known_keys::POLICY_ID: "policy-id"},
                     "finalizers": [well_known_keys::POLICY_FINALIZER]},
        "spec": full})
}

impl PropagationFixture {
    pub(crate) fn new() -> Self {
        let control_plane = FakeApi::new();
        for (resource, kind, namespaced) in [
            (&DEPLOYMENTS, "Deployment", true),
            (&CONFIG_MAPS, "ConfigMap", true),
            (&SECRETS, "Secret", true),
            (&NAMESPACES, "Namespace", false),
            (&CLUSTER_ROLES, "ClusterRole", false),
        ] {
            serve(&control_plane, resource, kind, namespaced);
        }
        for name in ["m1", "m2"] {
            control_plane.seed(&CLUSTERS, cluster(name));
        }
        Self {
            control_plane,
            members: vec![FakeApi::new(), FakeApi::new()],
            tasks: TaskGroup::new(ShutdownToken::new()),
            records_events: false,
            informed: Arc::default(),
        }
    }

    /// Returns a control plane whose controllers write events.
    fn with_events() -> Self {
        let mut plane = Self::new();
        plane.records_events = true;
        plane
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(Options::default(), None).await;
    }

    /// `propagate`: `None` if the control plane cannot run workloads, otherwise the value of
    /// [`HostWorkloads::watch`].
    pub(crate) async fn start_with(&mut self, options: Options, propagate: Option<bool>) {
        let deps = self.context(options, propagate);
        start(deps, &self.tasks).await.unwrap();
    }

    /// The dependencies of the controllers of a new process; `propagate` as in
    /// [`Self::start_with`].
    pub(crate) fn context(
        &mut self,
        options: Options,
        propagate: Option<bool>,
    ) -> PropagationContext {
        self.tasks = TaskGroup::new(ShutdownToken::new());
        self.informed.lock().clear();
        let informers = InformerFactory::new(&self.tasks);
        let control: Arc<dyn Api> = self.control_plane.clone();
        let apis = ["m1", "m2"].iter().zip(&self.members);
        let members = FakeMembers {
            apis: apis
                .map(|(name, api)| ((*name).to_owned(), api.clone() as Arc<dyn Api>))
                .collect(),
            informers: InformerFactory::new(&self.tasks),
            handlers: Arc::default(),
            informed: Arc::clone(&self.informed),
        };
        let informer = informers.get(&control, &ListWatchSelector::all(&CLUSTERS));
        let rules =
            SchedulingRules::new(options.feature_gates, SchedulerPluginSet::default(), false);
        let clusters = scheduler::SchedulerClusterCache::with_rules(informer, rules);
        let clock = Arc::new(SystemClock);
        let recorder = if self.records_events {
            EventRecorder::new(Arc::clone(&control), "test", clock.clone(), &self.tasks)
        } else {
            EventRecorder::disabled()
        };
        let host = propagate
            .map(|propagate| HostWorkloads::watch(&control, &informers, propagate))
            .unwrap_or_default();
        PropagationContext {
            interpreter: interpreter::Interpreter::default(),
            control_plane: control,
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

    async fn started_with_gates(mut self, gates: &[KarmadaFeature]) -> Self {
        let all = FeatureGates::default();
        let options = Options {
            feature_gates: gates
                .iter()
                .fold(all, |all, gate| all.with_feature(*gate, true)),
            ..Options::default()
        };
        self.start_with(options, None).await;
        self
    }

    pub(crate) fn binding(&self, name: &str) -> Option<Value> {
        self.control_plane.get_object(&BINDINGS, "n", name)
    }

    /// The messages of the events with a reason.
    fn event_messages(&self, reason: &str) -> Vec<String> {
        let all = self.control_plane.list_objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        some.map(|event| event["message"].as_str().unwrap().to_owned())
            .collect()
    }

    fn has_informer(&self, cluster: &str, resource: &Gvr) -> bool {
        let followed = self.informed.lock();
        followed.contains(&(cluster.to_owned(), resource.clone()))
    }

    pub(crate) fn deployment_in_member(&self, at: usize, name: &str) -> Option<Value> {
        self.members[at].get_object(&DEPLOYMENTS, "n", name)
    }

    pub(crate) fn work(&self, cluster: &str, name: &str) -> Option<Value> {
        let name = openapi::karmada::names::work_name("Deployment", name, "n");
        self.control_plane
            .get_object(&WORKS, &format!("karmada-es-{cluster}"), &name)
    }

    pub(crate) fn edit(&self, resource: &Gvr, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.control_plane.get_object(resource, "n", name).unwrap();
        change(&mut object);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
        self.control_plane.seed(resource, object);
    }

    pub(crate) async fn wait_until_applied(&self, name: &str) {
        wait_until("both applied", || {
            ["m1", "m2"].iter().all(|c| {
                self.work(c, name).is_some_and(|w| {
                    applied_status(&w) == Some("True")
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

fn applied_status(work: &Value) -> Option<&str> {
    condition(work, "Applied")["status"].as_str()
}

pub(crate) async fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not reached: {what}");
}
