//! Tests of the controllers together, from a MultiClusterService to Works for the consumers.

use std::sync::Arc;

use client::{InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::EventRecorder;
use karmada_api::FeatureGates;
use karmada_api::names::work_name;
use karmada_api::resources::{BINDINGS, CLUSTERS, MULTI_CLUSTER_SERVICES, WORKS};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::fixture::{FakeMemberConnections, context, options, wait_until};
use crate::slice_fields::MAX_SLICES;
use crate::{ENDPOINT_SLICES, EnabledServiceControllers, SERVICES, start};

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
const PROVIDER: &str = "karmada-es-p";
const CONSUMER: &str = "karmada-es-c";

/// A provider `p` with endpoints of the Service `web`, and a consumer `c`.
struct Fixture {
    control: Arc<FakeApi>,
    provider: Arc<FakeApi>,
    /// Informers stop when they are dropped.
    _informers: InformerFactory,
    tasks: TaskGroup,
}

fn cluster(name: &str, ready: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn shared(types: &[&str], providers: &[&str], consumers: &[&str]) -> Value {
    let selectors =
        |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"name": name})).collect() };
    json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"namespace": "n", "name": "web", "uid": "mcs-uid",
            "labels": {"multiclusterservice.karmada.io/permanent-id": "id"}},
        "spec": {"types": types, "providerClusters": selectors(providers),
            "consumerClusters": selectors(consumers)}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "n", "name": "web", "uid": "u",
        "labels": {"propagationpolicy.karmada.io/permanent-id": "policy"}}, "spec": {"ports": [{"port": 80}]}})
}

fn slice(name: &str, address: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "n", "name": name, "labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]})
}

fn slice_work_name() -> String {
    work_name("EndpointSlice", "web-x", "n")
}

impl Fixture {
    fn seeded() -> (Arc<FakeApi>, Arc<FakeApi>) {
        let (control, provider) = (FakeApi::new(), FakeApi::new());
        control.seed(&CLUSTERS, cluster("p", "True"));
        control.seed(&CLUSTERS, cluster("c", "True"));
        control.seed(&SERVICES, service());
        let service = shared(&["CrossCluster"], &["p"], &["p", "c"]);
        control.seed(&MULTI_CLUSTER_SERVICES, service);
        provider.seed(&ENDPOINT_SLICES, slice("web-x", "10.0.0.1"));
        (control, provider)
    }

