//! Resource templates that the host stores: served API versions, concurrent writers, and CRDs that are
//! deleted and created again.

use client::{ResourcePath, WriteOptions};
use harness::ApiServerClient;
use harness::api_server_client::wait_until;
use harness::objects::{BINDINGS, DEPLOYMENTS, NAMESPACES, cluster_scoped, deployment, policy};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::host_workloads;
use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters, join};

const NS: &str = "templates";

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
static KARMADAS: Gvr = Gvr::from_static("operator.karmada.io", "v1alpha1", "karmadas");

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn host_objects_are_resource_templates() {
    // The members start when it is this control plane's turn.
    let Some(mut control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    let Some(members) = RealMemberClusters::start().await else {
        return;
    };
    control_plane.wait_until_available().await;
    for member in &members.all {
        join(
            &control_plane.client,
            &control_plane.host.kubeconfig,
            member,
        )
        .await;
    }
    run_scenario(&control_plane.client, &members).await;
    host_workloads::run_scenario(&mut control_plane, &members).await;
}

async fn run_scenario(host: &ApiServerClient, members: &RealMemberClusters) {
    host.create_namespace(NS).await;
    tokio::join!(
        check_served_versions(host, members),
        check_concurrent_writers(host, members),
        check_crd_lifecycle(host, members),
    );
    host.delete(&NAMESPACES, "", NS).await;
    host.wait_until_deleted(&NAMESPACES, "", NS).await;
}

/// Finds a resource by discovery, in the version that this host serves.
async fn served_resource(host: &ApiServerClient, group: &str, resource: &str) -> Gvr {
    let resources = host.api.discover().await.unwrap().resources;
    let mut all = resources.into_iter().map(|r| r.resource);
    all.find(|r| r.group == group && r.resource == resource)
        .unwrap()
}

/// Kinds whose API version differs between Kubernetes releases are templates in the version
/// that the host and the members serve.
async fn check_served_versions(host: &ApiServerClient, members: &RealMemberClusters) {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}});
    let table = [
        (
            ("batch", "cronjobs", "CronJob"),
            json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pod}}}),
        ),
        (
            ("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
            json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}),
        ),
        (
            (
                "autoscaling",
                "horizontalpodautoscalers",
                "HorizontalPodAutoscaler",
            ),
            json!({"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}),
        ),
    ];
    for ((group, resource, kind), spec) in table {
        let resource = served_resource(host, group, resource).await;
        let template = json!({"apiVersion": resource.api_version(), "kind": kind,
            "metadata": {"name": "old", "namespace": NS}, "spec": spec});
        let name = kind.to_lowercase();
        host.create(policy(NS, &name, &template, &MEMBER_NAMES))
            .await;
        let at = ResourcePath::collection(&resource, NS);
        let options = WriteOptions::default();
        host.api
            .create(at, template.into(), &options)
            .await
            .unwrap();
        for member in &members.all {
            member.server.wait_until_exists(&resource, NS, "old").await;
        }
    }
}

/// Other clients write the template meanwhile: none of their writes is lost, and Flotilla
/// writes its status.
async fn check_concurrent_writers(host: &ApiServerClient, members: &RealMemberClusters) {
    let template = deployment(NS, "web", 2);
    host.create(policy(NS, "web", &template, &MEMBER_NAMES))
        .await;
    host.create(template).await;
    for n in 0..60 {
        let note = json!({"metadata": {"annotations": {format!("example.org/n{n}"): "x"}}});
        host.merge_patch(&DEPLOYMENTS, NS, "web", note).await;
    }
    let ready = |d: &Value| d["status"]["readyReplicas"] == 4;
    let web = host
        .wait_until(&DEPLOYMENTS, NS, "web", "4 ready", ready)
        .await;
    let notes = web["metadata"]["annotations"].as_object().unwrap();
    let foreign_notes = notes.keys().filter(|k| k.starts_with("example.org/"));
    assert_eq!(foreign_notes.count(), 60);
    let written = web["metadata"]["managedFields"].as_array();
    assert!(written.is_some_and(|all| !all.is_empty()), "{web:#}");
    let binding = host
        .wait_until_exists(&BINDINGS, NS, "web-deployment")
        .await;
    let owner = &binding["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], web["metadata"]["uid"]);
    assert!(binding["metadata"].get("managedFields").is_none());

    let reasons = [
        "ApplyPolicySucceed",
        "SyncWorkSucceed",
        "AggregateStatusSucceed",
    ];
    wait_until("the template has its events", async || {
        let all = host.list(&EVENTS, NS).await;
        let about = |e: &&Value| e["involvedObject"]["name"] == "web";
        let recorded: Vec<&str> = all
            .iter()
            .filter(about)
            .filter_map(|e| e["reason"].as_str())
            .collect();
        reasons.iter().all(|r| recorded.contains(r))
    })
    .await;
    for member in &members.all {
        let space = harness::objects::execution_space(member.name);
        host.wait_until_exists(&NAMESPACES, "", &space).await;
    }
}

/// Instances of a CRD in a `karmada.io` group that Flotilla does not serve are templates, also
/// after the CRD was deleted and created again.
async fn check_crd_lifecycle(host: &ApiServerClient, members: &RealMemberClusters) {
    let definition = || {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "karmadas.operator.karmada.io"},
            "spec": {"group": "operator.karmada.io", "scope": "Namespaced",
                "names": {"plural": "karmadas", "singular": "karmada", "kind": "Karmada", "listKind": "KarmadaList"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}]}})
    };
    let everywhere = cluster_scoped(policy("", "karmadas", &definition(), &MEMBER_NAMES));
    host.create(everywhere).await;
    let template = json!({"apiVersion": "operator.karmada.io/v1alpha1", "kind": "Karmada",
        "metadata": {"name": "k", "namespace": NS}});
    host.create(policy(NS, "k", &template, &MEMBER_NAMES)).await;
    for _ in 0..2 {
        host.create(definition()).await;
        wait_until("the custom resource can be created", async || {
            let at = ResourcePath::collection(&KARMADAS, NS);
            let options = WriteOptions::default();
            let created = host.api.create(at, template.clone().into(), &options).await;
            created.is_ok()
        })
        .await;
        for member in &members.all {
            member.server.wait_until_exists(&KARMADAS, NS, "k").await;
        }
        host.delete(&DEFINITIONS, "", "karmadas.operator.karmada.io")
            .await;
        host.wait_until_deleted(&BINDINGS, NS, "k-karmada").await;
        for member in &members.all {
            let name = "karmadas.operator.karmada.io";
            member
                .server
                .wait_until_deleted(&DEFINITIONS, "", name)
                .await;
        }
    }
}
