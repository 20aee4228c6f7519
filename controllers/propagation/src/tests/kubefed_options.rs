//! Tests of what KubeFed could do and Karmada cannot: kinds that are switched at run time, the gate of
//! a namespace, objects that a member keeps for itself, and overrides of retained fields.

use karmada_api::ClusterAffinity;
use karmada_api::resources::{
    BINDINGS, CLUSTER_BINDINGS, FEDERATED_TYPE_CONFIGS, OVERRIDES, POLICIES, WORKS,
};
use karmada_api::well_known_keys::{
    NAMESPACE_GATE, OVERRIDE_RETAINED, RETAIN_REPLICAS, SKIP_AUTO_PROPAGATION,
};
use karmada_api::{TYPE_CONFIG_NAMESPACE, names};
use serde_json::{Value, json};

use super::work_fixtures::one_map;
use super::{
    CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PropagationFixture, deployment, policy, wait_until,
};

const DEPLOYMENT_CONFIG: &str = "deployments.apps";

impl PropagationFixture {
    /// Writes the configuration of Deployments.
    fn switch_deployments(&self, generation: i64, propagation: &str, status_collection: &str) {
        let target = json!({"group": "apps", "version": "v1", "kind": "Deployment",
            "pluralName": "deployments", "scope": "Namespaced"});
        self.control_plane.seed(
            &FEDERATED_TYPE_CONFIGS,
            json!({"apiVersion": "core.kubefed.io/v1beta1", "kind": "FederatedTypeConfig",
                "metadata": {"name": DEPLOYMENT_CONFIG, "namespace": TYPE_CONFIG_NAMESPACE, "generation": generation},
                "spec": {"targetType": target, "propagation": propagation, "statusCollection": status_collection}}),
        );
    }

    async fn wait_for_type_status(&self, generation: i64, expected: [&str; 2]) {
        let [propagation, status] = expected;
        let expected = json!({"observedGeneration": generation,
            "propagationController": propagation, "statusController": status});
        wait_until("the status of the configuration", || {
            let config = self.control_plane.get_object(
                &FEDERATED_TYPE_CONFIGS,
                TYPE_CONFIG_NAMESPACE,
                DEPLOYMENT_CONFIG,
            );
            config.is_some_and(|config| config["status"] == expected)
        })
        .await;
    }

    fn replicas_in(&self, member: usize, name: &str) -> Value {
        let deployment = self.deployment_in_member(member, name).unwrap_or_default();
        deployment["spec"]["replicas"].clone()
    }

    fn status_collection_of(&self, name: &str) -> Value {
        let work = self.work("m1", name).unwrap_or_default();
        work["metadata"]["annotations"]["flotilla.io/status-collection"].clone()
    }
}

// proves: DET-type-config-off, DET-type-config-on, DET-type-config-status
#[tokio::test]
async fn a_kind_is_switched_off_and_on_while_the_controllers_run() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    plane.switch_deployments(1, "Disabled", "Enabled");
    plane
        .wait_for_type_status(1, ["NotRunning", "Running"])
        .await;
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 7.into());
    plane.control_plane.seed(&DEPLOYMENTS, deployment("new"));
    plane.edit(&POLICIES, "p", |p| {
        p["spec"]["preserveResourcesOnDeletion"] = true.into();
    });
    // Another kind shows that the controllers have had their turn.
    let mut config_map_policy =
        policy(json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}));
    config_map_policy["metadata"]["name"] = "maps".into();
    config_map_policy["metadata"]["labels"] =
        json!({karmada_api::well_known_keys::POLICY_ID: "maps-id"});
    plane.control_plane.seed(&POLICIES, config_map_policy);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
    plane.control_plane.seed(&CONFIG_MAPS, map);
    wait_until("another kind", || {
        plane.members[1]
            .get_object(&CONFIG_MAPS, "n", "c")
            .is_some()
    })
    .await;
    assert_eq!(
        [plane.replicas_in(0, "web"), plane.replicas_in(1, "web")],
        [4, 4]
    );
    assert_eq!(plane.binding("new-deployment"), None);
    let preserves = || {
        let work = plane.work("m1", "web").unwrap_or_default();
        work["spec"]["preserveResourcesOnDeletion"].clone()
    };
    assert_eq!(preserves(), false);
    plane.switch_deployments(2, "Enabled", "Enabled");
    wait_until("the edits", || {
        plane.replicas_in(0, "web") == 7
            && preserves() == true
            && plane.deployment_in_member(0, "new").is_some()
    })
    .await;
    plane.wait_for_type_status(2, ["Running", "Running"]).await;
    plane.tasks.stop().await;
}

// proves: DET-type-config-flag
#[tokio::test]
async fn a_configuration_switches_a_kind_on_that_the_flag_skips() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane
        .start_with(karmada_api::FeatureGates::default(), |options| {
            options.templates.skipped_apis = vec!["apps".into()];
        })
        .await;
    assert_eq!(plane.binding("web-deployment"), None);
    plane.switch_deployments(1, "Enabled", "Enabled");
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
}

// proves: WRK-status-collection
#[tokio::test]
async fn works_say_that_no_status_is_collected() {
    let plane = PropagationFixture::new();
    plane.switch_deployments(1, "Enabled", "Disabled");
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    assert_eq!(plane.status_collection_of("web"), "Disabled");
    plane
        .wait_for_type_status(1, ["Running", "NotRunning"])
        .await;
    plane.switch_deployments(2, "Enabled", "Enabled");
    wait_until("the collection", || {
        plane.status_collection_of("web").is_null()
    })
    .await;
    plane.tasks.stop().await;
}

