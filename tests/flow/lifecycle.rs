//! A Deployment from its creation to its deletion.

use serde_json::{Value, json};

use crate::fleet::{Fleet, condition, spread};
use crate::objects::{
    BINDINGS, DEPLOYMENTS, OVERRIDES, POLICIES, WORKS, deployment, divided, selector, works_of,
};

fn image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

async fn in_members(fleet: &Fleet, ns: &str, replicas: [i64; 2], images: [&str; 2]) {
    for ((member, replicas), expected) in fleet.members.iter().zip(replicas).zip(images) {
        let what = format!("{replicas} of {expected}");
        member
            .until(&DEPLOYMENTS, ns, "web", &what, |d| {
                d["spec"]["replicas"] == replicas && image(d) == expected
            })
            .await;
    }
}

/// Waits until the status of the template is the sum of the members' statuses.
async fn on_template(fleet: &Fleet, ns: &str, replicas: i64) {
    fleet
        .control
        .until(&DEPLOYMENTS, ns, "web", "aggregated", |d| {
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
    let fleet = Fleet::shared(ns).await;
    let control = &fleet.control;
    let template = deployment(ns, "web", 2);
    control
        .create(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "web", "namespace": ns},
            "spec": {
                "resourceSelectors": [selector(&template)],
                "overrideRules": [{
                    "targetCluster": {"clusterNames": ["member1"]},
                    "overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1.27-alpine"}]},
                }],
            },
        }))
        .await;
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided(ns, "web", &template, &weights))
        .await;
    control.create(template).await;

    in_members(&fleet, ns, [1, 1], ["nginx:1.27-alpine", "nginx:1.27"]).await;
    on_template(&fleet, ns, 2).await;
    let binding = control
        .until(&BINDINGS, ns, "web-deployment", "healthy in both", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy"))
        })
        .await;
    assert_eq!(condition(&binding, "Scheduled")["reason"], "Success");
    assert_eq!(
        condition(&binding, "FullyApplied")["reason"],
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
        .merge(&DEPLOYMENTS, ns, "web", json!({"spec": {"replicas": 6}}))
        .await;
    in_members(&fleet, ns, [3, 3], ["nginx:1.27-alpine", "nginx:1.27"]).await;
    on_template(&fleet, ns, 6).await;

    let template = json!({"spec": {"containers": [{"name": "c", "image": "caddy:2"}]}});
    control
        .merge(
            &DEPLOYMENTS,
            ns,
            "web",
            json!({"spec": {"template": template}}),
        )
        .await;
    in_members(&fleet, ns, [3, 3], ["caddy:1.27-alpine", "caddy:2"]).await;
    on_template(&fleet, ns, 6).await;

    // Deleting an override policy removes its changes from the member.
    control.delete(&OVERRIDES, ns, "web").await;
    in_members(&fleet, ns, [3, 3], ["caddy:2", "caddy:2"]).await;

    control.delete(&DEPLOYMENTS, ns, "web").await;
    control.until_gone(&DEPLOYMENTS, ns, "web").await;
    control.until_gone(&BINDINGS, ns, "web-deployment").await;
    for member in &fleet.members[..2] {
        member.until_gone(&DEPLOYMENTS, ns, "web").await;
        let works = works_of(&member.name);
        let name = openapi::karmada::names::work("Deployment", "web", ns);
        control.until_gone(&WORKS, &works, &name).await;
    }
    control.get(&POLICIES, ns, "web").await.unwrap();
}

#[tokio::test]
async fn policy_after_template() {
    let ns = "late-policy";
    let fleet = Fleet::shared(ns).await;
    spread(&fleet, ns).await;
    let template = deployment(ns, "web", 3);
    fleet.control.create(template.clone()).await;
    let weights = [("member1", 2), ("member2", 1)];
    fleet
        .control
        .create(divided(ns, "web", &template, &weights))
        .await;
    in_members(&fleet, ns, [2, 1], ["nginx:1.27", "nginx:1.27"]).await;
    on_template(&fleet, ns, 3).await;
}
