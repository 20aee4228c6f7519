//! Tests of both controllers over API servers in memory: a control plane and two members.

mod interrupted_reports;
mod staged_templates;
mod write_intervals;

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use controller_context::PropagationContext;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter};
use karmada_api::FeatureGates;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS, WORKS};
use karmada_api::well_known_keys;
use machinery::time::SystemClock;
use machinery::{Gvr, Status};
use members::{MemberClusterManager, MemberEndpoint};
use serde_json::{Value, json};

use crate::start::start;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");

struct StatusFixture {
    control: Arc<FakeApi>,
    members: [Arc<FakeApi>; 2],
    tasks: TaskGroup,
}

impl StatusFixture {
    /// A control plane with a Deployment, its binding and a Work in each member.
    fn new() -> Self {
        let control = FakeApi::new();
        for name in ["m0", "m1"] {
            control.seed(&CLUSTERS, cluster(name, "True"));
            control.seed(&SECRETS, secret(name));
            control.seed(&WORKS, work(name, "True"));
        }
        control.seed(&DEPLOYMENTS, deployment(json!({})));
        control.seed(&BINDINGS, binding());
        Self {
            control,
            members: [FakeApi::new(), FakeApi::new()],
            tasks: TaskGroup::new(ShutdownToken::new()),
        }
    }

    /// Starts the controllers; a test may call it repeatedly.
    fn start(&self) {
        let control: Arc<dyn Api> = self.control.clone();
        let informers = InformerFactory::new(&self.tasks);
        let apis = self.members.clone();
        let connect = move |to: &MemberEndpoint, _: &TaskGroup| {
            let at = usize::from(to.cluster == "m1");
            Ok(Arc::clone(&apis[at]) as Arc<dyn Api>)
        };
        let clock = Arc::new(SystemClock);
        let connector = Arc::new(connect);
        let members =
            MemberClusterManager::start(Arc::clone(&control), &informers, connector, &self.tasks);
        start(&PropagationContext {
            members: Arc::new(members),
            clusters: ClusterLister::watch(&control, &informers),
            interpreter: interpreter::ResourceInterpreter::default(),
            host: HostWorkloadFilter::watch(&control, &informers, true),
            feature_gates: FeatureGates::default(),
            controller: ControllerContext {
                recorder: EventRecorder::new(
                    Arc::clone(&control),
                    "status",
                    clock.clone(),
                    &self.tasks,
                ),
                control_plane: control,
                informers,
                clock,
                tasks: self.tasks.clone(),
            },
        });
    }

    async fn restart(&mut self) {
        self.tasks.stop().await;
        self.tasks = TaskGroup::new(ShutdownToken::new());
        self.start();
    }

    fn set_member_ready(&self, member: usize, ready: i64) {
        self.members[member].seed(&DEPLOYMENTS, member_object(member, ready));
    }

    async fn wait_until(&self, what: impl Fn(&FakeApi) -> bool) {
        for _ in 0..2000 {
            if what(&self.control) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let all = [&WORKS, &BINDINGS, &DEPLOYMENTS].map(|r| json!(self.control.list_objects(r)));
        panic!("not reached: {all:#?}");
    }

    fn ready(control: &FakeApi) -> i64 {
        let template = control.get_object(&DEPLOYMENTS, "n", "web").unwrap();
        template["status"]["readyReplicas"].as_i64().unwrap_or(0)
    }

    fn binding_of(control: &FakeApi) -> Value {
        control
            .get_object(&BINDINGS, "n", "web-deployment")
            .unwrap()
    }
}

fn cluster(name: &str, ready: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Push", "apiEndpoint": "https://x", "insecureSkipTLSVerification": true,
                 "secretRef": {"namespace": "karmada-cluster", "name": name}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "karmada-cluster", "name": name},
        "data": {"token": "dG9rZW4="}})
}

