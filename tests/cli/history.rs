//! `history` and `undo`: a move by a changed policy is recorded, and taken back.

use harness::objects::deployment;
use serde_json::{Value, json};

use crate::cli::fixture::CliFixture;

/// A policy that divides replicas by the weights of the two members.
fn weighted_policy(template: &Value, weights: [u64; 2]) -> Value {
    let weight = |(i, weight): (usize, &u64)| {
        let member = format!("member{}", i + 1);
        json!({"targetCluster": {"clusterNames": [member]}, "weight": weight})
    };
    let weights: Vec<Value> = weights.iter().enumerate().map(weight).collect();
    let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "name": template["metadata"]["name"]});
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": template["metadata"]["name"], "namespace": "default"},
        "spec": {"resourceSelectors": [selector], "placement": {
            "clusterAffinity": {"clusterNames": ["member1", "member2"]},
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": weights}}}}})
}

fn replicas(fixture: &CliFixture) -> [i64; 2] {
    let binding = fixture.json("get resourcebinding shop-deployment");
    let clusters = binding["spec"]["clusters"].as_array().cloned();
    let clusters = clusters.unwrap_or_default();
    ["member1", "member2"].map(|member| {
        let mut of_member = clusters.iter().filter(|c| c["name"] == member);
        let replicas = of_member.next().map(|c| c["replicas"].as_i64());
        replicas.flatten().unwrap_or_default()
    })
}

// proves: HIS-command, HIS-undo, HIS-actor, HIS-reasons
#[test]
fn a_move_by_a_policy_is_recorded_and_taken_back() {
    let fixture = CliFixture::shared();
    let shop = deployment("default", "shop", 4);
    fixture.create(shop.clone());
    fixture.create(weighted_policy(&shop, [1, 1]));
    fixture.wait_for_output("get resourcebinding shop-deployment", |_| {
        replicas(&fixture) == [2, 2]
    });
    let printed = fixture.run("history deployment/shop");
    assert!(
        printed.errors.contains("deployment/shop has not moved"),
        "{printed:?}"
    );
    fixture
        .run("undo deployment/shop")
        .failed_with("deployment/shop has not moved");
    fixture.write("shop.json", weighted_policy(&shop, [3, 1]).to_string());
    fixture.run("apply -f shop.json").succeeded();
    let is_recorded = |out: &str| out.contains("PolicyChanged");
    fixture.wait_for_output("history deployment/shop", is_recorded);
    assert_eq!(replicas(&fixture), [3, 1]);
    let history = fixture.run("history deployment/shop -o json").succeeded();
    let history: Value = machinery::json::from_str(&history).unwrap();
    let entry = &history["entries"][0];
    let changes = json!([{"cluster": "member1", "from": 2, "to": 3}, {"cluster": "member2", "from": 2, "to": 1}]);
    assert_eq!(entry["changes"], changes, "{entry}");
    let cause = "PropagationPolicy default/shop generation 2";
    assert_eq!(entry["cause"], cause, "{entry}");
    assert_ne!(entry["actor"], "scheduler", "{entry}");
    fixture.run("history deployment/shop -o wide").succeeded();
    // The first example is a dry run, the second one moves back.
    let before = fixture.json("get propagationpolicy shop");
    let examples = fixture.examples("undo");
    fixture.run(&examples[0]).succeeded();
    assert_eq!(replicas(&fixture), [3, 1]);
    fixture.run_examples("undo");
    let after = fixture.json("get propagationpolicy shop");
    let weights = "/spec/placement/replicaScheduling/weightPreference/staticWeightList";
    assert_ne!(before.pointer(weights), after.pointer(weights));
    let expected = weighted_policy(&shop, [1, 1]);
    assert_eq!(after.pointer(weights), expected.pointer(weights));
    fixture.wait_for_output("get resourcebinding shop-deployment", |_| {
        replicas(&fixture) == [2, 2]
    });
    fixture.run_examples("history");
}

// proves: HIS-undo-refused
#[test]
fn templates_that_did_not_move_are_named() {
    let fixture = CliFixture::shared();
    for (line, message) in [
        (
            "history deployment/nothing",
            "deployments.apps \"nothing\" not found",
        ),
        (
            "undo deployment/nothing",
            "deployments.apps \"nothing\" not found",
        ),
        ("undo namespace/default", "namespace/default has not moved"),
    ] {
        fixture.run(line).failed_with(message);
    }
}
