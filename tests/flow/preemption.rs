//! Policies that preempt others, with the feature gate `PropagationPolicyPreemption`.

use serde_json::{Value, json};

use crate::fleet::{Fleet, spread};
use crate::objects::{
    BINDINGS, CLUSTER_POLICIES, CONFIG_MAPS, EVENTS, POLICIES, cluster_wide, config_map, policy,
};

const GATE: &str = "PropagationPolicyPreemption=true";

fn preempting(mut policy: Value, priority: i64, namespace: &str) -> Value {
    policy["spec"]["priority"] = json!(priority);
    policy["spec"]["preemption"] = json!("Always");
    policy["spec"]["resourceSelectors"][0]["namespace"] = json!(namespace);
    policy
}

#[tokio::test]
async fn whoever_has_the_higher_priority_takes_over() {
    let ns = "preemption";
    let fleet = Fleet::with_gates(GATE, ns).await;
    spread(&fleet, ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "v");
    let in_only = async |cluster: &str| {
        for member in &fleet.members {
            if member.name == cluster {
                member.until_there(&CONFIG_MAPS, ns, "c").await;
            } else {
                member.until_gone(&CONFIG_MAPS, ns, "c").await;
            }
        }
    };
    let make = |name: &str, priority: i64, cluster: &str| {
        preempting(policy(ns, name, &object, &[cluster]), priority, ns)
    };
    control
        .create(cluster_wide(make("wide", 9, "member1")))
        .await;
    control.create(object.clone()).await;
    in_only("member1").await;

    // Any namespaced policy precedes a cluster policy.
    control.create(make("low", 1, "member2")).await;
    in_only("member2").await;
    control.create(make("high", 5, "member3")).await;
    in_only("member3").await;
    let binding = control.until_there(&BINDINGS, ns, "c-configmap").await;
    let annotations = &binding["metadata"]["annotations"];
    assert_eq!(annotations["propagationpolicy.karmada.io/name"], "high");
    assert!(annotations["clusterpropagationpolicy.karmada.io/name"].is_null());

    // A policy whose priority is lowered loses the template to another one, and a deleted
    // policy leaves it to the next one.
    control.create(make("middle", 3, "member1")).await;
    control
        .merge(&POLICIES, ns, "high", json!({"spec": {"priority": 0}}))
        .await;
    in_only("member1").await;
    for name in ["middle", "low", "high"] {
        control.delete(&POLICIES, ns, name).await;
        control.until_gone(&POLICIES, ns, name).await;
    }
    let claimed = |c: &Value| {
        let annotations = &c["metadata"]["annotations"];
        annotations["clusterpropagationpolicy.karmada.io/name"] == "wide"
            && annotations["propagationpolicy.karmada.io/name"].is_null()
    };
    control
        .until(&CONFIG_MAPS, ns, "c", "of wide", claimed)
        .await;
    control.delete(&CLUSTER_POLICIES, "", "wide").await;
    control.until_gone(&CLUSTER_POLICIES, "", "wide").await;

    let events = control.list(&EVENTS, ns).await;
    for text in [
        "Propagation policy(preemption/low) preempted cluster propagation policy(wide) successfully",
        "Propagation policy(preemption/high) preempted propagation policy(preemption/low) successfully",
        "Propagation policy(preemption/middle) preempted propagation policy(preemption/high) successfully",
    ] {
        let matches = |e: &&Value| e["reason"] == "PreemptPolicySucceed" && e["message"] == text;
        assert!(events.iter().any(|e| matches(&e)), "{text}: {events:?}");
    }
}
