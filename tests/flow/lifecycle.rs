//! A Deployment from its creation to its deletion.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition, wait_for_namespace};
use crate::flow::objects::{
    BINDINGS, DEPLOYMENTS, OVERRIDES, POLICIES, WORKS, deployment, divided_policy, execution_space,
    resource_selector,
};

fn container_image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

async fn wait_for_members(fleet: &FleetFixture, ns: &str, replicas: [i64; 2], images: [&str; 2]) {
    for ((member, replicas), expected) in fleet.members.iter().zip(replicas).zip(images) {
        let description = format!("{replicas} of {expected}");
        member
            .wait_until(&DEPLOYMENTS, ns, "web", &description, |d| {
                d["spec"]["replicas"] == replicas && container_image(d) == expected
            })
            .await;
    }
}

/// Waits until the status of the template is the sum of the members' statuses.
async fn wait_for_template_status(fleet: &FleetFixture, ns: &str, replicas: i64) {
    fleet
        .control
        .wait_until(&DEPLOYMENTS, ns, "web", "aggregated", |d| {
            let status = &d["status"];
            status["replicas"] == replicas
                && status["readyReplicas"] == replicas
                && status["updatedReplicas"] == replicas
                && status["availableReplicas"] == replicas
                && status["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
}

#[tokio::test]
async fn sample_from_creation_to_deletion() {
    let ns = "lifecycle";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let template = deployment(ns, "web", 2);
    control
        .create(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "web", "namespace": ns},
            "spec": {
                "resourceSelectors": [resource_selector(&template)],
                "overrideRules": [{
                    "targetCluster": {"clusterNames": ["member1"]},
                    "overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1.27-alpine"}]},
                }],
            },
        }))
        .await;
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "web", &template, &weights))
        .await;
    control.create(template).await;

    wait_for_members(&fleet, ns, [1, 1], ["nginx:1.27-alpine", "nginx:1.27"]).await;
    wait_for_template_status(&fleet, ns, 2).await;
    let binding = control
        .wait_until(&BINDINGS, ns, "web-deployment", "healthy in both", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy"))
        })
        .await;
    assert_eq!(find_condition(&binding, "Scheduled")["reason"], "Success");
    assert_eq!(
        find_condition(&binding, "FullyApplied")["reason"],
        "FullyAppliedSuccess"
    );
    for (item, cluster) in [(0, "member1"), (1, "member2")] {
        let item = &binding["status"]["aggregatedStatus"][item];
        assert_eq!(item["clusterName"], cluster);
        assert_eq!(item["applied"], true);
        assert_eq!(item["status"]["readyReplicas"], 1);
    }
    assert_eq!(
        fleet.member("member3").get(&DEPLOYMENTS, ns, "web").await,
        None
    );

    control
        .merge_patch(&DEPLOYMENTS, ns, "web", json!({"spec": {"replicas": 6}}))
        .await;
    wait_for_members(&fleet, ns, [3, 3], ["nginx:1.27-alpine", "nginx:1.27"]).await;
    wait_for_template_status(&fleet, ns, 6).await;

    let template = json!({"spec": {"containers": [{"name": "c", "image": "caddy:2"}]}});
    control
        .merge_patch(
            &DEPLOYMENTS,
            ns,
            "web",
            json!({"spec": {"template": template}}),
        )
        .await;
    wait_for_members(&fleet, ns, [3, 3], ["caddy:1.27-alpine", "caddy:2"]).await;
    wait_for_template_status(&fleet, ns, 6).await;

    // Deleting an override policy removes its changes from the member.
    control.delete(&OVERRIDES, ns, "web").await;
    wait_for_members(&fleet, ns, [3, 3], ["caddy:2", "caddy:2"]).await;

    control.delete(&DEPLOYMENTS, ns, "web").await;
    control.wait_until_deleted(&DEPLOYMENTS, ns, "web").await;
    control
        .wait_until_deleted(&BINDINGS, ns, "web-deployment")
        .await;
    for member in &fleet.members[..2] {
        member.wait_until_deleted(&DEPLOYMENTS, ns, "web").await;
        let works = execution_space(&member.name);
        let name = karmada_api::names::work_name("Deployment", "web", ns);
        control.wait_until_deleted(&WORKS, &works, &name).await;
    }
    control.get(&POLICIES, ns, "web").await.unwrap();
}

#[tokio::test]
async fn policy_after_template() {
    let ns = "late-policy";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let template = deployment(ns, "web", 3);
    fleet.control.create(template.clone()).await;
    let weights = [("member1", 2), ("member2", 1)];
    fleet
        .control
        .create(divided_policy(ns, "web", &template, &weights))
        .await;
    wait_for_members(&fleet, ns, [2, 1], ["nginx:1.27", "nginx:1.27"]).await;
    wait_for_template_status(&fleet, ns, 3).await;
}
