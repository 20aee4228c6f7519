//! Scheduling: affinity, taints, spread constraints, conditions and events.

use serde_json::{Value, json};

use crate::flow::cache_waits::wait_until_scheduler_sees;
use crate::flow::fleet::{FleetFixture, find_condition, wait_until};
use crate::flow::objects::{
    BINDINGS, CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, EVENTS, POLICIES, config_map, deployment,
    divided_policy, policy,
};

fn policy_by_cluster_label(ns: &str, name: &str, labels: Value) -> Value {
    let mut policy_object = policy(ns, name, &config_map(ns, name, ""), &[]);
    policy_object["spec"]["placement"]["clusterAffinity"] =
        json!({"labelSelector": {"matchLabels": labels}});
    policy_object
}

#[tokio::test]
async fn binding_is_scheduled_when_a_cluster_gets_the_label() {
    let ns = "no-fit";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    control
        .create(policy_by_cluster_label(
            ns,
            "c",
            json!({"flow.example/zone": "north"}),
        ))
        .await;
    control.create(config_map(ns, "c", "v")).await;
    let binding = control
        .wait_until(&BINDINGS, ns, "c-configmap", "unscheduled", |b| {
            find_condition(b, "Scheduled")["status"] == "False"
        })
        .await;
    let scheduled = find_condition(&binding, "Scheduled");
    assert_eq!(scheduled["reason"], "NoClusterFit");
    let text = scheduled["message"].as_str().unwrap();
    let expected = "cluster(s) did not match the placement cluster affinity constraint";
    assert!(text.starts_with("0/") && text.contains(expected), "{text}");

    control
        .merge_patch(
            &CLUSTERS,
            "",
            "member2",
            json!({"metadata": {"labels": {"flow.example/zone": "north"}}}),
        )
        .await;
    fleet
        .member("member2")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "scheduled", |b| {
            find_condition(b, "Scheduled")["reason"] == "Success"
        })
        .await;
    // The object leaves the cluster that no longer matches.
    control
        .merge_patch(
            &CLUSTERS,
            "",
            "member2",
            json!({"metadata": {"labels": {"flow.example/zone": "south"}}}),
        )
        .await;
    fleet
        .member("member2")
        .wait_until_deleted(&CONFIG_MAPS, ns, "c")
        .await;
}

