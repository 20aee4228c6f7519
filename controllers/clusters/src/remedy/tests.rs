//! Tests of the remedy controller.

use karmada_api::resources::{CLUSTERS, REMEDIES};
use serde_json::{Value, json};

use crate::fixture::ClustersFixture;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";

fn remedy(name: &str, clusters: &[&str], action: &str) -> Value {
    let dns = json!({"clusterConditionMatch":
        {"conditionType": "Dns", "operator": "Equal", "conditionStatus": "False"}});
    json!({"apiVersion": "remedy.karmada.io/v1alpha1", "kind": "Remedy", "metadata": {"name": name},
           "spec": {"clusterAffinity": {"clusterNames": clusters}, "decisionMatches": [dns],
                    "actions": [action]}})
}

fn set_dns(fixture: &ClustersFixture, name: &str, status: &str) {
    let mut cluster = fixture.cluster(name);
    let conditions = cluster["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != "Dns");
    conditions.push(
        json!({"type": "Dns", "status": status, "reason": "R", "message": "",
        "lastTransitionTime": LONG_AGO}),
    );
    fixture.host.seed(&CLUSTERS, cluster);
}

async fn wait_for_actions(fixture: &ClustersFixture, name: &str, expected: &[&str]) {
    let actions = |cluster: &Value| match expected {
        [] => cluster["status"].get("remedyActions").is_none(),
        expected => cluster["status"]["remedyActions"] == json!(expected),
    };
    fixture.wait_for_cluster(name, actions).await;
}

// proves: RMD-triggers, RMD-clusters
#[tokio::test(start_paused = true)]
async fn actions_come_and_go_with_conditions_and_remedies() {
    let fixture = ClustersFixture::start();
    for name in ["a", "b"] {
        fixture.seed_unprobed_cluster(name, "True", LONG_AGO);
        set_dns(&fixture, name, "True");
    }
    fixture
        .host
        .seed(&REMEDIES, remedy("r", &["a"], "TrafficControl"));
    fixture.wait_until_idle().await;
    wait_for_actions(&fixture, "a", &[]).await;
    set_dns(&fixture, "a", "False");
    set_dns(&fixture, "b", "False");
    wait_for_actions(&fixture, "a", &["TrafficControl"]).await;
    fixture
        .host
        .seed(&REMEDIES, remedy("other", &["a", "b"], "Other"));
    wait_for_actions(&fixture, "a", &["Other", "TrafficControl"]).await;
    wait_for_actions(&fixture, "b", &["Other"]).await;
    // The cluster that it leaves loses its action.
    fixture
        .host
        .seed(&REMEDIES, remedy("other", &["b"], "Other"));
    wait_for_actions(&fixture, "a", &["TrafficControl"]).await;
    fixture.host.remove(&REMEDIES, "", "r");
    wait_for_actions(&fixture, "a", &[]).await;
    set_dns(&fixture, "b", "True");
    wait_for_actions(&fixture, "b", &[]).await;
    fixture.tasks.stop().await;
}

// proves: RMD-deleting
#[tokio::test(start_paused = true)]
async fn clusters_that_are_being_deleted_keep_their_actions() {
    let fixture = ClustersFixture::start();
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    set_dns(&fixture, "a", "False");
    let mut cluster = fixture.cluster("a");
    cluster["metadata"]["deletionTimestamp"] = LONG_AGO.into();
    cluster["metadata"]["finalizers"] = json!(["example.org/keeps"]);
    fixture.host.seed(&CLUSTERS, cluster);
    fixture
        .host
        .seed(&REMEDIES, remedy("r", &["a"], "TrafficControl"));
    fixture.wait_until_idle().await;
    wait_for_actions(&fixture, "a", &[]).await;
    fixture.tasks.stop().await;
}
