//! Tests of the controller with a control plane and two members that are fake APIs.

mod calculator;
mod calculator_case;
mod condition;
mod limits;
mod scaling_case;
mod scaling_properties;
mod target_scale;

use std::sync::Arc;
use std::time::Duration;

use client::{Api, ApiResource, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::EventRecorder;
use karmada_api::resources::{BINDINGS, CLUSTERS, FEDERATED_HPAS};
use karmada_api::well_known_keys::POLICY_ID;
use machinery::Gvr;
use machinery::time::FakeClock;
use serde_json::{Value, json};

use crate::fixture::{FakeMembers, context, options, pass, wait_until};
use crate::{DEPLOYMENTS, start};

pub(super) static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
pub(super) static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static POD_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "pods");
const NOW: &str = "2026-01-01T12:00:00Z";
const LONG_AGO: &str = "2026-01-01T11:00:00Z";
pub(super) const PERIOD: Duration = Duration::from_secs(15);

pub(super) struct HpaFixture {
    pub(super) control: Arc<FakeApi>,
    pub(super) members: Vec<Arc<FakeApi>>,
    clock: Arc<FakeClock>,
    informers: InformerFactory,
    _tasks: TaskGroup,
}

impl HpaFixture {
    /// A Deployment with `replicas` in the template and in both members together.
    pub(super) async fn start(replicas: &[i64]) -> Self {
        let control = FakeApi::new();
        serve_deployments(&control);
        let total: i64 = replicas.iter().sum();
        control.seed(&DEPLOYMENTS, deployment(total));
        let names = ["m1", "m2"];
        let targets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        control.seed(
            &BINDINGS,
            json!({"apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding", "metadata": {"name": "web-deployment", "namespace": "n"},
            "spec": {"clusters": targets, "resource": {"apiVersion": "apps/v1",
                "kind": "Deployment", "namespace": "n", "name": "web"}}}),
        );
        let mut members = Vec::new();
        for (name, replicas) in names.iter().zip(replicas) {
            control.seed(
                &CLUSTERS,
                json!({"apiVersion": "cluster.karmada.io/v1alpha1",
                "kind": "Cluster", "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            );
            let member = FakeApi::new();
            serve_deployments(&member);
            member.seed(&DEPLOYMENTS, deployment(*replicas));
            for i in 0..*replicas {
                member.seed(&PODS, pod(i));
            }
            members.push(member);
        }
        let clock = Arc::new(FakeClock::new(NOW.parse().unwrap()));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let control_plane: Arc<dyn Api> = control.clone();
        let access = names.iter().copied().zip(members.iter().cloned());
        let mut context = context(&control_plane, &tasks);
        let informers = context.informers.clone();
        let mut options = options(&context);
        options.members = Arc::new(FakeMembers {
            apis: access.collect(),
            informers: informers.clone(),
        });
        context.clock = clock.clone();
        context.recorder = EventRecorder::new(control_plane, "manager", clock.clone(), &tasks);
        start(&context, &options).await;
        Self {
            control,
            members,
            clock,
            informers,
            _tasks: tasks,
        }
    }

    /// Starts the informers of the Deployments in both members.
    pub(super) async fn watch_targets(&self) {
        let all = ListWatchSelector::all(&DEPLOYMENTS);
        for member in &self.members {
            let member: Arc<dyn Api> = member.clone();
            let informer = self.informers.get(&member, &all);
            informer.wait_for_cache_sync().await;
        }
    }

    /// Sets the CPU of all pods of a member.
    pub(super) fn use_cpu(&self, member: usize, cpu: &str) {
        let member = &self.members[member];
        for pod in member.list_objects(&PODS) {
            member.seed(
                &POD_METRICS,
                json!({"apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "PodMetrics", "metadata": {"name": pod["metadata"]["name"],
                    "namespace": "n", "labels": {"app": "web"}}, "timestamp": NOW, "window": "30s",
                "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "1Mi"}}]}),
            );
        }
    }

    pub(super) fn autoscale(&self, name: &str, max: i64, metrics: Value) {
        self.autoscale_target(name, "web", max, metrics);
    }

    pub(super) fn autoscale_target(&self, name: &str, target: &str, max: i64, metrics: Value) {
        self.control.seed(
            &FEDERATED_HPAS,
            json!({"apiVersion": "autoscaling.karmada.io/v1alpha1",
            "kind": "FederatedHPA", "metadata": {"name": name, "namespace": "n", "uid": name,
                "generation": 1},
            "spec": {"minReplicas": 1, "maxReplicas": max, "metrics": metrics, "scaleTargetRef":
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}}),
        );
    }

    pub(super) fn status(&self, name: &str) -> Value {
        let object = self.control.get_object(&FEDERATED_HPAS, "n", name);
        object.unwrap()["status"].clone()
    }

    pub(super) fn condition(&self, kind: &str) -> Value {
        let status = self.status("h");
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let entry = conditions
            .into_iter()
            .find(|condition| condition["type"] == kind);
        entry.unwrap_or_default()
    }

    pub(super) fn replicas(&self) -> i64 {
        let template = self.control.get_object(&DEPLOYMENTS, "n", "web").unwrap();
        template["spec"]["replicas"].as_i64().unwrap()
    }

    pub(super) async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    pub(super) async fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        wait_until(what, || self.status("h"), || done(self)).await;
    }
}

fn serve_deployments(api: &FakeApi) {
    api.add_resource(ApiResource {
        resource: DEPLOYMENTS.clone(),
        kind: "Deployment".into(),
        namespaced: true,
        verbs: vec!["get".into(), "patch".into()],
        subresources: vec!["scale".into()],
        categories: vec![],
        short_names: vec![],
    });
}

/// A Deployment that is its own scale.
pub(super) fn deployment(replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web",
        "namespace": "n", "labels": {POLICY_ID: "x"}}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}}},
        "status": {"replicas": replicas, "selector": "app=web"}})
}

