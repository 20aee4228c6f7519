//! Services whose endpoints a MultiClusterService brings to other members.

use serde_json::json;

use crate::fleet::{ApiServerClient, FleetFixture, wait_for_namespace, wait_until};
use crate::objects::{
    BINDINGS, DEPLOYMENTS, ENDPOINT_SLICES, MULTI_CLUSTER_SERVICES, SERVICES, deployment, policy,
};
use crate::services::wait_for_service_endpoints;

async fn wait_for_endpoints(member: &ApiServerClient, ns: &str, count: usize) {
    wait_for_service_endpoints(member, ns, "web", count).await;
}

async fn scale(control: &ApiServerClient, ns: &str, replicas: usize) {
    let patch = json!({"spec": {"replicas": replicas}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", patch).await;
}

async fn wait_for_condition(control: &ApiServerClient, ns: &str, kind: &str) {
    wait_until(kind, async || {
        let service = control.get(&MULTI_CLUSTER_SERVICES, ns, "web").await;
        let conditions = service
            .as_ref()
            .and_then(|s| s["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == kind && c["status"] == "True")
    })
    .await;
}

// proves: MCS-follows, MCS-deleted, MCS-claimed
#[tokio::test]
async fn endpoints_of_the_provider_are_available_in_the_consumer() {
    let ns = "multi-cluster-services";
    let gate = &["--feature-gates", "MultiClusterService=true"];
    let fleet = FleetFixture::with_flags(gate, ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let deployment = deployment(ns, "web", 2);
    let to_provider = policy(ns, "web", &deployment, &["member1"]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": ns, "name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    let shared = json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"namespace": ns, "name": "web"}, "spec": {"types": ["CrossCluster"],
            "providerClusters": [{"name": "member1"}], "consumerClusters": [{"name": "member2"}]}});
    for object in [to_provider, deployment, shared, service] {
        control.create(object).await;
    }
    let consumer = fleet.member("member2");
    wait_for_endpoints(consumer, ns, 2).await;
    consumer.wait_until_exists(&SERVICES, ns, "web").await;
    let slices = consumer.list(&ENDPOINT_SLICES, ns).await;
    let dispatched = |slice: &&serde_json::Value| {
        slice["metadata"]["annotations"]["endpointslice.karmada.io/provision-cluster"] == "member1"
    };
    let slice = slices.iter().find(dispatched).unwrap();
    let name = slice["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("member1-web-"), "{name}");
    wait_for_condition(control, ns, "ServiceApplied").await;
    wait_for_condition(control, ns, "EndpointSliceDispatched").await;

    scale(control, ns, 3).await;
    wait_for_endpoints(consumer, ns, 3).await;
    scale(control, ns, 0).await;
    wait_for_endpoints(consumer, ns, 0).await;
    scale(control, ns, 1).await;
    wait_for_endpoints(consumer, ns, 1).await;

    control.delete(&MULTI_CLUSTER_SERVICES, ns, "web").await;
    control
        .wait_until_deleted(&MULTI_CLUSTER_SERVICES, ns, "web")
        .await;
    wait_for_endpoints(consumer, ns, 0).await;
    // As when a PropagationPolicy is deleted, the Service stays where it is.
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "web-service")
        .await;
    let labels = &binding["metadata"]["labels"];
    assert!(
        labels["binding.karmada.io/managed-by"].is_null(),
        "{labels}"
    );
    consumer.wait_until_exists(&SERVICES, ns, "web").await;
}
