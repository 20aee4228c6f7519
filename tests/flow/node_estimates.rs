//! Replicas are divided by the capacity of single nodes, not by the cluster's sums.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::fleet::{FleetFixture, find_condition, run_with_kubeconfig, wait_until};
use crate::objects::{BINDINGS, NODES, deployment, policy};

// proves: EST-own, EST-flags
#[tokio::test]
async fn replicas_follow_the_nodes_that_match_the_workload() {
    let ns = "estimates";
    let fleet = FleetFixture::with_flags(&["--enable-scheduler-estimator"], ns).await;
    let control = &fleet.control;
    for (cluster, nodes) in [("member1", 1), ("member2", 2)] {
        let member = fleet.member(cluster);
        for node in member.list(&NODES, "").await.iter().take(nodes) {
            let name = node["metadata"]["name"].as_str().unwrap();
            let label = json!({"metadata": {"labels": {"disk": "fast"}}});
            member.merge_patch(&NODES, "", name, label).await;
        }
    }
    let mut by_room = policy(ns, "web", &deployment(ns, "", 3), &[]);
    by_room["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    by_room["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    control.create(by_room).await;
    // The control plane may see the labels a moment later.
    let attempt = Cell::new(0);
    let decided = async || {
        attempt.set(attempt.get() + 1);
        let name = format!("web-{}", attempt.get());
        let mut web = deployment(ns, &name, 3);
        let pod = &mut web["spec"]["template"]["spec"];
        pod["nodeSelector"] = json!({"disk": "fast"});
        pod["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}});
        control.create(web).await;
        let binding = format!("{name}-deployment");
        let is_decided = |b: &Value| find_condition(b, "Scheduled")["status"].is_string();
        control
            .wait_until(&BINDINGS, ns, &binding, "decided", is_decided)
            .await
    };
    let by_nodes = json!([{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 2}]);
    wait_until("replicas by nodes", async || {
        decided().await["spec"]["clusters"] == by_nodes
    })
    .await;
    let name = format!("deploy/web-{}", attempt.get());
    let arguments = ["why", &name, "-n", ns, "-o", "wide"];
    let (code, output) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
    assert_eq!(code, Some(0), "{output}");
    let row = output.lines().find(|line| line.starts_with("member3"));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert!(words.contains(&"Nodes") && words[4] == "0", "{output}");
}
