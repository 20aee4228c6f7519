//! Policies that preempt others, with the feature gate `PropagationPolicyPreemption`.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{
    BINDINGS, CLUSTER_POLICIES, CONFIG_MAPS, EVENTS, POLICIES, cluster_scoped, config_map, policy,
};

const FEATURE_GATES: &str = "PropagationPolicyPreemption=true";

fn preempting_policy(mut policy: Value, priority: i64, namespace: &str) -> Value {
    policy["spec"]["priority"] = json!(priority);
    policy["spec"]["preemption"] = json!("Always");
    policy["spec"]["resourceSelectors"][0]["namespace"] = json!(namespace);
    policy
}

#[tokio::test]
async fn policy_with_higher_priority_preempts() {
    let ns = "preemption";
    let fleet = FleetFixture::with_feature_gates(FEATURE_GATES, ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "v");
    let in_only = async |cluster: &str| {
        for member in &fleet.members {
            if member.name == cluster {
                member.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
            } else {
                member.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
            }
        }
    };
    let make = |name: &str, priority: i64, cluster: &str| {
        preempting_policy(policy(ns, name, &object, &[cluster]), priority, ns)
    };
    control
        .create(cluster_scoped(make("wide", 9, "member1")))
        .await;
    control.create(object.clone()).await;
    in_only("member1").await;

    // Any namespaced policy precedes a cluster policy.
    control.create(make("low", 1, "member2")).await;
    in_only("member2").await;
    control.create(make("high", 5, "member3")).await;
    in_only("member3").await;
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "c-configmap")
        .await;
    let annotations = &binding["metadata"]["annotations"];
    assert_eq!(annotations["propagationpolicy.karmada.io/name"], "high");
    assert!(annotations["clusterpropagationpolicy.karmada.io/name"].is_null());

    // A policy whose priority is lowered loses the template to another one, and a deleted
    // policy leaves it to the next one.
    control.create(make("middle", 3, "member1")).await;
    control
        .merge_patch(&POLICIES, ns, "high", json!({"spec": {"priority": 0}}))
        .await;
    in_only("member1").await;
    for name in ["middle", "low", "high"] {
        control.delete(&POLICIES, ns, name).await;
        control.wait_until_deleted(&POLICIES, ns, name).await;
    }
    let claimed = |c: &Value| {
        let annotations = &c["metadata"]["annotations"];
        annotations["clusterpropagationpolicy.karmada.io/name"] == "wide"
            && annotations["propagationpolicy.karmada.io/name"].is_null()
    };
    control
        .wait_until(&CONFIG_MAPS, ns, "c", "of wide", claimed)
        .await;
    control.delete(&CLUSTER_POLICIES, "", "wide").await;
    control
        .wait_until_deleted(&CLUSTER_POLICIES, "", "wide")
        .await;

    for text in [
        "Propagation policy(preemption/low) preempted cluster propagation policy(wide) successfully",
        "Propagation policy(preemption/high) preempted propagation policy(preemption/low) successfully",
        "Propagation policy(preemption/middle) preempted propagation policy(preemption/high) successfully",
    ] {
        wait_until(text, async || {
            let events = control.list(&EVENTS, ns).await;
            let matches = |e: &Value| e["reason"] == "PreemptPolicySucceed" && e["message"] == text;
            events.iter().any(matches)
        })
        .await;
    }
}
