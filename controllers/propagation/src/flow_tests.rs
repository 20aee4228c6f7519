//! From a policy and a template to objects in two members, over servers in memory.

use std::sync::Arc;
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, ApiResource, Error};
use machinery::time::SystemClock;
use machinery::{Gvr, Status};
use openapi::karmada::labels;
use parking_lot::Mutex;
use runtime::{HostWorkloads, Informer, Informers, Recorder, Select, Shutdown, Tasks};
use serde_json::{Value, json};

use crate::access::{OnConnect, OnObject};
use crate::works::{BINDINGS, CLUSTER_BINDINGS, WORKS};
use crate::{Deps, MemberAccess, Options, Reach, start};

static CLUSTERS: Gvr = Gvr::constant("cluster.karmada.io", "v1alpha1", "clusters");
pub(crate) static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
pub(crate) static CONFIG_MAPS: Gvr = Gvr::constant("", "v1", "configmaps");
pub(crate) static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
static CLUSTER_ROLES: Gvr = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterroles");
pub(crate) static CLUSTER_POLICIES: Gvr = Gvr::constant(
    "policy.karmada.io",
    "v1alpha1",
    "clusterpropagationpolicies",
);
pub(crate) static POLICIES: Gvr =
    Gvr::constant("policy.karmada.io", "v1alpha1", "propagationpolicies");
static OVERRIDES: Gvr = Gvr::constant("policy.karmada.io", "v1alpha1", "overridepolicies");

/// Members in memory.
struct FakeMembers {
    apis: Vec<(String, Arc<dyn Api>)>,
    informers: Informers,
    handlers: Arc<Mutex<Vec<OnObject>>>,
    heard: Mutex<Vec<(String, Gvr)>>,
}

impl MemberAccess for FakeMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        let found = self.apis.iter().find(|(name, _)| name == cluster);
        found
            .map(|(_, api)| Arc::clone(api))
            .ok_or_else(|| "no connection".to_owned())
    }

    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        let select = Select::all(resource).labels("karmada.io/managed=true");
        let informer = self.informers.get(&self.api(cluster)?, &select);
        let key = (cluster.to_owned(), resource.clone());
        let first = {
            let mut heard = self.heard.lock();
            let first = !heard.contains(&key);
            if first {
                heard.push(key.clone());
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
}

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
        }
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(Options::default(), None).await;
    }

    /// `propagate`: the control plane may run workloads, and what then becomes of them.
    pub(crate) async fn start_with(&mut self, options: Options, propagate: Option<bool>) {
        self.tasks = Tasks::new(Shutdown::new());
        let informers = Informers::new(&self.tasks);
        let control: Arc<dyn Api> = self.control.clone();
        let apis = ["m1", "m2"].iter().zip(&self.members);
        let members = FakeMembers {
            apis: apis
                .map(|(name, api)| ((*name).to_owned(), api.clone() as Arc<dyn Api>))
                .collect(),
            informers: Informers::new(&self.tasks),
            handlers: Arc::default(),
            heard: Mutex::default(),
        };
        let clusters = scheduler::Clusters::new(informers.get(&control, &Select::all(&CLUSTERS)));
        let host = propagate
            .map(|propagate| HostWorkloads::follow(&control, &informers, propagate))
            .unwrap_or_default();
        let deps = Deps {
            control,
            members: Arc::new(members),
            clusters,
            recorder: Recorder::disabled(),
            clock: Arc::new(SystemClock),
            informers,
            host,
            options,
        };
        start(deps, &self.tasks).await.unwrap();
    }

    pub(crate) async fn started(mut self) -> Self {
        self.start().await;
        self
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

#[tokio::test]
async fn a_template_reaches_its_clusters() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.applied("web").await;
    let binding = plane
        .control
        .object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        binding["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}]),
        "placed as it was made"
    );
    assert!(binding["metadata"]["annotations"][labels::APPLIED_PLACEMENT].is_string());
    for at in 0..2 {
        let object = plane.in_member(at, "web").unwrap();
        assert_eq!(object["metadata"]["labels"][labels::MANAGED], "true");
        assert_eq!(object["metadata"]["labels"][labels::POLICY_ID], "policy-id");
        assert_eq!(
            object["metadata"]["annotations"][labels::WORK_NAMESPACE],
            format!("karmada-es-m{}", at + 1)
        );
        assert_eq!(plane.members[at].writes().len(), 1, "one write per member");
    }
    let writes = plane.control.writes();
    let count = |verb: &str, resource: &Gvr| {
        let of = writes
            .iter()
            .filter(|w| w.verb == verb && w.resource == *resource);
        of.count()
    };
    assert_eq!(count("patch", &DEPLOYMENTS), 1, "the claim");
    assert_eq!(count("create", &BINDINGS), 1);
    assert_eq!(count("create", &WORKS), 2);
    assert_eq!(count("patch", &WORKS), 2, "both conditions at once");
    assert_eq!(writes.len(), 6, "{writes:?}");
    plane.tasks.stop().await;
}