pub(super) fn pod(i: i64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{i}"),
        "namespace": "n", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", "startTime": LONG_AGO, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]}})
}

pub(super) fn cpu_utilization(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

pub(super) fn pods_metric(average: &str) -> Value {
    json!({"type": "Pods", "pods": {"metric": {"name": "requests"},
        "target": {"type": "AverageValue", "averageValue": average}}})
}

// proves: FHP-utilization, FHP-status, FHP-events
#[tokio::test(start_paused = true)]
async fn a_template_follows_the_pods_of_all_members() {
    let fixture = HpaFixture::start(&[2, 1]).await;
    // Pods of both members have the same names; each counts.
    fixture.use_cpu(0, "150m");
    fixture.use_cpu(1, "90m");
    fixture.autoscale("h", 10, json!([cpu_utilization(65)]));
    fixture.wait_until("scaled", |f| f.replicas() == 6).await;
    fixture
        .wait_until("the status", |f| f.status("h")["desiredReplicas"] == 6)
        .await;
    let status = fixture.status("h");
    assert_eq!(status["currentReplicas"], 3);
    assert_eq!(status["lastScaleTime"], NOW);
    let current = json!({"averageUtilization": 130, "averageValue": "130m"});
    let expected = json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]);
    assert_eq!(status["currentMetrics"], expected);
    for (kind, value, reason) in [
        ("AbleToScale", "True", "SucceededRescale"),
        ("ScalingActive", "True", "ValidMetricFound"),
        ("ScalingLimited", "False", "DesiredWithinRange"),
    ] {
        let condition = fixture.condition(kind);
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!(value), &json!(reason))
        );
    }
    let rescaled = || {
        let mut events = fixture.control.list_objects(&EVENTS).into_iter();
        events.find(|event| event["reason"] == "SuccessfulRescale")
    };
    fixture
        .wait_until("the event", |_| rescaled().is_some())
        .await;
    let message =
        "New size: 6; reason: cpu resource utilization (percentage of request) above target";
    assert_eq!(rescaled().unwrap()["message"], message);
}

// proves: FHP-stabilization, FHP-period
#[tokio::test(start_paused = true)]
async fn replicas_are_removed_after_the_stabilization_window() {
    let fixture = HpaFixture::start(&[2, 2]).await;
    fixture.use_cpu(0, "10m");
    fixture.use_cpu(1, "10m");
    fixture.autoscale("h", 10, json!([cpu_utilization(50)]));
    fixture
        .wait_until("stabilized", |f| {
            f.condition("AbleToScale")["reason"] == "ScaleDownStabilized"
        })
        .await;
    for _ in 0..19 {
        fixture.pass(PERIOD).await;
    }
    assert_eq!(fixture.replicas(), 4);
    fixture.pass(PERIOD).await;
    fixture.pass(PERIOD).await;
    fixture
        .wait_until("scaled down", |f| f.replicas() == 1)
        .await;
}

// proves: FHP-bounds
#[tokio::test(start_paused = true)]
async fn bounds_need_no_metrics() {
    let fixture = HpaFixture::start(&[3, 3]).await;
    fixture.autoscale("h", 4, json!([cpu_utilization(50)]));
    fixture.wait_until("scaled", |f| f.replicas() == 4).await;
}

