//! Services whose endpoints a MultiClusterService brings to other members.

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::FlotillaUpProcess;
use harness::shared_services::{
    multi_cluster_service, selecting_service, wait_for_service_endpoints,
};
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, BINARY, FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{
    BINDINGS, DEPLOYMENTS, ENDPOINT_SLICES, MULTI_CLUSTER_SERVICES, SERVICES, deployment, policy,
};
use crate::flow::pull_members::{NAME, PullFixture};

const GATE: &[&str] = &["--feature-gates", "MultiClusterService=true"];

fn service(ns: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": ns, "name": "web"},
        "spec": spec})
}

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
    let fleet = FleetFixture::with_flags(GATE, ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let deployment = deployment(ns, "web", 2);
    let to_provider = policy(ns, "web", &deployment, &["member1"]);
    let service = selecting_service(ns);
    let shared = multi_cluster_service(ns, &["member1"], &["member2"]);
    for object in [to_provider, deployment, shared, service] {
        control.create(object).await;
    }
    let consumer = fleet.member("member2");
    wait_for_endpoints(consumer, ns, 2).await;
    consumer.wait_until_exists(&SERVICES, ns, "web").await;
    let slices = consumer.list(&ENDPOINT_SLICES, ns).await;
    let dispatched = |slice: &&Value| {
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
    // The Service stays where it is, as after the deletion of a PropagationPolicy.
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

// proves: MCS-agent
#[tokio::test]
async fn the_agent_of_a_pull_member_provides_its_endpoints() {
    let ns = "pulled-providers";
    let start = || FlotillaUpProcess::start(BINARY, 1, GATE);
    let up = tokio::task::spawn_blocking(start).await.unwrap();
    let fleet = PullFixture::beside(Arc::new(up), NAME, None).await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, GATE).await;
    let control = &fleet.control;
    control.wait_until_cluster_ready(NAME).await;
    control.create_namespace(ns).await;
    let deployment = deployment(ns, "web", 2);
    for object in [
        policy(ns, "web", &deployment, &[NAME]),
        deployment,
        multi_cluster_service(ns, &[NAME], &["member1"]),
        selecting_service(ns),
    ] {
        control.create(object).await;
    }
    let members = fleet.up.members();
    let consumer = members.iter().find(|m| m.name == "member1").unwrap();
    wait_for_endpoints(consumer, ns, 2).await;
    scale(control, ns, 3).await;
    wait_for_endpoints(consumer, ns, 3).await;
    control.delete(&MULTI_CLUSTER_SERVICES, ns, "web").await;
    wait_for_endpoints(consumer, ns, 0).await;
}

/// A slice that no controller of the member manages.
fn own_slice(ns: &str, address: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": ns, "name": "web-1",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]})
}

/// The addresses in a member by the names of their slices.
async fn addresses(member: &ApiServerClient, ns: &str) -> BTreeMap<String, Value> {
    let slices = member.list(&ENDPOINT_SLICES, ns).await;
    let named = slices.iter().map(|slice| {
        let name = slice["metadata"]["name"].as_str().unwrap();
        (
            name.to_owned(),
            slice["endpoints"][0]["addresses"][0].clone(),
        )
    });
    named.collect()
}

async fn wait_for_addresses(member: &ApiServerClient, ns: &str, expected: &[(&str, &str)]) {
    let named = |(name, address): &(&str, &str)| ((*name).to_owned(), json!(address));
    let expected: BTreeMap<_, _> = expected.iter().map(named).collect();
    wait_until(&format!("{expected:?} in {}", member.name), async || {
        addresses(member, ns).await == expected
    })
    .await;
}

// proves: MCS-same-names
#[tokio::test]
async fn slices_of_one_name_come_from_each_provider() {
    let ns = "same-names";
    let fleet = FleetFixture::with_flags(GATE, ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let [first, second, third] = ["member1", "member2", "member3"].map(|name| fleet.member(name));
    first.create(own_slice(ns, "10.1.0.1")).await;
    second.create(own_slice(ns, "10.2.0.1")).await;
    let providers = ["member1", "member2"];
    // A provider that is a consumer gets the endpoints of the other.
    let consumers = ["member1", "member3"];
    control
        .create(multi_cluster_service(ns, &providers, &consumers))
        .await;
    control
        .create(service(ns, json!({"ports": [{"port": 80}]})))
        .await;
    let (own, from_first, from_second) = ("web-1", "member1-web-1", "member2-web-1");
    let both = [(from_first, "10.1.0.1"), (from_second, "10.2.0.1")];
    wait_for_addresses(third, ns, &both).await;
    let others = [(own, "10.1.0.1"), (from_second, "10.2.0.1")];
    wait_for_addresses(first, ns, &others).await;
    wait_for_addresses(second, ns, &[(own, "10.2.0.1")]).await;

    let changed = json!({"endpoints": own_slice(ns, "10.2.0.2")["endpoints"]});
    second.merge_patch(&ENDPOINT_SLICES, ns, own, changed).await;
    let both = [(from_first, "10.1.0.1"), (from_second, "10.2.0.2")];
    wait_for_addresses(third, ns, &both).await;
    let others = [(own, "10.1.0.1"), (from_second, "10.2.0.2")];
    wait_for_addresses(first, ns, &others).await;

    // The slices that the first cluster provided end, and the others stay, whatever the name of their Work.
    first.delete(&ENDPOINT_SLICES, ns, own).await;
    wait_for_addresses(third, ns, &[(from_second, "10.2.0.2")]).await;
    wait_for_addresses(first, ns, &[(from_second, "10.2.0.2")]).await;
    first.create(own_slice(ns, "10.1.0.9")).await;
    let both = [(from_first, "10.1.0.9"), (from_second, "10.2.0.2")];
    wait_for_addresses(third, ns, &both).await;
    control.delete(&MULTI_CLUSTER_SERVICES, ns, "web").await;
    wait_for_addresses(third, ns, &[]).await;
    wait_for_addresses(first, ns, &[(own, "10.1.0.9")]).await;
}