#[tokio::test]
async fn changes_follow_and_drift_is_repaired() {
    let plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.applied("web").await;
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into();
        d["spec"]["replicas"] = 2.into();
    });
    let like = |at: usize, image: &str, replicas: i64| {
        plane.in_member(at, "web").is_some_and(|d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] == image
                && d["spec"]["replicas"] == replicas
        })
    };
    until("the change", || {
        like(0, "nginx:2", 2) && like(1, "nginx:2", 2)
    })
    .await;
    plane.applied("web").await;
    let updates = |api: &FakeApi| api.writes().iter().filter(|w| w.verb == "update").count();
    assert_eq!(
        updates(&plane.members[0]),
        1,
        "image and replicas in one step"
    );
    assert_eq!(updates(&plane.control), 3, "the binding and two works");
    let mut drifted = plane.in_member(0, "web").unwrap();
    drifted["spec"]["replicas"] = 9.into();
    drifted["metadata"]["generation"] = 77.into();
    plane.members[0].seed(&DEPLOYMENTS, drifted);
    until("the repair", || like(0, "nginx:2", 2)).await;
    plane.members[1].remove(&DEPLOYMENTS, "n", "web");
    until("the object again", || like(1, "nginx:2", 2)).await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    for name in ["a", "b"] {
        plane.control.seed(&DEPLOYMENTS, deployment(name));
    }
    plane.control.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {}}),
    );
    plane.start().await;
    plane.applied("a").await;
    plane.applied("b").await;
    until("the namespace", || {
        plane.members[1].object(&NAMESPACES, "", "n").is_some()
    })
    .await;
    let all_applied = || {
        let works = plane.control.objects(&WORKS);
        works.len() == 6 && works.iter().all(|w| applied(w) == Some("True"))
    };
    until("all works", all_applied).await;
    plane.tasks.stop().await;
    // What the way back would have written meanwhile.
    for name in ["a", "b"] {
        let mut template = plane.control.object(&DEPLOYMENTS, "n", name).unwrap();
        template["status"] = json!({"replicas": 8});
        plane.control.seed(&DEPLOYMENTS, template);
        let mut object = plane.in_member(0, name).unwrap();
        object["status"] = json!({"replicas": 4});
        object["spec"]["paused"] = json!(false);
        plane.members[0].seed(&DEPLOYMENTS, object);
    }
    plane.control.clear_writes();
    plane.members.iter().for_each(|m| m.clear_writes());
    plane.start().await;
    // Something new shows that the rest has been looked at.
    plane.control.seed(&DEPLOYMENTS, deployment("z"));
    plane.applied("z").await;
    for api in [&plane.control, &plane.members[0], &plane.members[1]] {
        let own = |name: &str| name.contains('z') || name.is_empty();
        let others: Vec<_> = api.writes().into_iter().filter(|w| !own(&w.name)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
    assert_eq!(plane.members[0].writes().len(), 1);
    plane.tasks.stop().await;
}

#[tokio::test]
async fn what_is_deleted_goes_everywhere() {
    let plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.applied("web").await;
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    // The garbage collector's part.
    let at = client::At::one(&BINDINGS, "n", "web-deployment");
    plane.control.delete(at, &Default::default()).await.unwrap();
    until("all gone", || {
        plane.control.objects(&BINDINGS).is_empty()
            && plane.control.objects(&WORKS).is_empty()
            && plane
                .members
                .iter()
                .all(|m| m.objects(&DEPLOYMENTS).is_empty())
    })
    .await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_policy_lets_go_when_it_is_deleted() {
    let plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.applied("web").await;
    let at = client::At::one(&POLICIES, "n", "p");
    plane.control.delete(at, &Default::default()).await.unwrap();
    until("policy gone", || {
        plane.control.objects(&POLICIES).is_empty()
    })
    .await;
    let template = plane.control.object(&DEPLOYMENTS, "n", "web").unwrap();
    assert_eq!(template["metadata"]["labels"].get(labels::POLICY_ID), None);
    let binding = plane
        .control
        .object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(binding["metadata"]["labels"].get(labels::POLICY_ID), None);
    assert_eq!(
        binding["spec"]["clusters"].as_array().unwrap().len(),
        2,
        "what runs, runs on"
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_template_waits_for_its_policy() {
    let plane = Plane::new();
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control
        .seed(&POLICIES, policy(json!({"dependentOverrides": ["o"]})));
    plane.control.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": [
            {"targetCluster": {"clusterNames": ["m2"]}, "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": "reg.io"}]}}]}}),
    );
    plane.applied("web").await;
    let image = |at: usize| {
        let object = plane.in_member(at, "web").unwrap();
        object["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(
        (image(0), image(1)),
        (json!("nginx:1"), json!("reg.io/nginx:1"))
    );
    let work = plane.work("m2", "web").unwrap();
    assert_eq!(
        work["metadata"]["annotations"][labels::APPLIED_OVERRIDES],
        r#"[{"policyName":"o","overriders":{"imageOverrider":[{"component":"Registry","operator":"replace","value":"reg.io"}]}}]"#
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_lazy_policy_waits_for_the_template_to_change() {
    let plane = Plane::new();
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control
        .seed(&POLICIES, policy(json!({"activationPreference": "Lazy"})));
    let claimed = || {
        let template = plane.control.object(&DEPLOYMENTS, "n", "web").unwrap();
        template["metadata"]["labels"][labels::POLICY_ID] == "policy-id"
    };
    until("the claim", claimed).await;
    assert!(plane.control.objects(&BINDINGS).is_empty());
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    plane.applied("web").await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_suspended_work_says_so_and_goes_on_when_released() {
    let plane = Plane::new();
    let suspended = json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["m1"]}}});
    plane.control.seed(&POLICIES, policy(suspended));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    until("m2", || plane.in_member(1, "web").is_some()).await;
    until("m1 says so", || {
        plane
            .work("m1", "web")
            .is_some_and(|w| condition(&w, "Dispatching")["reason"] == "SuspendDispatching")
    })
    .await;
    assert_eq!(plane.in_member(0, "web"), None);
    plane.change(&POLICIES, "p", |p| {
        drop(p["spec"].as_object_mut().unwrap().remove("suspension"))
    });
    plane.applied("web").await;
    assert!(plane.in_member(0, "web").is_some());
    plane.tasks.stop().await;
}

