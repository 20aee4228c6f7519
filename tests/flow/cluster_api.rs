//! Clusters that Cluster API provisions are joined, and removed when they are deleted.

use client::{DeleteOptions, ResourcePath, WriteOptions};
use harness::FlotillaUpProcess;
use machinery::Gvr;
use serde_json::json;

use crate::flow::fleet::{ApiServerClient, BINARY, find_condition, wait_until};
use crate::flow::member_outage::start_member;
use crate::flow::objects::{CLUSTERS, DEFINITIONS};

static SOURCES: Gvr = Gvr::from_static("cluster.x-k8s.io", "v1beta2", "clusters");
const NAME: &str = "provisioned";

/// Serves Cluster API's Clusters, without a status subresource.
async fn define_clusters(management: &ApiServerClient) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {"group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "Cluster", "listKind": "ClusterList", "plural": "clusters", "singular": "cluster"},
            "versions": [{"name": "v1beta2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    management.create(definition).await;
    let name = "clusters.cluster.x-k8s.io";
    management
        .wait_until(&DEFINITIONS, "", name, "established", |d| {
            find_condition(d, "Established")["status"] == "True"
        })
        .await;
}

// proves: CAP-join
#[tokio::test]
async fn a_provisioned_cluster_is_joined_until_it_is_deleted() {
    let (infra, workload) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _processes = (
        start_member(infra.path()).await,
        start_member(workload.path()).await,
    );
    let config = infra.path().join("kubeconfig");
    let management = ApiServerClient::connect("management", &config);
    define_clusters(&management).await;
    let kubeconfig = std::fs::read_to_string(workload.path().join("kubeconfig")).unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "default", "name": format!("{NAME}-kubeconfig")},
        "stringData": {"value": kubeconfig}});
    management.create(secret).await;
    let source = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"namespace": "default", "name": NAME}, "status": {"phase": "Provisioned"}});
    let at = ResourcePath::collection(&SOURCES, "default");
    let options = WriteOptions::default();
    // The kind is served a moment after its definition is established.
    wait_until("the Cluster", async || {
        let created = management.api.create(at, source.clone().into(), &options);
        created.await.is_ok()
    })
    .await;

    let config = config.display().to_string();
    let start = move || FlotillaUpProcess::start(BINARY, 1, &["--cluster-api-kubeconfig", &config]);
    let up = tokio::task::spawn_blocking(start).await.unwrap();
    let control = up.control_plane();
    let joined = control.wait_until_cluster_ready(NAME).await;
    let annotations = &joined["metadata"]["annotations"];
    assert_eq!(
        annotations["flotilla.io/cluster-api-cluster"],
        "default/provisioned"
    );

    let at = ResourcePath::object(&SOURCES, "default", NAME);
    management
        .api
        .delete(at, &DeleteOptions::default())
        .await
        .unwrap();
    control.wait_until_deleted(&CLUSTERS, "", NAME).await;
    assert!(control.get(&CLUSTERS, "", "member1").await.is_some());
}
