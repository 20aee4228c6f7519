//! Waits until controllers have seen what was written before: their caches follow the API server
//! a moment later, in the order of the writes to one resource.

use harness::ApiServerClient;
use harness::objects::{
    BINDINGS, CLUSTERS, CONFIG_MAPS, POLICIES, config_map, override_policy, policy,
};
use serde_json::{Value, json};

fn is_placed_in(count: usize) -> impl Fn(&Value) -> bool {
    move |binding| {
        let clusters = binding["spec"]["clusters"].as_array();
        clusters.is_some_and(|clusters| clusters.len() == count)
    }
}

/// Waits until the scheduler may place objects in all members: it has seen that they are ready,
/// what they serve, and that they have no taints. Until then it divides replicas among fewer, for
/// good.
pub(crate) async fn wait_until_members_are_schedulable(control: &ApiServerClient, members: usize) {
    let (ns, name) = ("default", "placed-everywhere");
    let object = config_map(ns, name, "v");
    let mut everywhere = policy(ns, name, &object, &[]);
    everywhere["spec"]["placement"] = json!({});
    control.create(everywhere).await;
    control.create(object).await;
    let binding = format!("{name}-configmap");
    let description = "placed in all members";
    control
        .wait_until(&BINDINGS, ns, &binding, description, is_placed_in(members))
        .await;
    control.delete(&CONFIG_MAPS, ns, name).await;
    control.delete(&POLICIES, ns, name).await;
    control.wait_until_deleted(&BINDINGS, ns, &binding).await;
}

/// Waits until the scheduler has seen these clusters as they are now: an object is placed in them
/// by a label that they get after all other changes.
pub(crate) async fn wait_until_scheduler_sees(
    control: &ApiServerClient,
    ns: &str,
    clusters: &[&str],
) {
    let label = format!("{ns}.example.org/seen");
    let labels = json!({ label: "yes" });
    for cluster in clusters {
        let patch = json!({"metadata": {"labels": labels}});
        control.merge_patch(&CLUSTERS, "", cluster, patch).await;
    }
    let name = "placed-by-label";
    let object = config_map(ns, name, "v");
    let mut by_label = policy(ns, name, &object, &[]);
    by_label["spec"]["placement"] = json!({
        "clusterAffinity": {"labelSelector": {"matchLabels": labels}},
        "clusterTolerations": [{"operator": "Exists"}]});
    control.create(by_label).await;
    control.create(object).await;
    let is_placed = is_placed_in(clusters.len());
    let binding = format!("{name}-configmap");
    control
        .wait_until(&BINDINGS, ns, &binding, "placed by a label", is_placed)
        .await;
}

/// Waits until the detector has seen the policies of a namespace and the templates of the kind of
/// `last`, by a new template of that kind with a policy of its own.
pub(crate) async fn wait_until_detector_sees(control: &ApiServerClient, ns: &str, last: Value) {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&last["kind"]), text(&last["metadata"]["name"]));
    control.create(policy(ns, &name, &last, &["member1"])).await;
    control.create(last).await;
    let binding = format!("{name}-{}", kind.to_lowercase());
    control.wait_until_exists(&BINDINGS, ns, &binding).await;
}

/// Waits until the override policies that a namespace has now are applied to what is propagated.
pub(crate) async fn wait_until_overrides_are_seen(
    control: &ApiServerClient,
    member: &ApiServerClient,
    ns: &str,
) {
    let name = "last-override";
    let object = config_map(ns, name, "before");
    let rules = json!([{"overriders": {"plaintext": [
        {"path": "/data/k", "operator": "replace", "value": "after"}]}}]);
    let overriding = override_policy(ns, name, &object, &rules);
    control.create(overriding).await;
    control
        .create(policy(ns, name, &object, &[&member.name]))
        .await;
    control.create(object).await;
    let is_overridden = |map: &Value| map["data"]["k"] == "after";
    member
        .wait_until(&CONFIG_MAPS, ns, name, "overridden", is_overridden)
        .await;
}
