//! Tests of the scheduler with accurate estimators.

use std::sync::Arc;

use client::{Api, Select};
use machinery::time::SystemClock;
use members::Detail;
use openapi::karmada::resources::{BINDINGS, CLUSTERS};
use openapi::karmada::{FeatureGates, Gate, labels};
use flotilla_runtime::Recorder;
use scheduler::core::{Plugins, Rules, Source};
use scheduler::{Clusters, Decisions, Options, Scheduler};
use serde_json::{Value, json};

use super::lab::{Lab, NODES, SERVICES, node, until};
use super::peer::{Peer, Says};
use crate::Estimator;

fn start(lab: &Lab, gates: FeatureGates) -> Decisions {
    let api: Arc<dyn Api> = lab.host.clone();
    let rules = Rules::new(gates, Plugins::default(), false).asking(true);
    let clusters = lab.informers.get(&api, &Select::all(&CLUSTERS));
    let of_estimators = crate::Options::default();
    let estimators = Estimator::start(
        &api,
        &lab.informers,
        &lab.members,
        of_estimators,
        &lab.tasks,
    );
    let options = Options {
        gates,
        estimators: Some(estimators),
        ..Options::default()
    };
    let decisions = options.decisions.clone();
    Scheduler::start(
        api,
        Arc::new(SystemClock),
        Recorder::disabled(),
        Clusters::under(clusters, rules),
        options,
        &lab.informers,
        &lab.tasks,
    );
    decisions
}

fn binding(name: &str, replicas: i64, placement: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "generation": 1, "labels": {labels::POLICY_ID: "p"}},
        "spec": {"replicas": replicas, "placement": placement,
                 "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
                 "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name, "uid": "u"}},
    })
}

fn by_room() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                                 "weightPreference": {"dynamicWeight": "AvailableReplicas"}}})
}

async fn decided(lab: &Lab, name: &str) -> Value {
    let scheduled = |b: &Value| b["status"]["conditions"][0]["status"].is_string();
    until(async || {
        lab.host
            .object(&BINDINGS, "n", name)
            .is_some_and(|b| scheduled(&b))
    })
    .await;
    lab.host.object(&BINDINGS, "n", name).unwrap()
}

async fn clusters(lab: &Lab, name: &str) -> Value {
    decided(lab, name).await["spec"]["clusters"].clone()
}

fn to(lab: &Lab, cluster: &str, peer: &Peer) {
    let service = json!({"metadata": {"name": format!("karmada-scheduler-estimator-{cluster}"), "namespace": "karmada-system"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": 10352, "targetPort": peer.address.port()}]}});
    lab.host.seed(&SERVICES, service);
}

// proves: EST-min, EST-skipped
#[tokio::test]
async fn replicas_follow_the_least_estimate() {
    let lab = Lab::new(Detail {
        nodes: true,
        quotas: false,
    });
    lab.member.seed(&NODES, node("a 3 10"));
    lab.member.seed(&NODES, node("b 9 10 !x=y:NoSchedule"));
    let peer = Peer::start("m1", Says::Room(1), None).await;
    to(&lab, "m1", &peer);
    for name in ["m1", "m2", "m3"] {
        lab.join(name, if name == "m3" { "Pull" } else { "Push" }, 4);
    }
    lab.listed("m2", false).await;
    // The estimator allows 1, the nodes 3, the resource summary 4.
    lab.host.seed(&BINDINGS, binding("all", 8, &by_room()));
    let decisions = start(&lab, FeatureGates::default());
    let expected = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&lab, "all").await, expected);
    assert_eq!(
        peer.heard(),
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
    assert_eq!(estimate("m1"), (1, Source::Estimator));
    assert_eq!(estimate("m2"), (3, Source::Nodes));
    assert_eq!(estimate("m3"), (4, Source::Summary));

    lab.host.seed(&BINDINGS, binding("more", 9, &by_room()));
    let condition = decided(&lab, "more").await["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("available replicas 8 are not enough"),
        "{message}"
    );

    // An estimator that does not know defers to other estimates; a larger estimate is capped.
    peer.says(Says::Room(100));
    lab.host.seed(&BINDINGS, binding("most", 11, &by_room()));
    let expected = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&lab, "most").await, expected);
    // A failing estimator invalidates all estimates of this decision, but not of others.
    peer.says(Says::Error);
    lab.host.seed(&BINDINGS, binding("skipped", 12, &by_room()));
    let expected = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&lab, "skipped").await, expected);
    let explanation = decisions.get("n/skipped").unwrap();
    assert_eq!(explanation.trace.failed_estimators, ["m1"]);
    let mut elsewhere = by_room();
    elsewhere["clusterAffinity"] = json!({"clusterNames": ["m2", "m3"]});
    lab.host
        .seed(&BINDINGS, binding("elsewhere", 7, &elsewhere));
    let expected = json!([{"name": "m2", "replicas": 3}, {"name": "m3", "replicas": 4}]);
    assert_eq!(clusters(&lab, "elsewhere").await, expected);
    lab.tasks.stop().await;
}

// proves: EST-terms, EST-non-workload
#[tokio::test]
async fn only_feasible_clusters_are_estimated() {
    let lab = Lab::new(Detail::default());
    let (first, second) = (
        Peer::start("m1", Says::Room(9), None).await,
        Peer::start("m2", Says::Room(9), None).await,
    );
    for (name, peer) in [("m1", &first), ("m2", &second)] {
        lab.join(name, "Push", 9);
        to(&lab, name, peer);
    }
    let mut terms = by_room();
    terms["clusterAffinities"] = json!([{"affinityName": "a", "clusterNames": ["m1"]}, {"affinityName": "b", "clusterNames": ["m2"]}]);
    lab.host.seed(&BINDINGS, binding("first", 3, &terms));
    let mut nothing = binding("nothing", 0, &by_room());
    nothing["spec"]
        .as_object_mut()
        .unwrap()
        .remove("replicaRequirements");
    lab.host.seed(&BINDINGS, nothing);
    start(&lab, FeatureGates::default());
    assert_eq!(
        clusters(&lab, "first").await,
        json!([{"name": "m1", "replicas": 3}])
    );
    decided(&lab, "nothing").await;
    assert_eq!((first.heard().len(), second.heard().len()), (1, 0));
    // A term without capacity is skipped, and then the clusters of the next are estimated.
    first.says(Says::Room(0));
    lab.host.seed(&BINDINGS, binding("second", 3, &terms));
    assert_eq!(
        clusters(&lab, "second").await,
        json!([{"name": "m2", "replicas": 3}])
    );
    assert_eq!((first.heard().len(), second.heard().len()), (1, 1));
    lab.tasks.stop().await;
}

// proves: EST-assumed
#[tokio::test]
async fn reserved_capacity_is_not_assigned_again() {
    let lab = Lab::new(Detail {
        nodes: true,
        quotas: false,
    });
    lab.member.seed(&NODES, node("a 4 10"));
    lab.join("m1", "Push", 100);
    lab.listed("m1", false).await;
    let names: Vec<String> = (0..6).map(|n| format!("b{n}")).collect();
    for name in &names {
        lab.host.seed(&BINDINGS, binding(name, 1, &by_room()));
    }
    let gates = FeatureGates::default().with(Gate::SchedulingOvercommitProtection, true);
    start(&lab, gates);
    let mut placed = 0;
    for name in &names {
        placed += usize::from(clusters(&lab, name).await.is_array());
    }
    assert_eq!(placed, 4);
    lab.tasks.stop().await;
}