#[tokio::test]
async fn trouble_in_one_cluster_is_told_and_does_not_delay_the_other() {
    let plane = Plane::new();
    plane.members[0].on_call(|call| {
        let refused = call.verb == "create" && call.name.is_empty();
        refused.then(|| Error::from(Status::internal("no room")))
    });
    let mut foreign = deployment("taken");
    foreign["spec"]["replicas"] = 1.into();
    plane.members[1].seed(&DEPLOYMENTS, foreign);
    plane.control.seed(&POLICIES, policy(json!({})));
    for name in ["web", "taken"] {
        plane.control.seed(&DEPLOYMENTS, deployment(name));
    }
    let plane = plane.started().await;
    until("m2 applied", || {
        plane
            .work("m2", "web")
            .is_some_and(|w| applied(&w) == Some("True"))
    })
    .await;
    let says = |cluster: &str, name: &str, text: &str| {
        plane.work(cluster, name).is_some_and(|w| {
            let applied = condition(&w, "Applied");
            applied["status"] == "False" && applied["message"].as_str().unwrap().contains(text)
        })
    };
    until("m1 says why", || says("m1", "web", "no room")).await;
    until("a foreign object", || {
        says("m2", "taken", "already exists in the cluster m2 and the work.karmada.io/conflict-resolution strategy value is empty")
    })
    .await;
    assert_eq!(plane.in_member(1, "taken").unwrap()["spec"]["replicas"], 1);
    plane.change(&DEPLOYMENTS, "taken", |d| {
        d["metadata"]["annotations"][labels::CONFLICT_RESOLUTION] = "overwrite".into();
    });
    until("adopted", || {
        plane.in_member(1, "taken").unwrap()["spec"]["replicas"] == 4
    })
    .await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn what_is_preserved_stays_without_marks() {
    let plane = Plane::new();
    plane.control.seed(
        &POLICIES,
        policy(json!({"preserveResourcesOnDeletion": true})),
    );
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.applied("web").await;
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    let at = client::At::one(&BINDINGS, "n", "web-deployment");
    plane.control.delete(at, &Default::default()).await.unwrap();
    until("works gone", || plane.control.objects(&WORKS).is_empty()).await;
    for at in 0..2 {
        let object = plane.in_member(at, "web").unwrap();
        let metadata = &object["metadata"];
        let left = (metadata["labels"].clone(), metadata["annotations"].clone());
        let expected = json!({labels::CONFLICT_RESOLUTION: "abort"});
        assert_eq!(left, (json!({}), expected), "as Karmada leaves it");
        assert_eq!(object["spec"]["replicas"], 4);
    }
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_that_is_not_ready_waits_and_then_follows() {
    let plane = Plane::new();
    let mut late = cluster("m1");
    late["status"]["conditions"][0]["status"] = "False".into();
    plane.control.seed(&CLUSTERS, late);
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    until("the work waits for m1", || {
        plane.work("m1", "web").is_some_and(|w| {
            condition(&w, "Dispatching")["status"] == "True" && condition(&w, "Applied").is_null()
        })
    })
    .await;
    assert_eq!(plane.in_member(0, "web"), None);
    plane.control.seed(&CLUSTERS, cluster("m1"));
    plane.applied("web").await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_policy_takes_what_no_policy_of_the_namespace_wants() {
    let plane = Plane::new();
    let selector = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let mut cluster_policy = policy(json!({"resourceSelectors": [
        selector("rbac.authorization.k8s.io/v1", "ClusterRole"),
        selector("v1", "ConfigMap"),
        selector("apps/v1", "Deployment"),
    ]}));
    cluster_policy["kind"] = "ClusterPropagationPolicy".into();
    cluster_policy["metadata"] =
        json!({"name": "c", "labels": {labels::CLUSTER_POLICY_ID: "c-id"}});
    plane.control.seed(&CLUSTER_POLICIES, cluster_policy);
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "b"}});
    plane.control.seed(&CONFIG_MAPS, config);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control.seed(&CLUSTER_ROLES, role);
    let plane = plane.started().await;
    until("all in both members", || {
        plane.members.iter().all(|m| {
            m.object(&CONFIG_MAPS, "n", "c").is_some()
                && m.object(&CLUSTER_ROLES, "", "r").is_some()
                && m.object(&DEPLOYMENTS, "n", "web").is_some()
        })
    })
    .await;
    let role = plane
        .control
        .object(&CLUSTER_BINDINGS, "", "r-clusterrole")
        .unwrap();
    assert_eq!(
        role["metadata"]["labels"],
        json!({labels::CLUSTER_POLICY_ID: "c-id"})
    );
    assert_eq!(
        role["metadata"]["finalizers"],
        json!([labels::CLUSTER_BINDING_FINALIZER])
    );
    let config = plane.control.object(&BINDINGS, "n", "c-configmap").unwrap();
    assert_eq!(
        config["metadata"]["labels"],
        json!({labels::CLUSTER_POLICY_ID: "c-id"})
    );
    let web = plane
        .control
        .object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        web["metadata"]["labels"],
        json!({labels::POLICY_ID: "policy-id"})
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn an_agent_carries_out_the_works_of_its_cluster_only() {
    let mut plane = Plane::new();
    for cluster in ["m1", "m2"] {
        plane.control.seed(
            &WORKS,
            json!({"metadata": {"name": "w", "namespace": format!("karmada-es-{cluster}"), "finalizers": [labels::WORK_FINALIZER]},
                "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "c", "namespace": "n", "labels": {labels::MANAGED: "true"}}}]}}}),
        );
    }
    let options = Options {
        reach: Reach::Only("m2".into()),
        ..Options::default()
    };
    plane.start_with(options, None).await;
    let work = |space: &str| plane.control.object(&WORKS, space, "w").unwrap();
    until("m2", || applied(&work("karmada-es-m2")) == Some("True")).await;
    assert!(plane.members[1].object(&CONFIG_MAPS, "n", "c").is_some());
    assert_eq!(applied(&work("karmada-es-m1")), None);
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}