fn work(cluster: &str, applied: &str) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"namespace": format!("karmada-es-{cluster}"), "name": "web-1", "generation": 1,
                     "labels": {well_known_keys::BINDING_ID: "id"}},
        "spec": {"workload": {"manifests": [{"apiVersion": "apps/v1", "kind": "Deployment",
                                             "metadata": {"namespace": "n", "name": "web"}}]}},
        "status": {"conditions": [{"type": "Applied", "status": applied, "message": "no reason"}]}})
}

fn binding() -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": "n", "name": "web-deployment", "generation": 1, "labels": {well_known_keys::BINDING_ID: "id"}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "resourceVersion": "1"},
                 "clusters": [{"name": "m0", "replicas": 1}, {"name": "m1", "replicas": 1}]},
        "status": {"lastScheduledTime": "2026-01-01T00:00:00Z",
                   "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "m",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn deployment(status: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "n", "name": "web", "generation": 1},
        "spec": {"replicas": 2}, "status": status})
}

/// The object in a member cluster.
fn member_object(member: usize, ready: i64) -> Value {
    let mut copy = deployment(
        json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
        "readyReplicas": ready, "availableReplicas": ready}),
    );
    copy["spec"]["replicas"] = 1.into();
    copy["metadata"]["labels"] = json!({well_known_keys::MANAGED: "true"});
    copy["metadata"]["annotations"] = json!({"resourcetemplate.karmada.io/generation": "1",
        well_known_keys::WORK_NAMESPACE: format!("karmada-es-m{member}"), well_known_keys::WORK_NAME: "web-1"});
    copy
}