    async fn start(control: Arc<FakeApi>, provider: Arc<FakeApi>) -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let members = Arc::new(FakeMemberConnections::default());
        members.connect("p", &provider);
        let mut context = context(&control, &tasks);
        let (api, clock) = (
            Arc::clone(&context.control_plane),
            Arc::clone(&context.clock),
        );
        context.recorder = EventRecorder::new(api, "manager", clock, &tasks);
        start(&context, &options(&members)).await;
        Self {
            control,
            provider,
            _informers: context.informers,
            tasks,
        }
    }

    async fn dispatching() -> Self {
        let (control, provider) = Self::seeded();
        let fixture = Self::start(control, provider).await;
        fixture.wait_for_address("10.0.0.1").await;
        for kind in ["ServiceApplied", "EndpointSliceDispatched"] {
            wait_until(kind, || fixture.has_condition(kind, "True")).await;
        }
        fixture
    }

    fn dispatched(&self) -> Option<Value> {
        self.control
            .get_object(&WORKS, CONSUMER, &slice_work_name())
    }

    /// The messages of the events of a reason, with their counts.
    fn events(&self, reason: &str) -> Vec<(String, u64)> {
        let events = self.control.list_objects(&EVENTS).into_iter();
        let matching = events.filter(|event| event["reason"] == reason);
        matching
            .map(|event| {
                let message = event["message"].as_str().unwrap().to_owned();
                (message, event["count"].as_u64().unwrap())
            })
            .collect()
    }

    fn has_condition(&self, kind: &str, status: &str) -> bool {
        let service = self.control.get_object(&MULTI_CLUSTER_SERVICES, "n", "web");
        let service = service.unwrap_or_default();
        let conditions = service["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == kind && c["status"] == status)
    }

    async fn wait_for_address(&self, address: &str) {
        wait_until(address, || {
            let work = self.dispatched().unwrap_or_default();
            let manifest = &work["spec"]["workload"]["manifests"][0];
            manifest["endpoints"][0]["addresses"] == json!([address])
        })
        .await;
    }

    /// The execution controller removes its finalizer; there is none here.
    async fn wait_until_withdrawn(&self) {
        wait_until("withdrawn", || {
            let work = self.dispatched();
            work.is_none_or(|w| !w["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    }
}

// proves: MCS-propagated, MCS-claimed, MCS-follows
#[tokio::test]
async fn works_and_the_binding_are_those_of_karmada() {
    let fixture = Fixture::dispatching().await;
    let control = &fixture.control;
    let name = work_name("MultiClusterService", "web", "n");
    let work = control.get_object(&WORKS, PROVIDER, &name).unwrap();
    assert_eq!(work["spec"]["suspendDispatching"], true);
    assert_eq!(
        work["metadata"]["labels"],
        json!({"multiclusterservice.karmada.io/permanent-id": "id",
            "multiclusterservice.karmada.io/namespace": "n", "multiclusterservice.karmada.io/name": "web"})
    );
    let collected = control.get_object(&WORKS, PROVIDER, &slice_work_name());
    assert_eq!(
        collected.unwrap()["metadata"]["labels"]["endpointslice.karmada.io/managed-by"],
        "MultiClusterService"
    );
    let work = fixture.dispatched().unwrap();
    assert_eq!(
        work["metadata"]["annotations"],
        json!({"endpointslice.karmada.io/provision-cluster": "p"})
    );
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["metadata"]["name"], "p-web-x");
    let labels = &manifest["metadata"]["labels"];
    assert_eq!(
        labels["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-dispatch-controller.karmada.io"
    );
    let service = control.get_object(&SERVICES, "n", "web").unwrap();
    assert_eq!(
        service["metadata"]["labels"],
        json!({"resourcetemplate.karmada.io/claimed-by": "MultiClusterService",
            "multiclusterservice.karmada.io/permanent-id": "id"})
    );
    let binding = control.get_object(&BINDINGS, "n", "web-service").unwrap();
    assert_eq!(
        binding["spec"]["placement"],
        json!({"clusterAffinity": {"clusterNames": ["c", "p"]}})
    );
    assert_eq!(
        binding["metadata"]["labels"]["binding.karmada.io/managed-by"],
        "MultiClusterService"
    );
    fixture
        .provider
        .seed(&ENDPOINT_SLICES, slice("web-x", "10.0.0.2"));
    fixture.wait_for_address("10.0.0.2").await;
    fixture.provider.remove(&ENDPOINT_SLICES, "n", "web-x");
    fixture.wait_until_withdrawn().await;
    fixture.tasks.stop().await;
}

// proves: MCS-provider-dies
#[tokio::test]
async fn endpoints_of_a_provider_that_is_not_ready_are_withdrawn() {
    let fixture = Fixture::dispatching().await;
    fixture.control.seed(&CLUSTERS, cluster("p", "False"));
    fixture.wait_until_withdrawn().await;
    let collected = fixture
        .control
        .get_object(&WORKS, PROVIDER, &slice_work_name());
    assert!(collected.is_some());
    fixture.control.remove(&WORKS, CONSUMER, &slice_work_name());
    fixture.control.seed(&CLUSTERS, cluster("p", "True"));
    fixture.wait_for_address("10.0.0.1").await;
    fixture.tasks.stop().await;
}

// proves: MCS-changed
#[tokio::test]
async fn removed_consumers_and_types_are_withdrawn() {
    let fixture = Fixture::dispatching().await;
    let only_provider = shared(&["CrossCluster"], &["p"], &["p"]);
    fixture.control.seed(&MULTI_CLUSTER_SERVICES, only_provider);
    fixture.wait_until_withdrawn().await;
    let balanced = shared(&["LoadBalancer"], &["p"], &["c"]);
    fixture.control.seed(&MULTI_CLUSTER_SERVICES, balanced);
    let name = work_name("MultiClusterService", "web", "n");
    for name in [name, slice_work_name()] {
        wait_until(&name, || {
            fixture
                .control
                .get_object(&WORKS, PROVIDER, &name)
                .is_none()
        })
        .await;
    }
    wait_until("released", || {
        let service = fixture.control.get_object(&SERVICES, "n", "web").unwrap();
        service["metadata"]["labels"]["resourcetemplate.karmada.io/claimed-by"].is_null()
    })
    .await;
    fixture.tasks.stop().await;
}

/// The cached binding is what the second change needs all the while.
// proves: MCS-own-writes
#[tokio::test]
async fn the_binding_follows_consumers_that_change_back() {
    let fixture = Fixture::dispatching().await;
    fixture.control.pause_watches(&BINDINGS);
    for (consumers, expected) in [
        (vec!["p"], json!(["p"])),
        (vec!["p", "c"], json!(["c", "p"])),
    ] {
        let service = shared(&["CrossCluster"], &["p"], &consumers);
        fixture.control.seed(&MULTI_CLUSTER_SERVICES, service);
        wait_until("the clusters of the binding", || {
            let binding = fixture.control.get_object(&BINDINGS, "n", "web-service");
            let placement = &binding.unwrap_or_default()["spec"]["placement"];
            placement["clusterAffinity"]["clusterNames"] == expected
        })
        .await;
    }
    fixture.control.resume_watches(&BINDINGS);
    fixture.tasks.stop().await;
}

// proves: MCS-no-service
#[tokio::test]
async fn a_missing_service_is_a_condition() {
    let (control, provider) = Fixture::seeded();
    control.remove(&SERVICES, "n", "web");
    let fixture = Fixture::start(control, provider).await;
    wait_until("failed", || {
        fixture.has_condition("ServiceApplied", "False")
    })
    .await;
    fixture.control.seed(&SERVICES, service());
    wait_until("applied", || {
        fixture.has_condition("ServiceApplied", "True")
    })
    .await;
    fixture.tasks.stop().await;
}

// proves: MCS-no-idle-write, MCS-skipped
#[tokio::test]
async fn a_restart_writes_nothing() {
    let (control, provider) = Fixture::seeded();
    // A provider and a consumer that cannot be used are skipped, which is an event each.
    control.seed(&CLUSTERS, cluster("dead", "False"));
    let both = ["p", "dead"];
    let service = shared(&["CrossCluster"], &both, &["c", "dead"]);
    control.seed(&MULTI_CLUSTER_SERVICES, service);
    let fixture = Fixture::start(control, provider).await;
    fixture.wait_for_address("10.0.0.1").await;
    for kind in ["ServiceApplied", "EndpointSliceDispatched"] {
        wait_until(kind, || fixture.has_condition(kind, "True")).await;
    }
    let skipped = |role: &str, what: &str| {
        let message = format!("{role} cluster dead is not ready, skip to propagate {what}");
        (message, 1)
    };
    let expected = vec![
        skipped("Consumer", "EndpointSlice"),
        skipped("Provider", "MultiClusterService"),
    ];
    let skipped = |fixture: &Fixture| {
        let mut events = fixture.events("SyncServiceFailed");
        events.sort_unstable();
        events
    };
    wait_until("the events", || skipped(&fixture) == expected).await;
    fixture.tasks.stop().await;
    let (control, provider) = (fixture.control.clone(), fixture.provider.clone());
    control.clear_writes();
    let fixture = Fixture::start(control, provider).await;
    // A change that follows the initial ones is written last, and is an event.
    let changed = slice("web-x", "10.0.0.9");
    let dispatched = || fixture.events("DispatchEndpointSliceSucceed").len();
    let before = dispatched();
    fixture.provider.seed(&ENDPOINT_SLICES, changed);
    fixture.wait_for_address("10.0.0.9").await;
    wait_until("the next event", || dispatched() > before).await;
    assert_eq!(skipped(&fixture), expected);
    let name = slice_work_name();
    let writes = fixture.control.writes();
    let others = writes
        .iter()
        .filter(|write| write.name != name && write.resource != EVENTS);
    assert_eq!(others.count(), 0);
    let events = writes.iter().filter(|write| write.resource == EVENTS);
    assert_eq!(events.count(), 1, "{writes:?}");
    // That it becomes unavailable is one event, however often the service is reconciled.
    fixture.control.seed(&CLUSTERS, cluster("c", "False"));
    wait_until("the next warning", || {
        fixture.events("SyncServiceFailed").len() == 3
    })
    .await;
    fixture.tasks.stop().await;
}

// proves: MCS-off
#[test]
fn nothing_runs_without_the_feature_gate() {
    let gated = EnabledServiceControllers::default().gated(FeatureGates::default());
    assert!(gated.service_export && gated.endpoint_slice && gated.service_import);
    assert!(!gated.multi_cluster_service);
    assert!(!gated.endpoint_slice_collect && !gated.endpoint_slice_dispatch);
    let on: FeatureGates = "MultiClusterService=true".parse().unwrap();
    let all = EnabledServiceControllers::default();
    assert_eq!(all.gated(on), all);
}

// proves: MCS-limit
#[tokio::test]
async fn a_provider_contributes_a_bounded_number_of_slices() {
    let dispatching = Fixture::dispatching().await;
    let name = slice_work_name();
    let genuine = dispatching.control.get_object(&WORKS, PROVIDER, &name);
    let genuine = genuine.unwrap();
    dispatching.tasks.stop().await;
    let (control, provider) = Fixture::seeded();
    for number in 0..MAX_SLICES + 5 {
        let name = format!("web-{number:03}");
        provider.seed(&ENDPOINT_SLICES, slice(&name, "10.0.0.1"));
        let mut work = genuine.clone();
        work["metadata"]["name"] = name.as_str().into();
        work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = name.into();
        control.seed(&WORKS, work);
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let members = Arc::new(FakeMemberConnections::default());
    members.connect("p", &provider);
    let mut context = context(&control, &tasks);
    let (api, clock) = (
        Arc::clone(&context.control_plane),
        Arc::clone(&context.clock),
    );
    context.recorder = EventRecorder::new(api, "manager", clock, &tasks);
    let mut options = options(&members);
    options.enabled.service_export = false;
    options.enabled.endpoint_slice_collect = false;
    start(&context, &options).await;
    let fixture = Fixture {
        control,
        provider,
        _informers: context.informers,
        tasks,
    };
    let dispatched = || {
        let works = fixture.control.list_objects(&WORKS);
        let slices = works.iter().filter(|work| {
            let manifest = &work["spec"]["workload"]["manifests"][0];
            work["metadata"]["namespace"] == CONSUMER && manifest["kind"] == "EndpointSlice"
        });
        slices.count()
    };
    wait_until("dispatched", || dispatched() == MAX_SLICES).await;
    let left_out = || fixture.events("EndpointSlicesLeftOut");
    wait_until("an event", || !left_out().is_empty()).await;
    let message = "the cluster p has 105 EndpointSlices; the first 100 by name are dispatched";
    assert_eq!(left_out()[0].0, message);
    assert_eq!(dispatched(), MAX_SLICES);
    fixture.tasks.stop().await;
}
