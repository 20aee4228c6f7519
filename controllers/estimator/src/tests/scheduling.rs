//! Tests of the scheduler with accurate estimators.

use karmada_api::resources::{BINDINGS, CLUSTERS};
use karmada_api::{FeatureGates, KarmadaFeature, well_known_keys};
use members::MemberTrackingOptions;
use scheduler::core::{EstimateSource, SchedulerPluginSet, SchedulingSettings};
use scheduler::{DecisionExplanationCache, Scheduler, SchedulerClusterCache, SchedulerOptions};
use serde_json::{Value, json};

use super::fake_estimator::{FakeEstimator, FakeEstimatorResponse};
use super::fixture::{EstimatorMembersFixture, NODES, SERVICES, node, wait_until};
use crate::AccurateEstimator;

pub(super) fn start(
    test_fixture: &EstimatorMembersFixture,
    gates: FeatureGates,
) -> DecisionExplanationCache {
    let context = test_fixture.context();
    let rules =
        SchedulingSettings::new(gates, SchedulerPluginSet::default(), false).with_estimators(true);
    let clusters = context.informer(&CLUSTERS);
    let connections = test_fixture.connect(crate::EstimatorOptions::default());
    let estimators = AccurateEstimator::start(&connections, &test_fixture.members);
    let options = SchedulerOptions {
        gates,
        estimator: estimators.into(),
        ..SchedulerOptions::new(SchedulerClusterCache::with_settings(clusters, rules))
    };
    let decisions = options.decisions.clone();
    Scheduler::start(&context, options);
    decisions
}

pub(super) fn binding(name: &str, replicas: i64, placement: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "generation": 1, "labels": {well_known_keys::POLICY_ID: "p"}},
        "spec": {"replicas": replicas, "placement": placement,
                 "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
                 "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name, "uid": "u"}},
    })
}

pub(super) fn dynamic_placement() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                                 "weightPreference": {"dynamicWeight": "AvailableReplicas"}}})
}

async fn wait_for_result(test_fixture: &EstimatorMembersFixture, name: &str) -> Value {
    let scheduled = |b: &Value| b["status"]["conditions"][0]["status"].is_string();
    wait_until(async || {
        test_fixture
            .host
            .get_object(&BINDINGS, "n", name)
            .is_some_and(|b| scheduled(&b))
    })
    .await;
    test_fixture.host.get_object(&BINDINGS, "n", name).unwrap()
}

pub(super) async fn clusters(test_fixture: &EstimatorMembersFixture, name: &str) -> Value {
    wait_for_result(test_fixture, name).await["spec"]["clusters"].clone()
}