// proves: STA-path, STA-template, STA-event, STA-no-write, STA-derived-conditions
#[tokio::test]
async fn member_status_reaches_work_binding_and_template() {
    let mut plane = StatusFixture::new();
    plane.start();
    plane.set_member_ready(0, 0);
    plane.set_member_ready(1, 1);
    plane.wait_until(|c| StatusFixture::ready(c) == 1).await;
    plane.set_member_ready(0, 1);
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;

    let work = plane
        .control
        .get_object(&WORKS, "karmada-es-m0", "web-1")
        .unwrap();
    assert_eq!(
        work["status"]["manifestStatuses"],
        json!([{"health": "Healthy",
            "identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                           "resource": "", "namespace": "n", "name": "web"},
            "status": {"generation": 1, "resourceTemplateGeneration": 1, "observedGeneration": 1, "replicas": 1,
                       "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}}])
    );
    assert_eq!(
        condition_states(&work),
        [
            "Applied True",
            "Available True ObjectsHealthy",
            "Progressing False Completed",
            "Degraded False AsDesired"
        ]
    );
    plane
        .wait_until(|c| {
            StatusFixture::binding_of(c)["status"]["aggregatedStatus"][0]["health"] == "Healthy"
        })
        .await;
    let binding = StatusFixture::binding_of(&plane.control);
    let of = |at: usize, field: &str| binding["status"]["aggregatedStatus"][at][field].clone();
    assert_eq!(
        (of(0, "clusterName"), of(1, "clusterName")),
        (json!("m0"), json!("m1"))
    );
    assert_eq!(
        (of(0, "applied"), of(1, "health")),
        (json!(true), json!("Healthy"))
    );
    let conditions = binding["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!(
        (&conditions[0]["type"], &conditions[1]["reason"]),
        (&json!("Scheduled"), &json!("FullyAppliedSuccess"))
    );
    let template = plane.control.get_object(&DEPLOYMENTS, "n", "web").unwrap();
    let mut counters = template["status"].clone();
    let conditions = counters.as_object_mut().unwrap().remove("conditions");
    let reasons = ["/0/reason", "/1/reason"].map(|at| conditions.as_ref()?.pointer(at)?.as_str());
    let expected = ["MinimumReplicasAvailable", "NewReplicaSetAvailable"];
    assert_eq!(reasons, expected.map(Some));
    assert_eq!(
        counters,
        json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2})
    );
    for reason in [
        "ReflectStatusSucceed",
        "InterpretHealthSucceed",
        "AggregateStatusSucceed",
    ] {
        plane
            .wait_until(|c| {
                c.list_objects(&EVENTS)
                    .iter()
                    .any(|e| e["reason"] == reason)
            })
            .await;
    }

    // A restart checks everything and writes nothing.
    plane.tasks.stop().await;
    plane.control.clear_writes();
    plane.restart().await;
    plane.set_member_ready(1, 0);
    plane.wait_until(|c| StatusFixture::ready(c) == 1).await;
    let writes: Vec<_> = plane
        .control
        .writes()
        .into_iter()
        .filter(|w| w.resource != EVENTS)
        .collect();
    assert!(
        writes
            .iter()
            .all(|w| w.subresource == "status" && w.namespace != "karmada-es-m0"),
        "{writes:?}"
    );
    assert_eq!(writes.len(), 3, "{writes:?}");
    let work = plane.control.get_object(&WORKS, "karmada-es-m1", "web-1");
    assert_eq!(
        condition_states(&work.unwrap())[1..3],
        [
            "Available False ObjectsUnhealthy",
            "Progressing True ObjectsUnhealthy"
        ],
        "in the same write as the health"
    );
    plane.tasks.stop().await;
}

/// Type, status and reason of the conditions of a Work.
fn condition_states(work: &Value) -> Vec<String> {
    let conditions = work["status"]["conditions"].as_array().unwrap();
    let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
    let words = |c: &Value| ["type", "status", "reason"].map(|key| text(c, key));
    let states = conditions.iter().map(|c| words(c).join(" "));
    states.map(|state| state.trim_end().to_owned()).collect()
}

// proves: STA-starts, STA-unapplied
#[tokio::test]
async fn a_work_that_is_not_applied_and_a_cluster_that_is_not_ready_report_nothing() {
    let plane = StatusFixture::new();
    plane.control.seed(&WORKS, work("m0", "False"));
    plane.control.seed(&CLUSTERS, cluster("m1", "False"));
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    plane.start();
    plane
        .wait_until(|c| StatusFixture::binding_of(c)["status"]["aggregatedStatus"].is_array())
        .await;
    let status = StatusFixture::binding_of(&plane.control)["status"].clone();
    assert_eq!(
        status["aggregatedStatus"],
        json!([{"clusterName": "m0", "appliedMessage": "no reason", "health": "Unknown"},
               {"clusterName": "m1", "applied": true, "health": "Unknown"}])
    );
    assert_eq!(status["conditions"][1]["reason"], "FullyAppliedFailed");

    // Both problems are fixed.
    plane.control.seed(&CLUSTERS, cluster("m1", "True"));
    plane.wait_until(|c| StatusFixture::ready(c) == 1).await;
    plane.control.seed(&WORKS, work("m0", "True"));
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;
    plane
        .wait_until(|c| StatusFixture::binding_of(c)["status"]["conditions"][1]["status"] == "True")
        .await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_host_that_runs_workloads_owns_their_status() {
    let plane = StatusFixture::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    plane.control.seed(&NODES, node);
    plane.start();
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    plane
        .wait_until(|c| {
            let binding = StatusFixture::binding_of(c);
            let all = &binding["status"]["aggregatedStatus"];
            all[0]["health"] == "Healthy" && all[1]["health"] == "Healthy"
        })
        .await;
    plane.tasks.stop().await;
    let is_template_write = |w: &client_fake::RecordedWrite| w.resource == DEPLOYMENTS;
    assert!(!plane.control.writes().iter().any(is_template_write));
}

// proves: STA-race, STA-template-missing
#[tokio::test]
async fn conflicts_are_retried_and_a_missing_template_is_no_error() {
    let plane = StatusFixture::new();
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    let rejection = parking_lot::Mutex::new(std::collections::HashSet::new());
    plane.control.on_call(move |call| {
        let first = call.verb == "patch"
            && call.subresource == "status"
            && rejection
                .lock()
                .insert((call.resource.cloned(), call.namespace.to_owned()));
        first.then(|| Error::from(Status::conflict(&WORKS, call.name, "changed meanwhile")))
    });
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    plane.start();
    let healthy = |c: &FakeApi| {
        let all = StatusFixture::binding_of(c)["status"]["aggregatedStatus"].clone();
        all.as_array()
            .is_some_and(|all| all.iter().filter(|i| i["health"] == "Healthy").count() == 2)
    };
    plane.wait_until(healthy).await;
    plane.tasks.stop().await;
}

// proves: STA-work-gone, STA-fully-applied
#[tokio::test]
async fn removed_and_added_clusters_change_the_condition() {
    let plane = StatusFixture::new();
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    plane.start();
    let verdict =
        |c: &FakeApi| StatusFixture::binding_of(c)["status"]["conditions"][1]["status"].clone();
    plane
        .wait_until(|c| StatusFixture::ready(c) == 2 && verdict(c) == "True")
        .await;
    let mut wider = StatusFixture::binding_of(&plane.control);
    wider["metadata"]["generation"] = 2.into();
    wider["spec"]["clusters"] = json!([{"name": "m0"}, {"name": "m1"}, {"name": "m2"}]);
    plane.control.seed(&BINDINGS, wider);
    plane.wait_until(|c| verdict(c) == "False").await;
    let mut narrow = StatusFixture::binding_of(&plane.control);
    narrow["metadata"]["generation"] = 3.into();
    narrow["spec"]["clusters"] = json!([{"name": "m0"}]);
    plane.control.seed(&BINDINGS, narrow);
    plane.control.remove(&WORKS, "karmada-es-m1", "web-1");
    plane
        .wait_until(|c| StatusFixture::ready(c) == 1 && verdict(c) == "True")
        .await;
    plane.tasks.stop().await;
}

// proves: STA-renamed, STA-failure-event
#[tokio::test]
async fn a_work_without_the_template_has_an_event() {
    let plane = StatusFixture::new();
    let mut renamed = work("m0", "True");
    renamed["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "other".into();
    plane.control.seed(&WORKS, renamed);
    plane.start();
    plane
        .wait_until(|c| {
            let all = c.list_objects(&EVENTS);
            all.iter().any(|e| {
                e["reason"] == "AggregateStatusFailed" && e["message"] == "no such manifest exist"
            })
        })
        .await;
    plane.tasks.stop().await;
}

// proves: STA-wide
#[tokio::test]
async fn cluster_scoped_bindings_too() {
    let plane = StatusFixture::new();
    let mut work = work("m0", "True");
    work["metadata"]["labels"] = json!({well_known_keys::CLUSTER_BINDING_ID: "other"});
    work["metadata"]["name"] = "ns-1".into();
    work["spec"]["workload"]["manifests"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}]);
    plane.control.seed(&WORKS, work);
    let mut binding = binding();
    binding["kind"] = "ClusterResourceBinding".into();
    binding["metadata"] = json!({"name": "ns-namespace", "generation": 1, "labels": {well_known_keys::CLUSTER_BINDING_ID: "other"}});
    binding["spec"] = json!({"resource": {"apiVersion": "v1", "kind": "Namespace", "name": "ns"}, "clusters": [{"name": "m0"}]});
    plane.control.seed(&CLUSTER_BINDINGS, binding);
    plane.members[0].seed(&NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "ns", "labels": {well_known_keys::MANAGED: "true"},
                     "annotations": {well_known_keys::WORK_NAMESPACE: "karmada-es-m0", well_known_keys::WORK_NAME: "ns-1"}},
        "status": {"phase": "Active"}}));
    plane.start();
    plane
        .wait_until(|c| {
            let binding = c.get_object(&CLUSTER_BINDINGS, "", "ns-namespace").unwrap();
            binding["status"]["aggregatedStatus"]
                == json!([{"clusterName": "m0", "applied": true, "health": "Healthy", "status": {"phase": "Active"}}])
        })
        .await;
    plane.tasks.stop().await;
}
