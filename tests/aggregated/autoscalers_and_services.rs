//! Autoscalers, MultiClusterServices and ServiceExports whose targets the host stores, and Karmada's user guide.
//!
//! Simulated members have metrics of their pods, and EndpointSlices of the version that the control
//! plane reads. The slow test has a member of real components beside them.

use std::path::Path;

use client::{ListOptions, ResourcePath};
use harness::api_server_client::{find_condition, wait_until};
use harness::cluster::FRONT_PROXY_NAME;
use harness::kubectl::Kubectl;
use harness::objects::{
    BINDINGS, CRON_FEDERATED_HPAS, DEPLOYMENTS, ENDPOINT_SLICES, FEDERATED_HPAS,
    MULTI_CLUSTER_SERVICES, PODS, SERVICE_EXPORTS, SERVICES, cpu_utilization, cron_federated_hpa,
    deployment, federated_hpa, policy,
};
use harness::shared_services::{
    multi_cluster_service, propagate_service_definitions, selecting_service, share_service,
    wait_for_service_endpoints,
};
use harness::{ApiServerClient, ServerProcess};
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{
    BINARY, RealMemberCluster, join, join_cluster, path_string,
};
use crate::aggregated::simulated_member::SimulatedMember;
use crate::cli::guide_families::{self, follow_guide};

const NS: &str = "default";
const REAL: &str = "real";
/// The simulated members have the names of the guide.
pub(crate) const PROVIDER: &str = "member1";
pub(crate) const CONSUMER: &str = "member2";

/// The host's Deployment gets its replicas from a schedule, and its pods start in a real member.
async fn scale_by_schedule(control: &ApiServerClient, member: &RealMemberCluster) {
    let object = deployment(NS, "scheduled", 1);
    control
        .create(policy(NS, "scheduled", &object, &[REAL]))
        .await;
    control.create(object).await;
    control.create(cron_federated_hpa(NS, "scheduled", 3)).await;
    let executed = |cron: &Value| {
        let execution = &cron["status"]["executionHistories"][0]["successfulExecutions"][0];
        execution["appliedReplicas"] == 3
    };
    control
        .wait_until(&CRON_FEDERATED_HPAS, NS, "scheduled", "executed", executed)
        .await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 3;
    for client in [&member.server, control] {
        client
            .wait_until(&DEPLOYMENTS, NS, "scheduled", "three ready", ready)
            .await;
    }
    assert_eq!(member.server.list(&PODS, NS).await.len(), 3);
}

/// The host's Deployment follows the usage in a member.
async fn scale_by_usage(control: &ApiServerClient) {
    let mut object = deployment(NS, "used", 1);
    // A pod in a simulated member uses half of what it requests.
    object["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}});
    control
        .create(policy(NS, "used", &object, &[PROVIDER]))
        .await;
    control.create(object).await;
    let metrics = json!([cpu_utilization(25)]);
    control
        .create(federated_hpa(NS, "used", "used", 2, &metrics))
        .await;
    let scaled = |d: &Value| d["spec"]["replicas"] == 2;
    control
        .wait_until(&DEPLOYMENTS, NS, "used", "two replicas", scaled)
        .await;
    let is_active = |hpa: &Value| {
        find_condition(hpa, "ScalingActive")["status"] == "True"
            && hpa["status"]["currentReplicas"] == 2
    };
    control
        .wait_until(&FEDERATED_HPAS, NS, "used", "active", is_active)
        .await;
}

/// Kubernetes 1.20 has EndpointSlices of v1beta1 only. An extension API server gives the host
/// EndpointSlices of v1. `None`: the host is newer and has them itself.
async fn serve_endpoint_slices(
    control_plane: &AggregatedControlPlane,
    dir: &Path,
) -> Option<ServerProcess> {
    let (host, client) = (&control_plane.host, &control_plane.client);
    if are_endpoint_slices_served(client).await {
        return None;
    }
    let data = path_string(&dir.join("data"));
    let front_proxy_ca = host.kubeconfig.with_file_name("front").join("ca.crt");
    let (ca, log) = (path_string(&front_proxy_ca), dir.join("log"));
    let start = move || {
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &data,
            "--client-ca-file",
            &ca,
            // It has no Works, and would delete the slices that the host imports.
            "--controllers=*,-endpointSlice",
        ];
        ServerProcess::start(BINARY, &arguments, &log)
    };
    let (process, address) = tokio::task::spawn_blocking(start).await.unwrap();
    let server = ApiServerClient::connect("slices", &dir.join("data/kubeconfig"));
    let rights = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "front-proxy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": FRONT_PROXY_NAME}]});
    server.create(rights).await;
    server.create_namespace(guide_families::NAMESPACE).await;
    let (_, port) = address.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": NS, "name": "slices"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    client.create(service).await;
    let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.discovery.k8s.io"},
        "spec": {"group": "discovery.k8s.io", "version": "v1", "groupPriorityMinimum": 16200,
            "versionPriority": 20, "insecureSkipTLSVerify": true,
            "service": {"namespace": NS, "name": "slices", "port": port}}});
    client.create(registration).await;
    wait_until("EndpointSlices of v1", async || {
        are_endpoint_slices_served(client).await
    })
    .await;
    Some(process)
}