// proves: FHP-partial
#[tokio::test(start_paused = true)]
async fn a_metric_that_fails_keeps_replicas_from_being_removed() {
    let fixture = HpaFixture::start(&[2, 2]).await;
    fixture.use_cpu(0, "10m");
    fixture.use_cpu(1, "10m");
    let metrics = json!([cpu_utilization(50), pods_metric("1")]);
    fixture.autoscale("h", 10, metrics);
    fixture
        .wait_until("a reason", |f| {
            f.condition("ScalingActive")["reason"] == "FailedGetPodsMetric"
        })
        .await;
    for _ in 0..25 {
        fixture.pass(PERIOD).await;
    }
    assert_eq!(fixture.replicas(), 4);
    fixture.use_cpu(0, "90m");
    fixture.use_cpu(1, "90m");
    fixture.pass(PERIOD).await;
    fixture.wait_until("scaled up", |f| f.replicas() == 8).await;
}

// proves: FHP-pods-metric, FHP-object
#[tokio::test(start_paused = true)]
async fn custom_metrics_come_from_all_members() {
    let fixture = HpaFixture::start(&[1, 1]).await;
    let item = |object: Value, value: &str| {
        json!({"describedObject": object, "timestamp": NOW, "value": value,
            "metric": {"name": "requests"}})
    };
    let root = "/apis/custom.metrics.k8s.io";
    for (member, version) in [(0, "v1beta2"), (1, "v1beta1")] {
        let member = &fixture.members[member];
        let pods = json!({"items": [item(json!({"kind": "Pod", "name": "web-0"}), "30")]});
        let path = "namespaces/n/pods/*/requests?labelSelector=app%3Dweb&metricLabelSelector=";
        member.set_raw_body(&format!("{root}/{version}/{path}"), pods.to_string());
        let object = json!({"items": [item(json!({"kind": "Deployment", "name": "web"}), "50")]});
        let path = "namespaces/n/deployments.apps/web/load?metricLabelSelector=";
        member.set_raw_body(&format!("{root}/{version}/{path}"), object.to_string());
    }
    fixture.autoscale("h", 10, json!([pods_metric("20")]));
    fixture.wait_until("scaled", |f| f.replicas() == 3).await;
    let object = json!({"type": "Object", "object": {"metric": {"name": "load"},
        "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "target": {"type": "AverageValue", "averageValue": "20"}}});
    fixture.control.seed(&DEPLOYMENTS, deployment(2));
    fixture.autoscale("h", 10, json!([object]));
    let mut changed = fixture
        .control
        .get_object(&FEDERATED_HPAS, "n", "h")
        .unwrap();
    changed["metadata"]["generation"] = json!(2);
    fixture.control.seed(&FEDERATED_HPAS, changed);
    // 50 in each member, at 20 for each pod.
    fixture
        .wait_until("scaled by the object", |f| f.replicas() == 4)
        .await;
}

// proves: FHP-ambiguous
#[tokio::test(start_paused = true)]
async fn pods_belong_to_one_autoscaler() {
    let fixture = HpaFixture::start(&[1, 1]).await;
    fixture.use_cpu(0, "100m");
    fixture.use_cpu(1, "100m");
    fixture.autoscale("h", 2, json!([cpu_utilization(100)]));
    fixture.autoscale("i", 2, json!([cpu_utilization(100)]));
    fixture.pass(PERIOD).await;
    fixture
        .wait_until("ambiguous", |f| {
            f.condition("ScalingActive")["reason"] == "AmbiguousSelector"
        })
        .await;
    let message = "pods by selector app=web are controlled by multiple HPAs: [{h n} {i n}]";
    assert_eq!(fixture.condition("ScalingActive")["message"], message);
}

// proves: FHP-target-errors
#[tokio::test(start_paused = true)]
async fn targets_that_cannot_be_read_have_reasons() {
    for (change, reason) in [
        ("template", "FailedGetScaleTargetRef"),
        ("label", "FailedGetBinding"),
        ("binding", "FailedGetBinding"),
        ("cluster", "FailedGetTargetClusters"),
        ("members", "FailedGetScale"),
    ] {
        let fixture = HpaFixture::start(&[1, 1]).await;
        match change {
            "template" => fixture.control.remove(&DEPLOYMENTS, "n", "web"),
            "label" => {
                let mut template = deployment(2);
                template["metadata"]["labels"] = json!({"app": "web"});
                fixture.control.seed(&DEPLOYMENTS, template);
            }
            "binding" => fixture.control.remove(&BINDINGS, "n", "web-deployment"),
            "cluster" => fixture.control.remove(&CLUSTERS, "", "m2"),
            _ => {
                for member in &fixture.members {
                    member.remove(&DEPLOYMENTS, "n", "web");
                }
            }
        }
        fixture.pass(PERIOD).await;
        fixture.autoscale("h", 10, json!([cpu_utilization(50)]));
        fixture
            .wait_until(change, |f| f.condition("AbleToScale")["reason"] == reason)
            .await;
        assert_eq!(fixture.condition("AbleToScale")["status"], "False");
    }
}
