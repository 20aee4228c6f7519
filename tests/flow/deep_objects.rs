//! Templates that are nested as deep as objects may be.

use machinery::json::MAX_OBJECT_DEPTH;
use serde_json::{Value, json};

use crate::flow::fleet::{run_with_kubeconfig, wait_until};
use crate::flow::interpreter_customizations::{WIDGET_KIND, customization, fleet_with_widgets};
use crate::flow::objects::{BINDINGS, EVENTS, WIDGETS, override_policy, policy, widget};

/// A widget of this many levels.
fn deep_widget(namespace: &str, name: &str, levels: usize) -> Value {
    let mut widget = widget(namespace, name, 1);
    widget["spec"]["deep"] = deep_value(levels - 2);
    widget
}

fn deep_value(levels: usize) -> Value {
    (1..levels).fold(json!({"end": "x"}), |inner, level| match level % 3 {
        0 => json!([inner]),
        _ => json!({"n": inner}),
    })
}

/// Scripts that read and return whole objects.
fn scripts() -> Value {
    let scripts = [
        (
            "retention",
            "function Retain(desired, observed) desired.spec.kept = observed.spec.deep return desired end",
        ),
        (
            "statusReflection",
            "function ReflectStatus(obj) return obj.status end",
        ),
        (
            "statusAggregation",
            "function AggregateStatus(obj, items) obj.status = items[1].status return obj end",
        ),
    ];
    customization("deep-widgets", WIDGET_KIND, &scripts)
}

// proves: EXE-exact
#[tokio::test]
async fn deep_templates_reach_members_and_their_status_comes_back() {
    let ns = "deep";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let member = fleet.member("member1");
    for levels in [128, 1_000] {
        let name = format!("w{levels}");
        let object = deep_widget(ns, &name, levels);
        let rules = json!([{"overriders": {"plaintext": [{"path": "/spec/size", "operator": "replace", "value": 2}]}}]);
        control
            .create(override_policy(ns, &name, &object, &rules))
            .await;
        control
            .create(policy(ns, &name, &object, &["member1"]))
            .await;
        control.create(object.clone()).await;
        let arrived = member
            .wait_until(&WIDGETS, ns, &name, "overridden", |w| {
                w["spec"]["size"] == 2
            })
            .await;
        assert!(arrived["spec"]["deep"] == object["spec"]["deep"], "{name}");
        let status = json!({"deep": deep_value(levels - 10)});
        member.patch_status(&arrived, status.clone()).await;
        let binding = format!("{name}-widget");
        control
            .wait_until(&BINDINGS, ns, &binding, "its status", |b| {
                b["status"]["aggregatedStatus"][0]["status"] == status
            })
            .await;
        // An edit of the template arrives beside the rest.
        control
            .merge_patch(&WIDGETS, ns, &name, json!({"spec": {"more": "y"}}))
            .await;
        member
            .wait_until(&WIDGETS, ns, &name, "edited", |w| {
                w["spec"]["more"] == "y" && w["spec"]["deep"] == object["spec"]["deep"]
            })
            .await;
        for arguments in [["get", "widgets"], ["why", &*format!("widget/{name}")]] {
            let output = ["-n", ns, "-o", "yaml"];
            let all = [&arguments[..], &output[..]].concat();
            let (code, shown) = run_with_kubeconfig(&fleet.kubeconfig(), &all).await;
            assert_eq!(
                code,
                Some(0),
                "{arguments:?}: {}",
                &shown[..shown.len().min(500)]
            );
        }
    }
    // Scripts read and return all levels.
    control.create(scripts()).await;
    control
        .merge_patch(&WIDGETS, ns, "w1000", json!({"spec": {"more": "z"}}))
        .await;
    let kept = |w: &Value| w["spec"]["more"] == "z" && w["spec"]["kept"] == w["spec"]["deep"];
    member
        .wait_until(&WIDGETS, ns, "w1000", "retained", kept)
        .await;
    let aggregated = json!({"deep": deep_value(990)});
    control
        .wait_until(&WIDGETS, ns, "w1000", "aggregated", |w| {
            w["status"] == aggregated
        })
        .await;
    // The Work of the deepest template would be too deep; an event says why.
    let object = deep_widget(ns, "deepest", MAX_OBJECT_DEPTH);
    control
        .create(policy(ns, "deepest", &object, &["member1"]))
        .await;
    control.create(object).await;
    wait_until("an event about the template", async || {
        let events = control.list(&EVENTS, ns).await;
        events.iter().any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["involvedObject"]["name"] == "deepest" && message.contains("exceeded max depth")
        })
    })
    .await;
}
