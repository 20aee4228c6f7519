//! Test support: a control plane and two members whose API servers are in memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, ApiResource, Informer, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup,
};
use client_fake::FakeApi;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter};
use karmada_api::FeatureGates;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys;
use machinery::Gvr;
use machinery::time::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use controller_context::PropagationContext;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};

pub static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
pub static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
pub static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
pub static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");

/// Members with fake API servers.
struct FakeMembers {
    apis: Vec<(String, Arc<dyn Api>)>,
    informers: InformerFactory,
    handlers: Arc<Mutex<Vec<MemberObjectCallback>>>,
    started_informers: StartedMemberInformers,
}

fn managed_selector(resource: &Gvr) -> ListWatchSelector {
    ListWatchSelector::all(resource).labels("karmada.io/managed=true")
}

impl MemberAccess for FakeMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let entry = self.apis.iter().find(|(name, _)| name == cluster);
        entry
            .map(|(_, api)| Arc::clone(api))
            .ok_or_else(|| "no connection".to_owned())
    }

    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        let informer = self
            .informers
            .get(&self.api(cluster)?, &managed_selector(resource));
        let key = (cluster.to_owned(), resource.clone());
        let first = {
            let mut informed = self.started_informers.lock();
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
        let informed = self.started_informers.lock();
        let followed = informed.contains(&(cluster.to_owned(), resource.clone()));
        drop(informed);
        followed.then(|| self.managed_informer(cluster, resource).ok())?
    }

    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr) {
        let key = (cluster.to_owned(), resource.clone());
        self.started_informers
            .lock()
            .retain(|informed| *informed != key);
        if let Ok(api) = self.api(cluster) {
            self.informers
                .begin_stop_informer(&api, &managed_selector(resource));
        }
    }

    fn on_managed_object(&self, handler: MemberObjectCallback) {
        self.handlers.lock().push(handler);
    }

    fn on_connection_change(&self, handler: MemberConnectionCallback) {
        for (name, _) in &self.apis {
            handler(name, true);
        }
    }
}

/// A control plane with two clusters, `m1` and `m2`, and their members.
pub struct FederationFixture {
    pub control_plane: Arc<FakeApi>,
    pub members: Vec<Arc<FakeApi>>,
    pub tasks: TaskGroup,
    pub records_events: bool,
    informed: StartedMemberInformers,
}

/// The clusters and resources whose managed objects have an informer.
type StartedMemberInformers = Arc<Mutex<Vec<(String, Gvr)>>>;

pub fn serve(api: &FakeApi, resource: &Gvr, kind: &str, namespaced: bool) {
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

pub fn cluster(name: &str) -> Value {
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

pub fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "n"},
        "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}}})
}

pub fn policy(spec: Value) -> Value {
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

impl FederationFixture {
    pub fn new() -> Self {
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

    /// The context of the controllers of a new process. `propagate`: `None` if the control plane
    /// cannot run workloads, otherwise the value of [`HostWorkloadFilter::watch`].
    pub fn context(
        &mut self,
        feature_gates: FeatureGates,
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
            started_informers: Arc::clone(&self.informed),
        };
        let clock = Arc::new(SystemClock);
        let recorder = if self.records_events {
            EventRecorder::new(Arc::clone(&control), "test", clock.clone(), &self.tasks)
        } else {
            EventRecorder::disabled()
        };
        let host = propagate
            .map(|propagate| HostWorkloadFilter::watch(&control, &informers, propagate))
            .unwrap_or_default();
        PropagationContext {
            members: Arc::new(members),
            clusters: ClusterLister::watch(&control, &informers),
            interpreter: interpreter::ResourceInterpreter::default(),
            host,
            feature_gates,
            controller: ControllerContext {
                control_plane: control,
                informers,
                clock,
                recorder,
                tasks: self.tasks.clone(),
            },
        }
    }

    pub fn has_informer(&self, cluster: &str, resource: &Gvr) -> bool {
        let followed = self.informed.lock();
        followed.contains(&(cluster.to_owned(), resource.clone()))
    }

    pub fn edit(&self, resource: &Gvr, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.control_plane.get_object(resource, "n", name).unwrap();
        change(&mut object);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
        self.control_plane.seed(resource, object);
    }
}

impl Default for FederationFixture {
    fn default() -> Self {
        Self::new()
    }
}

pub async fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not reached: {what}");
}
