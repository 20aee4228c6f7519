//! Tests of the scheduler with an API server in memory.

use std::time::Duration;

use client::{InformerFactory, ListWatchSelector, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::ControllerContext;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys;
use machinery::time::SystemClock;
use serde_json::{Value, json};

use super::*;
use crate::core::SchedulerPluginSet;

mod concurrent_bindings;
mod conditions_and_events;
mod responsibility;
mod retries;

struct SchedulerFixture {
    fake: Arc<FakeApi>,
    tasks: TaskGroup,
    decisions: DecisionExplanationCache,
    /// Informers stop when they are dropped.
    informers: InformerFactory,
}

impl SchedulerFixture {
    async fn start(clusters: &[&str], binding: Value) -> Self {
        let fake = FakeApi::new();
        for name in clusters {
            fake.seed(
                &CLUSTERS,
                crate::core::tests::cluster(name, 10, json!({}))
                    .value()
                    .unwrap(),
            );
        }
        fake.seed(&BINDINGS, binding);
        Self::with_gates(fake, FeatureGates::default())
    }

    fn with_gates(fake: Arc<FakeApi>, gates: FeatureGates) -> Self {
        let no_events = |_, _: &TaskGroup| EventRecorder::disabled();
        Self::with(fake, no_events, |options| options.gates = gates)
    }

    fn with(
        fake: Arc<FakeApi>,
        recorder: impl Fn(Arc<dyn Api>, &TaskGroup) -> EventRecorder,
        configure: impl FnOnce(&mut SchedulerOptions),
    ) -> Self {
        let api: Arc<dyn Api> = fake.clone();
        let tasks = TaskGroup::new(client::ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let clusters = informers.get(&api, &ListWatchSelector::all(&CLUSTERS));
        let mut options = SchedulerOptions::new(SchedulerClusterCache::new(clusters.clone()));
        configure(&mut options);
        let settings = SchedulingSettings::new(options.gates, SchedulerPluginSet::default(), false);
        options.clusters = SchedulerClusterCache::with_settings(clusters, settings);
        let decisions = options.decisions.clone();
        let context = ControllerContext {
            recorder: recorder(Arc::clone(&api), &tasks),
            control_plane: api,
            informers: informers.clone(),
            clock: Arc::new(SystemClock),
            tasks: tasks.clone(),
        };
        Scheduler::start(&context, options);
        Self {
            fake,
            tasks,
            decisions,
            informers,
        }
    }

    /// Waits until the binding satisfies `what`.
    async fn wait_for_binding(&self, what: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_named_binding("web-deployment", what).await
    }

    async fn wait_for_named_binding(&self, name: &str, what: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2000 {
            let binding = self.fake.get_object(&BINDINGS, "n", name).unwrap();
            if what(&binding) {
                return binding;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!(
            "not reached: {:?}",
            self.fake.get_object(&BINDINGS, "n", name)
        );
    }
}

fn binding(placement: Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "n", "generation": 1, "labels": {well_known_keys::POLICY_ID: "p"}},
        "spec": {"replicas": 4, "placement": placement,
                 "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "uid": "u"}},
    })
}

fn condition(binding: &Value) -> (&str, &str) {
    let c = &binding["status"]["conditions"][0];
    (
        c["status"].as_str().unwrap_or(""),
        c["reason"].as_str().unwrap_or(""),
    )
}

// proves: SCH-scheduled, SCH-one-patch
#[tokio::test]
async fn a_binding_is_scheduled_and_reported_once() {
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    let plane = SchedulerFixture::start(&["m1", "m2", "m3"], binding(placement.clone())).await;
    let done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert_eq!(
        done["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}])
    );
    assert_eq!(
        done["metadata"]["annotations"][well_known_keys::APPLIED_PLACEMENT],
        placement.to_string()
    );
    assert_eq!(
        done["status"]["schedulerObservedGeneration"],
        done["metadata"]["generation"]
    );
    let scheduled = &done["status"]["conditions"][0];
    assert_eq!(
        (
            &scheduled["type"],
            &scheduled["reason"],
            &scheduled["message"]
        ),
        (
            &json!("Scheduled"),
            &json!("Success"),
            &json!("Binding has been scheduled successfully.")
        )
    );
    assert!(done["status"]["lastScheduledTime"].is_string(), "{done}");
    assert_eq!(
        plane.fake.writes().len(),
        2,
        "one write of the result and one of the status"
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_result_in_another_order_is_the_same_result() {
    let plane = SchedulerFixture::start(&["m1", "m2"], binding(json!({}))).await;
    let mut done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    let writes = plane.fake.writes().len();
    done["metadata"]["generation"] = json!(9);
    let clusters = done["spec"]["clusters"].as_array_mut().unwrap();
    clusters.reverse();
    let reversed = clusters.clone();
    plane.fake.seed(&BINDINGS, done);
    let observed = |b: &Value| b["status"]["schedulerObservedGeneration"] == 9;
    let after = plane.wait_for_binding(observed).await;
    assert_eq!(after["spec"]["clusters"], json!(reversed));
    assert_eq!(plane.fake.writes().len(), writes + 1, "of the status alone");
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_that_starts_to_serve_the_kind_is_chosen() {
    let plane = SchedulerFixture::start(
        &["m1"],
        binding(json!({"clusterAffinity": {"clusterNames": ["m2"]}})),
    )
    .await;
    plane
        .wait_for_binding(|b| condition(b) == ("False", "NoClusterFit"))
        .await;
    let mut late = crate::core::tests::cluster("m2", 10, json!({}))
        .value()
        .unwrap();
    let enablements = std::mem::replace(&mut late["status"]["apiEnablements"], json!([]));
    plane.fake.seed(&CLUSTERS, late.clone());
    late["status"]["apiEnablements"] = enablements;
    plane.fake.seed(&CLUSTERS, late);
    let done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert_eq!(done["spec"]["clusters"][0]["name"], "m2");
    plane.tasks.stop().await;
}

#[tokio::test]
async fn clusters_that_serve_the_kind_later_are_chosen_too() {
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    let plane = SchedulerFixture::start(&["m1"], binding(placement)).await;
    let names = |b: &Value| {
        let all = b["spec"]["clusters"].as_array().into_iter().flatten();
        let names = all.filter_map(|c| c["name"].as_str().map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    let mut late = crate::core::tests::cluster("m2", 10, json!({}))
        .value()
        .unwrap();
    let enablements = std::mem::replace(&mut late["status"]["apiEnablements"], json!([]));
    plane.fake.seed(&CLUSTERS, late.clone());
    late["status"]["apiEnablements"] = enablements;
    plane.fake.seed(&CLUSTERS, late);
    plane.wait_for_binding(|b| names(b) == ["m1", "m2"]).await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn the_cluster_event_handler_visits_no_bindings() {
    let placement = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"zone": "a"}}}});
    let plane = SchedulerFixture::start(&["m1"], binding(placement)).await;
    plane
        .wait_for_binding(|b| condition(b) == ("False", "NoClusterFit"))
        .await;
    let mut labeled = plane.fake.get_object(&CLUSTERS, "", "m1").unwrap();
    labeled["metadata"]["labels"]["zone"] = "a".into();
    plane.fake.seed(&CLUSTERS, labeled);
    let done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert_eq!(done["spec"]["clusters"][0]["name"], "m1");
    let api: Arc<dyn Api> = plane.fake.clone();
    let bindings = plane
        .informers
        .get(&api, &ListWatchSelector::all(&BINDINGS));
    assert_eq!(bindings.full_scans_in_handlers(), 0);
    plane.tasks.stop().await;
}

// proves: SCH-claimed-only
#[tokio::test]
async fn a_binding_without_a_policy_is_ignored() {
    let mut foreign = binding(json!({}));
    foreign["metadata"]["labels"] = json!({});
    let plane = SchedulerFixture::start(&["m1"], foreign).await;
    let mut own = binding(json!({}));
    own["metadata"]["name"] = "other".into();
    plane.fake.seed(&BINDINGS, own);
    for _ in 0..2000 {
        if plane.fake.get_object(&BINDINGS, "n", "other").unwrap()["status"].is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(plane.fake.writes().iter().all(|w| w.name == "other"));
    plane.tasks.stop().await;
}

// proves: SCH-quota-exceeded, SCH-scheduler-error
#[tokio::test]
async fn a_rejected_result_is_reported_and_retried() {
    for (reason, message) in [
        ("QuotaExceeded", "QuotaExceeded"),
        ("Other", "SchedulerError"),
    ] {
        let fake = FakeApi::new();
        fake.seed(&BINDINGS, binding(json!({})));
        let member = crate::core::tests::cluster("m1", 10, json!({}));
        fake.seed(&CLUSTERS, member.value().unwrap());
        fake.on_call(move |call| {
            let result = call.verb == "patch" && call.subresource.is_empty();
            result.then(|| machinery::Status::failure(403, reason, "too much").into())
        });
        let plane = SchedulerFixture::with_gates(fake, FeatureGates::default());
        let actual = plane
            .wait_for_binding(|b| condition(b) == ("False", message))
            .await;
        assert_eq!(actual["status"]["conditions"][0]["message"], "too much");
        assert_eq!(actual["spec"].get("clusters"), None);
        plane.fake.on_call(|_| None);
        plane.wait_for_binding(|b| condition(b).0 == "True").await;
        plane.tasks.stop().await;
    }
}

#[tokio::test]
async fn a_reschedule_that_changes_nothing_is_done() {
    let mut triggered = binding(json!({}));
    triggered["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    triggered["spec"]["rescheduleTriggeredAt"] = "2026-01-01T00:00:01Z".into();
    triggered["metadata"]["annotations"] = json!({well_known_keys::APPLIED_PLACEMENT: "{}"});
    triggered["status"] = json!({"lastScheduledTime": "2026-01-01T00:00:00Z", "schedulerObservedGeneration": 1,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let plane = SchedulerFixture::start(&["m1"], triggered).await;
    let last = |b: &Value| {
        b["status"]["lastScheduledTime"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    plane
        .wait_for_binding(|b| *last(b) > *"2026-01-01T00:00:01Z")
        .await;
    let explanation = plane.decisions.get("n/web-deployment").unwrap();
    assert!(explanation.fresh && explanation.trace.clusters[0].replicas == Some(4));
    plane.tasks.stop().await;
}

// proves: SCH-decided-again
#[tokio::test]
async fn a_changed_cluster_causes_a_new_decision_and_schedule_time() {
    let long_ago = "2026-01-01T00:00:00Z";
    let mut placed = binding(json!({}));
    placed["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    placed["metadata"]["annotations"] = json!({well_known_keys::APPLIED_PLACEMENT: "{}"});
    placed["status"] = json!({"lastScheduledTime": long_ago, "schedulerObservedGeneration": 1,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success",
            "message": "Binding has been scheduled successfully.", "lastTransitionTime": long_ago}]});
    let plane = SchedulerFixture::start(&["m1"], placed.clone()).await;
    let mut other = binding(json!({}));
    other["metadata"]["name"] = "other".into();
    plane.fake.seed(&BINDINGS, other);
    plane
        .wait_for_named_binding("other", |b| condition(b).0 == "True")
        .await;
    let start = plane.wait_for_binding(|_| true).await;
    assert_eq!(start["status"], placed["status"], "a start is no change");
    let cluster = crate::core::tests::cluster("m1", 10, json!({})).value();
    let mut cluster: Value = cluster.unwrap();
    cluster["metadata"]["labels"] = json!({"a": "b"});
    plane.fake.seed(&CLUSTERS, cluster);
    let again = plane
        .wait_for_binding(|b| b["status"]["lastScheduledTime"] != long_ago)
        .await;
    assert_eq!(again["spec"], placed["spec"]);
    plane.tasks.stop().await;
}

// proves: SCH-suspended, SCH-comes-into-view
#[tokio::test]
async fn suspended_scheduling_goes_on_without_another_generation() {
    let mut suspended = binding(json!({}));
    suspended["spec"]["suspension"] = json!({"scheduling": true});
    let plane = SchedulerFixture::start(&["m1"], suspended.clone()).await;
    let mut other = binding(json!({}));
    other["metadata"]["name"] = "other".into();
    plane.fake.seed(&BINDINGS, other);
    plane
        .wait_for_named_binding("other", |b| condition(b).0 == "True")
        .await;
    assert!(plane.fake.writes().iter().all(|w| w.name == "other"));
    suspended["spec"]["suspension"] = json!({});
    plane.fake.seed(&BINDINGS, suspended);
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    plane.tasks.stop().await;
}

// proves: SCH-terms-in-order, SCH-terms-observed
#[tokio::test]
async fn a_term_that_has_no_result_gives_way_to_the_next() {
    let terms = json!({"clusterAffinities": [{"affinityName": "x", "clusterNames": ["m9"]}, {"affinityName": "y", "clusterNames": ["m2"]}]});
    let plane = SchedulerFixture::start(&["m1", "m2"], binding(terms)).await;
    let done = plane.wait_for_binding(|b| condition(b).0 == "True").await;
    assert_eq!(done["status"]["schedulerObservingAffinityName"], "y");
    assert_eq!(
        done["spec"]["clusters"],
        json!([{"name": "m2", "replicas": 4}])
    );
    let explanation = plane.decisions.get("n/web-deployment").unwrap();
    assert_eq!(explanation.trace.affinity_name.as_deref(), Some("y"));
    plane.tasks.stop().await;
}

// proves: SCH-unschedulable, SCH-queue-anew
#[tokio::test]
async fn an_unschedulable_binding_waits_for_a_change() {
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let mut large = binding(divided);
    large["spec"]["replicas"] = 11.into();
    let plane = SchedulerFixture::start(&["m1"], large).await;
    let unschedulable_binding = plane
        .wait_for_binding(|b| condition(b) == ("False", "Unschedulable"))
        .await;
    assert_eq!(
        unschedulable_binding["status"]["conditions"][0]["message"],
        "failed to assign replicas: failed to scale up: Clusters available replicas 10 are not enough to schedule."
    );
    let mut smaller = unschedulable_binding;
    smaller["spec"]["replicas"] = 10.into();
    smaller["metadata"]["generation"] = 2.into();
    plane.fake.seed(&BINDINGS, smaller);
    plane.wait_for_binding(|b| condition(b).0 == "True").await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_scoped_binding_is_placed_like_others() {
    let mut cluster_scoped = binding(json!({}));
    cluster_scoped["kind"] = "ClusterResourceBinding".into();
    cluster_scoped["metadata"] = json!({"name": "viewer-clusterrole", "generation": 1, "labels": {well_known_keys::CLUSTER_POLICY_ID: "p"}});
    cluster_scoped["spec"]["replicas"] = 0.into();
    let fake = FakeApi::new();
    let member = crate::core::tests::cluster("m1", 10, json!({}));
    fake.seed(&CLUSTERS, member.value().unwrap());
    fake.seed(&CLUSTER_BINDINGS, cluster_scoped);
    let gates = FeatureGates::default()
        .with_feature(KarmadaFeature::SchedulingOvercommitProtection, true)
        .with_feature(KarmadaFeature::WorkloadAffinity, true);
    let plane = SchedulerFixture::with_gates(fake, gates);
    let mut actual = Value::Null;
    for _ in 0..2000 {
        actual = plane
            .fake
            .get_object(&CLUSTER_BINDINGS, "", "viewer-clusterrole")
            .unwrap();
        if condition(&actual).0 == "True" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(actual["spec"]["clusters"], json!([{"name": "m1"}]));
    assert!(plane.decisions.get("viewer-clusterrole").is_some());
    plane.tasks.stop().await;
}