#[tokio::test]
async fn taints_exclude_clusters_without_toleration() {
    let ns = "taints";
    // Of its own: a taint concerns the tests beside this one.
    let fleet = FleetFixture::with_flags(&[], ns).await;
    let control = &fleet.control;
    let taint = json!([{"key": "flow", "value": "x", "effect": "NoSchedule"}]);
    control
        .merge_patch(&CLUSTERS, "", "member3", json!({"spec": {"taints": taint}}))
        .await;
    // An object that is already there would stay.
    wait_until_scheduler_sees(control, ns, &["member2", "member3"]).await;
    for (name, tolerations) in [
        ("shy", json!([])),
        (
            "bold",
            json!([{"key": "flow", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]),
        ),
    ] {
        let object = config_map(ns, name, "v");
        let mut policy = policy(ns, name, &object, &["member2", "member3"]);
        policy["spec"]["placement"]["clusterTolerations"] = tolerations;
        control.create(policy).await;
        control.create(object).await;
    }
    let scheduled = |n: usize| {
        move |b: &Value| {
            let clusters = b["spec"]["clusters"].as_array();
            clusters.is_some_and(|c| c.len() == n)
                && find_condition(b, "Scheduled")["status"] == "True"
        }
    };
    let shy = control
        .wait_until(&BINDINGS, ns, "shy-configmap", "in one", scheduled(1))
        .await;
    assert_eq!(shy["spec"]["clusters"][0]["name"], "member2");
    control
        .wait_until(&BINDINGS, ns, "bold-configmap", "in two", scheduled(2))
        .await;
    fleet
        .member("member3")
        .wait_until_exists(&CONFIG_MAPS, ns, "bold")
        .await;
    control
        .merge_patch(&CLUSTERS, "", "member3", json!({"spec": {"taints": null}}))
        .await;
    fleet
        .member("member3")
        .wait_until_exists(&CONFIG_MAPS, ns, "shy")
        .await;
}

#[tokio::test]
async fn workloads_are_spread_over_regions_and_follow_cluster_affinities() {
    let ns = "regions";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    for (member, region) in [
        ("member1", "east"),
        ("member2", "east"),
        ("member3", "west"),
    ] {
        control
            .merge_patch(&CLUSTERS, "", member, json!({"spec": {"region": region}}))
            .await;
    }
    let object = deployment(ns, "wide", 2);
    let mut spread = policy(ns, "wide", &object, &["member1", "member2", "member3"]);
    spread["spec"]["placement"]["spreadConstraints"] = json!([
        {"spreadByField": "region", "minGroups": 2, "maxGroups": 2},
        {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2},
    ]);
    control.create(spread).await;
    control.create(object).await;
    let names = |b: &Value| -> Vec<String> {
        let clusters = b["spec"]["clusters"].as_array().into_iter().flatten();
        let names = clusters.filter_map(|c| c["name"].as_str().map(str::to_owned));
        names.collect()
    };
    let binding = control
        .wait_until(&BINDINGS, ns, "wide-deployment", "in two regions", |b| {
            find_condition(b, "Scheduled")["reason"] == "Success"
        })
        .await;
    let target_names = names(&binding);
    assert_eq!(target_names.len(), 2, "{target_names:?}");
    assert!(
        target_names.iter().any(|n| n == "member3"),
        "{target_names:?}"
    );
    fleet
        .member("member3")
        .wait_until_exists(&DEPLOYMENTS, ns, "wide")
        .await;

    let terms = json!([
        {"affinityName": "nowhere", "clusterNames": ["elsewhere"]},
        {"affinityName": "east", "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["east"]}]}},
    ]);
    let placement =
        json!({"clusterAffinity": null, "spreadConstraints": null, "clusterAffinities": terms});
    control
        .merge_patch(
            &POLICIES,
            ns,
            "wide",
            json!({"spec": {"placement": placement}}),
        )
        .await;
    let moved = control
        .wait_until(&BINDINGS, ns, "wide-deployment", "in the east", |b| {
            b["status"]["schedulerObservingAffinityName"] == "east" && names(b).len() == 2
        })
        .await;
    let mut target_names = names(&moved);
    target_names.sort();
    assert_eq!(target_names, ["member1", "member2"]);
    fleet
        .member("member3")
        .wait_until_deleted(&DEPLOYMENTS, ns, "wide")
        .await;
}

// proves: SCH-events, SCH-scheduled
#[tokio::test]
async fn scaled_workload_is_scheduled_again_with_events() {
    let ns = "rescaled";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = deployment(ns, "web", 2);
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "web", &object, &weights))
        .await;
    control.create(object).await;
    let first = control
        .wait_until(&BINDINGS, ns, "web-deployment", "scheduled", |b| {
            find_condition(b, "Scheduled")["status"] == "True"
        })
        .await;
    let time = |b: &Value| {
        b["status"]["lastScheduledTime"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let last = time(&first);
    // Timestamps have a resolution of one second.
    wait_until("the next second", async || {
        jiff::Timestamp::now().to_string()[..19] > last[..19]
    })
    .await;
    let scale = json!({"spec": {"replicas": 6}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", scale).await;
    let scaled = control
        .wait_until(&BINDINGS, ns, "web-deployment", "scaled", |b| {
            b["status"]["schedulerObservedGeneration"] == b["metadata"]["generation"]
                && b["spec"]["replicas"] == 6
        })
        .await;
    assert!(time(&scaled) > last, "{scaled:#}");
    let text = "Binding has been scheduled successfully. Result: {member1:3, member2:3}";
    for kind in ["ResourceBinding", "Deployment"] {
        wait_until(&format!("the event on the {kind}"), async || {
            let events = control.list(&EVENTS, ns).await;
            events.iter().any(|e| {
                e["reason"] == "ScheduleBindingSucceed"
                    && e["involvedObject"]["kind"] == kind
                    && e["message"] == text
            })
        })
        .await;
    }
}

// proves: DET-no-clusters
#[tokio::test]
async fn workload_without_replicas_has_no_target_clusters() {
    let ns = "no-replicas";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut object = deployment(ns, "web", 0);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "10m"}});
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "web", &object, &weights))
        .await;
    control.create(object).await;
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "web-deployment")
        .await;
    assert_eq!(binding["spec"].get("clusters"), None, "{binding:#}");
    for (replicas, placed) in [(2, true), (0, false)] {
        let scale = json!({"spec": {"replicas": replicas}});
        control.merge_patch(&DEPLOYMENTS, ns, "web", scale).await;
        control
            .wait_until(&BINDINGS, ns, "web-deployment", "scaled", |b| {
                b["spec"].get("clusters").is_some() == placed
                    && b["status"]["schedulerObservedGeneration"] == b["metadata"]["generation"]
            })
            .await;
    }
}
