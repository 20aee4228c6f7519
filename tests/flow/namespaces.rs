//! Namespaces that are synced to all members.

use serde_json::json;

use crate::flow::fleet::{FleetFixture, wait_for_namespace};
use crate::flow::objects::{
    CLUSTER_OVERRIDES, CONFIG_MAPS, NAMESPACES, WORKS, config_map, execution_space, policy,
};

const SKIP_LABEL: &str = "namespace.karmada.io/skip-auto-propagation";

// proves: NSS-everywhere, NSS-skip-label
#[tokio::test]
async fn namespace_is_synced_to_all_members_and_deleted_with_its_content() {
    let ns = "spaces";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    control
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spaces-skipped", "labels": {SKIP_LABEL: "true"}}}))
        .await;
    control
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spaces-labelled", "labels": {"team": "a"}}}))
        .await;
    wait_for_namespace(&fleet, ns).await;
    wait_for_namespace(&fleet, "spaces-labelled").await;
    let one = fleet.member("member1");
    let there = one.get(&NAMESPACES, "", "spaces-labelled").await.unwrap();
    assert_eq!(there["metadata"]["labels"]["team"], "a");
    assert_eq!(one.get(&NAMESPACES, "", "spaces-skipped").await, None);

    let object = config_map(ns, "c", "v");
    control.create(policy(ns, "p", &object, &["member1"])).await;
    control.create(object).await;
    one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    control.delete(&NAMESPACES, "", ns).await;
    control.wait_until_deleted(&NAMESPACES, "", ns).await;
    for member in &fleet.members {
        member.wait_until_deleted(&NAMESPACES, "", ns).await;
        let work = karmada_api::names::work_name("Namespace", ns, "");
        control
            .wait_until_deleted(&WORKS, &execution_space(&member.name), &work)
            .await;
    }
    assert_eq!(one.get(&CONFIG_MAPS, ns, "c").await, None);

    // The same name may be used again.
    control.create_namespace(ns).await;
    wait_for_namespace(&fleet, ns).await;
}

// proves: NSS-overrides, NSS-override-events, NSS-owned
#[tokio::test]
async fn cluster_overrides_apply_to_namespaces() {
    let ns = "spaces-changed";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    wait_for_namespace(&fleet, ns).await;
    let rules = json!([{
        "targetCluster": {"clusterNames": ["member1"]},
        "overriders": {"labelsOverrider": [{"operator": "add", "value": {"team": "b"}}]},
    }]);
    let selector = json!({"apiVersion": "v1", "kind": "Namespace", "name": ns});
    control
        .create(json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterOverridePolicy",
            "metadata": {"name": ns}, "spec": {"resourceSelectors": [selector], "overrideRules": rules}}))
        .await;
    let (one, two) = (fleet.member("member1"), fleet.member("member2"));
    one.wait_until(&NAMESPACES, "", ns, "changed", |n| {
        n["metadata"]["labels"]["team"] == "b"
    })
    .await;
    let name = karmada_api::names::work_name("Namespace", ns, "");
    let applied = "policy.karmada.io/applied-cluster-overrides";
    let work = control
        .wait_until_exists(&WORKS, &execution_space("member1"), &name)
        .await;
    let text = work["metadata"]["annotations"][applied].as_str().unwrap();
    assert!(text.contains(&format!("\"policyName\":\"{ns}\"")), "{text}");
    let owner = &work["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Namespace"), &json!(ns))
    );
    let untouched = two.get(&NAMESPACES, "", ns).await.unwrap();
    assert!(untouched["metadata"]["labels"]["team"].is_null());

    control.delete(&CLUSTER_OVERRIDES, "", ns).await;
    one.wait_until(&NAMESPACES, "", ns, "as it was", |n| {
        n["metadata"]["labels"]["team"].is_null()
    })
    .await;
}
