//! The Service `web`, whose endpoints one cluster provides and others get.

use client::{ListOptions, ResourcePath};
use serde_json::{Value, json};

use crate::ApiServerClient;
use crate::api_server_client::wait_until;
use crate::objects::{
    DEFINITIONS, ENDPOINT_SLICES, SERVICE_EXPORTS, cluster_scoped, deployment, policy,
};

const NAME: &str = "web";

/// The Service of the pods of a Deployment `web`.
pub fn selecting_service(ns: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": ns, "name": NAME},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": 80, "targetPort": 8080}]}})
}

/// A MultiClusterService that brings the endpoints of providers to consumers.
pub fn multi_cluster_service(ns: &str, providers: &[&str], consumers: &[&str]) -> Value {
    let named = |names: &[&str]| -> Vec<Value> {
        let names = names.iter();
        names.map(|name| json!({"name": name})).collect()
    };
    json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"namespace": ns, "name": NAME}, "spec": {"types": ["CrossCluster"],
            "providerClusters": named(providers), "consumerClusters": named(consumers)}})
}

/// Exports the Service of a Deployment with two replicas from one cluster, and imports it into
/// another.
pub async fn share_service(control: &ApiServerClient, ns: &str, exporter: &str, importer: &str) {
    let export = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"namespace": ns, "name": NAME}});
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"namespace": ns, "name": NAME},
        "spec": {"type": "ClusterSetIP", "ports": [{"port": 80, "protocol": "TCP"}]}});
    for (name, object, cluster) in [
        (NAME, deployment(ns, NAME, 2), exporter),
        ("service", selecting_service(ns), exporter),
        ("export", export, exporter),
        ("import", import, importer),
    ] {
        control.create(policy(ns, name, &object, &[cluster])).await;
        control.create(object).await;
    }
}

/// The number of ready endpoints of a Service in a member.
async fn ready_endpoints(member: &ApiServerClient, ns: &str, service: &str) -> usize {
    let slices = member.list(&ENDPOINT_SLICES, ns).await;
    let of_service = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
    let endpoints =
        of_service.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints
        .filter(|e| e["conditions"]["ready"] == true)
        .count()
}

/// Waits until a member has so many ready endpoints of a Service.
pub async fn wait_for_service_endpoints(
    member: &ApiServerClient,
    ns: &str,
    service: &str,
    count: usize,
) {
    let description = format!("{count} endpoints of {service} in {}", member.name);
    wait_until(&description, async || {
        ready_endpoints(member, ns, service).await == count
    })
    .await;
}

/// Propagates the definitions of ServiceExport and ServiceImport to a cluster by a policy for each,
/// and waits until the cluster serves the kinds.
pub async fn propagate_service_definitions(
    control: &ApiServerClient,
    member: &ApiServerClient,
    cluster: &str,
) {
    for plural in ["serviceexports", "serviceimports"] {
        let name = format!("{plural}.multicluster.x-k8s.io");
        control.wait_until_exists(&DEFINITIONS, "", &name).await;
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": name}});
        let policy = cluster_scoped(policy("", plural, &definition, &[cluster]));
        control.create(policy).await;
        member.wait_until_exists(&DEFINITIONS, "", &name).await;
    }
    wait_until("exports in the member", async || {
        let exports = ResourcePath::collection(&SERVICE_EXPORTS, "default");
        let exports = member.api.list(exports, &ListOptions::default()).await;
        exports.is_ok()
    })
    .await;
}