fn namespace(annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
        "labels": {SKIP_AUTO_PROPAGATION: "true"}, "annotations": annotations}})
}

/// The binding of the namespace, as the scheduler has placed it.
fn namespace_binding(clusters: &[&str]) -> Value {
    let clusters: Value = clusters.iter().map(|name| json!({"name": name})).collect();
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding",
        "metadata": {"name": names::binding_name("Namespace", "n")},
        "spec": {"resource": {"apiVersion": "v1", "kind": "Namespace", "name": "n"}, "clusters": clusters}})
}

// proves: DET-namespace-gate, DET-namespace-gate-changes, BND-gate
#[tokio::test]
async fn contents_go_only_where_their_namespace_goes() {
    let plane = PropagationFixture::new();
    let gate = json!({NAMESPACE_GATE: "true"});
    plane.control_plane.seed(&NAMESPACES, namespace(gate));
    plane
        .control_plane
        .seed(&CLUSTER_BINDINGS, namespace_binding(&["m2"]));
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    let placement = || {
        let binding = plane.binding("web-deployment").unwrap_or_default();
        binding["spec"]["placement"]["clusterAffinity"].clone()
    };
    wait_until("the binding", || {
        placement() == json!({"clusterNames": ["m2"]})
    })
    .await;
    // Nobody goes around the gate by a binding.
    plane.edit(&BINDINGS, "web-deployment", |binding| {
        let outside = json!([{"namespace": "n", "name": "r", "clusters": [{"name": "m1"}]}]);
        let spec = &mut binding["spec"];
        spec["clusters"] = json!([{"name": "m2", "replicas": 1}]);
        spec["requiredBy"] = outside;
        spec["suspension"] = json!({"dispatching": true});
    });
    wait_until("the binding that was written", || {
        let work = plane.work("m2", "web").unwrap_or_default();
        work["spec"]["suspendDispatching"] == true
    })
    .await;
    assert_eq!(plane.work("m1", "web"), None);
    plane
        .control_plane
        .seed(&CLUSTER_BINDINGS, namespace_binding(&["m1", "m2"]));
    wait_until("a wider gate", || plane.work("m1", "web").is_some()).await;
    plane
        .control_plane
        .seed(&CLUSTER_BINDINGS, namespace_binding(&[]));
    wait_until("no cluster", || {
        placement() == serde_json::to_value(ClusterAffinity::nowhere()).unwrap()
    })
    .await;
    plane.control_plane.seed(&NAMESPACES, namespace(json!({})));
    wait_until("the policy alone", || {
        placement() == json!({"clusterNames": ["m1", "m2"]})
    })
    .await;
    plane.tasks.stop().await;
}

// proves: EXE-left-alone, EXE-left-alone-condition
#[tokio::test]
async fn an_object_that_the_member_keeps_is_left_alone() {
    let plane = PropagationFixture::new();
    let mut kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n",
        "labels": {"kubefed.io/managed": "false"}}, "data": {"k": "own"}});
    plane.members[0].seed(&CONFIG_MAPS, kept.clone());
    plane.control_plane.seed(&WORKS, one_map());
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let condition = plane.work_condition("Propagated");
    assert_eq!(
        (
            &condition["status"],
            &condition["reason"],
            &condition["message"]
        ),
        (
            &json!("False"),
            &json!("ManagedLabelFalse"),
            &json!("ConfigMap n/c has the label kubefed.io/managed=false in the cluster")
        )
    );
    assert_eq!(plane.config_map().unwrap()["data"], json!({"k": "own"}));
    // The object becomes one of ours, and is kept then: it outlives its Work.
    kept["metadata"]["labels"] =
        json!({"karmada.io/managed": "true", "flotilla.io/managed": "false"});
    plane.members[0].seed(&CONFIG_MAPS, kept);
    plane.delete_work().await;
    plane.wait_until_work_deleted().await;
    assert!(plane.config_map().is_some());
    plane.tasks.stop().await;
}

// proves: EXE-overridden, OVR-retained
#[tokio::test]
async fn an_override_wins_over_a_retained_field_if_it_says_so() {
    let plane = PropagationFixture::new();
    let mut web = deployment("web");
    web["metadata"]["labels"] = json!({RETAIN_REPLICAS: "true"});
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, web);
    let mut override_policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "o", "namespace": "n", "generation": 1},
        "spec": {"overrideRules": [{"targetCluster": {"clusterNames": ["m1"]}, "overriders":
            {"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 3}]}}]}});
    plane
        .control_plane
        .seed(&OVERRIDES, override_policy.clone());
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let scale = |member: usize| {
        let mut scaled = plane.deployment_in_member(member, "web").unwrap();
        scaled["spec"]["replicas"] = 9.into();
        let generation = scaled["metadata"]["generation"].as_i64().unwrap_or(1);
        scaled["metadata"]["generation"] = (generation + 1).into();
        plane.members[member].seed(&DEPLOYMENTS, scaled);
    };
    scale(0);
    scale(1);
    // The annotation alone, without an edit of the rules.
    override_policy["metadata"]["annotations"] = json!({OVERRIDE_RETAINED: "true"});
    plane.control_plane.seed(&OVERRIDES, override_policy);
    wait_until("the override", || plane.replicas_in(0, "web") == 3).await;
    assert_eq!(plane.replicas_in(1, "web"), 9, "no rule for this cluster");
    scale(0);
    wait_until("the repair", || plane.replicas_in(0, "web") == 3).await;
    assert!(plane.control_plane.list_objects(&BINDINGS).len() == 1);
    plane.tasks.stop().await;
}