fn route_cluster(test_fixture: &EstimatorMembersFixture, cluster: &str, peer: &FakeEstimator) {
    let service = json!({"metadata": {"name": format!("karmada-scheduler-estimator-{cluster}"), "namespace": "karmada-system"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": 10352, "targetPort": peer.address.port()}]}});
    test_fixture.host.seed(&SERVICES, service);
}

// proves: EST-min, EST-skipped
#[tokio::test]
async fn replicas_follow_the_least_estimate() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions {
        individual_nodes: true,
        quotas: false,
    });
    test_fixture.member.seed(&NODES, node("a 3 10"));
    test_fixture
        .member
        .seed(&NODES, node("b 9 10 !x=y:NoSchedule"));
    let peer = FakeEstimator::start("m1", FakeEstimatorResponse::Available(1), None).await;
    route_cluster(&test_fixture, "m1", &peer);
    for name in ["m1", "m2", "m3"] {
        test_fixture.join(name, if name == "m3" { "Pull" } else { "Push" }, 4);
    }
    test_fixture.wait_until_listed("m2", false).await;
    // The estimator allows 1, the nodes 3, the resource summary 4.
    test_fixture
        .host
        .seed(&BINDINGS, binding("all", 8, &dynamic_placement()));
    let decisions = start(&test_fixture, FeatureGates::default());
    let expected = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&test_fixture, "all").await, expected);
    assert_eq!(
        peer.requests(),
        ["MaxAvailableReplicas m1 kind=Deployment, name=n/all"]
    );
    let explanation = decisions.get("n/all").unwrap();
    let estimate = |name: &str| {
        let cluster = explanation
            .trace
            .clusters
            .iter()
            .find(|c| c.name == name)
            .unwrap();
        (
            cluster.available_replicas.unwrap(),
            cluster.estimate.unwrap(),
        )
    };
    assert_eq!(estimate("m1"), (1, EstimateSource::Estimator));
    assert_eq!(estimate("m2"), (3, EstimateSource::Nodes));
    assert_eq!(estimate("m3"), (4, EstimateSource::Summary));

    test_fixture
        .host
        .seed(&BINDINGS, binding("more", 9, &dynamic_placement()));
    let condition = wait_for_result(&test_fixture, "more").await["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("available replicas 8 are not enough"),
        "{message}"
    );

    // An estimator that does not know defers to other estimates; a larger estimate is capped.
    peer.set_response(FakeEstimatorResponse::Available(100));
    test_fixture
        .host
        .seed(&BINDINGS, binding("most", 11, &dynamic_placement()));
    let expected = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&test_fixture, "most").await, expected);
    // A failing estimator invalidates all estimates of this decision, but not of others.
    peer.set_response(FakeEstimatorResponse::Error);
    test_fixture
        .host
        .seed(&BINDINGS, binding("skipped", 12, &dynamic_placement()));
    let expected = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&test_fixture, "skipped").await, expected);
    let explanation = decisions.get("n/skipped").unwrap();
    assert_eq!(explanation.trace.failed_estimators, ["m1"]);
    let mut elsewhere = dynamic_placement();
    elsewhere["clusterAffinity"] = json!({"clusterNames": ["m2", "m3"]});
    test_fixture
        .host
        .seed(&BINDINGS, binding("elsewhere", 7, &elsewhere));
    let expected = json!([{"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&test_fixture, "elsewhere").await, expected);
    test_fixture.tasks.stop().await;
}

// proves: EST-terms, EST-non-workload
#[tokio::test]
async fn only_feasible_clusters_are_estimated() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let (first, second) = (
        FakeEstimator::start("m1", FakeEstimatorResponse::Available(9), None).await,
        FakeEstimator::start("m2", FakeEstimatorResponse::Available(9), None).await,
    );
    for (name, peer) in [("m1", &first), ("m2", &second)] {
        test_fixture.join(name, "Push", 9);
        route_cluster(&test_fixture, name, peer);
    }
    let mut terms = dynamic_placement();
    terms["clusterAffinities"] = json!([{"affinityName": "a", "clusterNames": ["m1"]}, {"affinityName": "b", "clusterNames": ["m2"]}]);
    test_fixture
        .host
        .seed(&BINDINGS, binding("first", 3, &terms));
    let mut nothing = binding("nothing", 0, &dynamic_placement());
    nothing["spec"]
        .as_object_mut()
        .unwrap()
        .remove("replicaRequirements");
    test_fixture.host.seed(&BINDINGS, nothing);
    start(&test_fixture, FeatureGates::default());
    assert_eq!(
        clusters(&test_fixture, "first").await,
        json!([{"name": "m1", "replicas": 3}])
    );
    wait_for_result(&test_fixture, "nothing").await;
    assert_eq!((first.requests().len(), second.requests().len()), (1, 0));
    // A term without capacity is skipped, and then the clusters of the next are estimated.
    first.set_response(FakeEstimatorResponse::Available(0));
    test_fixture
        .host
        .seed(&BINDINGS, binding("second", 3, &terms));
    assert_eq!(
        clusters(&test_fixture, "second").await,
        json!([{"name": "m2", "replicas": 3}])
    );
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
    test_fixture.tasks.stop().await;
}

// proves: EST-assumed
#[tokio::test]
async fn reserved_capacity_is_not_assigned_again() {
    let test_fixture = EstimatorMembersFixture::new(MemberTrackingOptions {
        individual_nodes: true,
        quotas: false,
    });
    test_fixture.member.seed(&NODES, node("a 4 10"));
    test_fixture.join("m1", "Push", 100);
    test_fixture.wait_until_listed("m1", false).await;
    let names: Vec<String> = (0..6).map(|n| format!("b{n}")).collect();
    for name in &names {
        test_fixture
            .host
            .seed(&BINDINGS, binding(name, 1, &dynamic_placement()));
    }
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::SchedulingOvercommitProtection, true);
    start(&test_fixture, gates);
    let mut placed = 0;
    for name in &names {
        placed += usize::from(clusters(&test_fixture, name).await.is_array());
    }
    assert_eq!(placed, 4);
    test_fixture.tasks.stop().await;
}