async fn are_endpoint_slices_served(client: &ApiServerClient) -> bool {
    let at = ResourcePath::collection(&ENDPOINT_SLICES, NS);
    client.api.list(at, &ListOptions::default()).await.is_ok()
}

async fn scale_to_three(control: &ApiServerClient, ns: &str) {
    let more = json!({"spec": {"replicas": 3}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", more).await;
}

/// A MultiClusterService brings endpoints of one member to another.
async fn share_endpoints(control: &ApiServerClient, consumer: &ApiServerClient) {
    let ns = "shared";
    control.create_namespace(ns).await;
    let object = deployment(ns, "web", 2);
    for object in [
        policy(ns, "web", &object, &[PROVIDER]),
        object,
        selecting_service(ns),
        multi_cluster_service(ns, &[PROVIDER], &[CONSUMER]),
    ] {
        control.create(object).await;
    }
    wait_for_service_endpoints(consumer, ns, "web", 2).await;
    consumer.wait_until_exists(&SERVICES, ns, "web").await;
    scale_to_three(control, ns).await;
    wait_for_service_endpoints(consumer, ns, "web", 3).await;

    control.delete(&MULTI_CLUSTER_SERVICES, ns, "web").await;
    control
        .wait_until_deleted(&MULTI_CLUSTER_SERVICES, ns, "web")
        .await;
    wait_for_service_endpoints(consumer, ns, "web", 0).await;
    control
        .wait_until_exists(&BINDINGS, ns, "web-service")
        .await;
}

/// A ServiceExport and a ServiceImport do the same under the name of a derived Service.
async fn export_endpoints(control: &ApiServerClient, consumer: &ApiServerClient) {
    // The server of EndpointSlices has few namespaces of the host.
    let (ns, derived) = (NS, "derived-web");
    share_service(control, ns, PROVIDER, CONSUMER).await;
    wait_for_service_endpoints(consumer, ns, derived, 2).await;
    consumer.wait_until_exists(&SERVICES, ns, derived).await;
    scale_to_three(control, ns).await;
    wait_for_service_endpoints(consumer, ns, derived, 3).await;
    control.delete(&SERVICE_EXPORTS, ns, "web").await;
    wait_for_service_endpoints(consumer, ns, derived, 0).await;
}

/// Starts Flotilla with the feature gates of the guide behind a host that serves EndpointSlices, and
/// joins the members of the guide.
pub(crate) async fn start_with_members(
    control_plane: &mut AggregatedControlPlane,
    flags: &[&str],
    [provider, consumer]: [&SimulatedMember; 2],
    dir: &Path,
) -> Option<ServerProcess> {
    let slices = serve_endpoint_slices(control_plane, dir).await;
    let flags = [&guide_families::FEATURE_GATES[..], flags].concat();
    control_plane.start_flotilla_with(&flags);
    control_plane.wait_until_available().await;
    let (control, kubeconfig) = (&control_plane.client, &control_plane.host.kubeconfig);
    join_cluster(control, kubeconfig, PROVIDER, &provider.kubeconfig()).await;
    join_cluster(control, kubeconfig, CONSUMER, &consumer.kubeconfig()).await;
    slices
}

pub(crate) async fn run_scenario(control: &ApiServerClient, consumer: &ApiServerClient) {
    tokio::join!(
        scale_by_usage(control),
        share_endpoints(control, consumer),
        export_endpoints(control, consumer),
        propagate_service_definitions(control, consumer, CONSUMER),
    );
}

// proves: CRH-host
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn schedules_act_and_the_guide_is_followed_behind_a_host() {
    let simulated = async {
        (
            SimulatedMember::start(PROVIDER).await,
            SimulatedMember::start(CONSUMER).await,
        )
    };
    let (Some(mut control_plane), Some((real, _etcd)), (provider, consumer)) = tokio::join!(
        AggregatedControlPlane::prepare(),
        RealMemberCluster::start(REAL),
        simulated
    ) else {
        return;
    };
    let Some(_) = harness::tools(["kubectl-1.36"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let members = [&provider, &consumer];
    let _slices = start_with_members(&mut control_plane, &[], members, dir.path()).await;
    let (control, kubeconfig) = (&control_plane.client, &control_plane.host.kubeconfig);
    join(control, kubeconfig, &real).await;
    let namespace = guide_families::NAMESPACE;
    let kubectl = Kubectl::of_1_36(kubeconfig, dir.path(), namespace).unwrap();
    tokio::join!(
        scale_by_schedule(control, &real),
        follow_guide(kubectl, control, [&provider.server, &consumer.server]),
    );
}
