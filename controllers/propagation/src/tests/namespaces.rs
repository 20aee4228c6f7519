//! Tests of the propagation of namespaces.

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_OVERRIDES, CLUSTERS, WORKS};
use karmada_api::{names, well_known_keys};
use serde_json::{Value, json};

use super::{NAMESPACES, PropagationFixture, cluster, wait_until};
use karmada_api::FeatureGates;

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "uid": format!("{name}-uid"), "labels": labels}, "spec": {"finalizers": ["kubernetes"]}})
}

impl PropagationFixture {
    fn namespace_work(&self, cluster: &str, name: &str) -> Option<Value> {
        let work = names::work_name("Namespace", name, "");
        let space = names::execution_space_name(cluster);
        self.control_plane.get_object(&WORKS, &space, &work)
    }

    async fn wait_until_propagated(&self, name: &str) {
        wait_until(name, || {
            ["m1", "m2"]
                .iter()
                .all(|c| self.namespace_work(c, name).is_some())
        })
        .await;
    }
}

// proves: NSS-everywhere, NSS-owned, NSS-no-binding, NSS-new-cluster
#[tokio::test]
async fn a_namespace_has_a_work_in_every_cluster_and_no_binding() {
    let plane = PropagationFixture::new();
    let mut team = namespace("team", json!({"a": "b"}));
    team["status"] = json!({"phase": "Active"});
    plane.control_plane.seed(&NAMESPACES, team);
    let plane = plane.started().await;
    plane.wait_until_propagated("team").await;
    let work = plane.namespace_work("m1", "team").unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "team", "uid": "team-uid",
        "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(work["metadata"]["ownerReferences"], owner);
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["metadata"]["labels"]["a"], "b");
    assert_eq!(manifest["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(manifest.get("status"), None);
    // A new cluster gets all namespaces.
    plane.control_plane.seed(&CLUSTERS, cluster("m3"));
    wait_until("a new cluster", || {
        plane.namespace_work("m3", "team").is_some()
    })
    .await;
    for bindings in [&BINDINGS, &CLUSTER_BINDINGS] {
        assert_eq!(plane.control_plane.list_objects(bindings), [] as [Value; 0]);
    }
    plane.tasks.stop().await;
}

// proves: HST-skipped
#[tokio::test]
async fn the_cluster_of_the_control_plane_has_its_namespaces_already() {
    let plane = PropagationFixture::new();
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("kube-system", json!({})));
    let mut host = cluster("host");
    host["spec"]["id"] = "kube-system-uid".into();
    plane.control_plane.seed(&CLUSTERS, host);
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("team", json!({})));
    let plane = plane.started().await;
    plane.wait_until_propagated("team").await;
    assert_eq!(plane.namespace_work("host", "team"), None);
    plane.tasks.stop().await;
}

// proves: NSS-reserved, NSS-skip-label, NSS-ending
#[tokio::test]
async fn some_namespaces_are_not_propagated() {
    let plane = PropagationFixture::new();
    let skip = |value: &str| json!({well_known_keys::SKIP_AUTO_PROPAGATION: value});
    let mut ending = namespace("ending", json!({}));
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    ending["metadata"]["finalizers"] = json!(["keep"]);
    plane.control_plane.seed(&NAMESPACES, ending);
    for (name, labels) in [
        ("default", json!({})),
        ("kube-system", json!({})),
        ("karmada-system", json!({})),
        ("karmada-cluster", json!({})),
        ("karmada-es-m1", json!({})),
        ("private-x", json!({})),
        ("held", skip("true")),
        ("loud", skip("True")),
    ] {
        plane
            .control_plane
            .seed(&NAMESPACES, namespace(name, labels));
    }
    let mut plane = plane;
    plane
        .start_with(FeatureGates::default(), |options| {
            options.templates.skipped_namespaces = vec!["kube-.*".into(), "private-.*".into()];
        })
        .await;
    // Namespaces that match no exclusion are propagated; the last one shows that the others are
    // done.
    let free = [
        ("not-private-x", json!({})),
        ("no", skip("false")),
        ("last", json!({})),
    ];
    for (name, labels) in free {
        plane
            .control_plane
            .seed(&NAMESPACES, namespace(name, labels));
        plane.wait_until_propagated(name).await;
    }
    let there = || -> Vec<String> {
        let works = plane.control_plane.list_objects(&WORKS);
        let names = works
            .iter()
            .map(|w| &w["spec"]["workload"]["manifests"][0]["metadata"]["name"]);
        let mut names: Vec<_> = names.map(|n| n.as_str().unwrap().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(there(), ["last", "no", "not-private-x"]);
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("held", json!({})));
    plane.wait_until_propagated("held").await;
    // A Work stays when its namespace gets the skip label.
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("no", skip("true")));
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("later", json!({})));
    plane.wait_until_propagated("later").await;
    assert!(plane.namespace_work("m1", "no").is_some());
    plane.tasks.stop().await;
}

// proves: NSS-overrides, NSS-override-events
#[tokio::test]
async fn cluster_override_policies_apply_to_namespaces() {
    let plane = PropagationFixture::new();
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("team", json!({})));
    plane
        .control_plane
        .seed(&NAMESPACES, namespace("other", json!({})));
    let plane = plane.started().await;
    plane.wait_until_propagated("team").await;
    plane.wait_until_propagated("other").await;
    let label = |name: &str| {
        let work = plane.namespace_work("m1", name).unwrap();
        work["spec"]["workload"]["manifests"][0]["metadata"]["labels"]["team"].clone()
    };
    let policy = |selector: Value, value: &str| {
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterOverridePolicy",
            "metadata": {"name": "o", "generation": value.len()}, "spec": {"resourceSelectors": selector, "overrideRules": [{
                "targetCluster": {"clusterNames": ["m1"]},
                "overriders": {"labelsOverrider": [{"operator": "add", "value": {"team": value}}]}}]}})
    };
    // By name, then all.
    let one = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "team"}]);
    plane
        .control_plane
        .seed(&CLUSTER_OVERRIDES, policy(one, "a"));
    wait_until("one is changed", || label("team") == "a").await;
    assert_eq!(label("other"), Value::Null);
    let marks = plane.namespace_work("m1", "team").unwrap()["metadata"]["annotations"].clone();
    let applied = marks[well_known_keys::APPLIED_CLUSTER_OVERRIDES]
        .as_str()
        .unwrap();
    assert!(applied.contains(r#""policyName":"o""#), "{applied}");
    let all = json!([{"apiVersion": "v1", "kind": "Namespace"}]);
    plane
        .control_plane
        .seed(&CLUSTER_OVERRIDES, policy(all, "bb"));
    wait_until("all are changed", || {
        label("team") == "bb" && label("other") == "bb"
    })
    .await;
    plane.control_plane.remove(&CLUSTER_OVERRIDES, "", "o");
    wait_until("all are as they were", || {
        label("team").is_null() && label("other").is_null()
    })
    .await;
    plane.tasks.stop().await;
}
