//! Remedies, whose actions appear in the status of clusters.

use serde_json::{Value, json};

use crate::flow::fleet::FleetFixture;
use crate::flow::objects::{CLUSTERS, REMEDIES};

// proves: RMD-triggers, RMD-clusters
#[tokio::test]
async fn actions_of_remedies_appear_in_the_status_of_clusters() {
    let fleet = FleetFixture::shared("remedies").await;
    let control = &fleet.control;
    let remedy = |operator: &str| {
        json!({"apiVersion": "remedy.karmada.io/v1alpha1", "kind": "Remedy",
            "metadata": {"name": "traffic"},
            "spec": {"clusterAffinity": {"clusterNames": ["member2"]}, "actions": ["TrafficControl"],
                "decisionMatches": [{"clusterConditionMatch":
                    {"conditionType": "Ready", "operator": operator, "conditionStatus": "True"}}]}})
    };
    let rejection = control.try_create(remedy("Like")).await;
    let rejection = rejection.unwrap_err().to_string();
    let field = "spec.decisionMatches[0].clusterConditionMatch.operator";
    assert!(rejection.contains(field), "{rejection}");
    let wait_for_actions = |expected: Value| async move {
        control
            .wait_until(&CLUSTERS, "", "member2", "actions", move |cluster| {
                cluster["status"]["remedyActions"] == expected
            })
            .await
    };
    control.create(remedy("Equal")).await;
    wait_for_actions(json!(["TrafficControl"])).await;
    let other = control.get(&CLUSTERS, "", "member1").await.unwrap();
    assert_eq!(other["status"]["remedyActions"], Value::Null);
    let unequal = remedy("NotEqual");
    control
        .merge_patch(&REMEDIES, "", "traffic", json!({"spec": unequal["spec"]}))
        .await;
    wait_for_actions(Value::Null).await;
    let always = json!({"spec": {"decisionMatches": null}});
    control.merge_patch(&REMEDIES, "", "traffic", always).await;
    wait_for_actions(json!(["TrafficControl"])).await;
    control.delete(&REMEDIES, "", "traffic").await;
    wait_for_actions(Value::Null).await;
}
