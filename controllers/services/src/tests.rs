//! Tests of the controllers together, from an export in a member to slices in the control plane.

use std::sync::Arc;

use client::{Api, DeleteOptions, Error, InformerFactory, ResourcePath, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use karmada_api::names::work_name;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::ENDPOINT_SLICE_FINALIZER;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::fixture::{FakeMemberConnections, context, options, wait_until};
use crate::slice_fields::MAX_SLICES;
use crate::{ENDPOINT_SLICES, SERVICE_EXPORTS, SERVICE_IMPORTS, SERVICES, start};

const SPACE: &str = "karmada-es-m";
const IMPORTED: &str = "imported-m-web-x";

struct ServicesFixture {
    control: Arc<FakeApi>,
    member: Arc<FakeApi>,
    members: Arc<FakeMemberConnections>,
    /// Informers stop when they are dropped.
    _informers: InformerFactory,
    tasks: TaskGroup,
}

impl ServicesFixture {
    /// A Ready member `m` with the Service `web`, which is exported.
    fn seeded() -> (Arc<FakeApi>, Arc<FakeApi>) {
        let (control, member) = (FakeApi::new(), FakeApi::new());
        control.seed(&CLUSTERS, cluster("True"));
        control.seed(&WORKS, export_work("True"));
        member.seed(&SERVICE_EXPORTS, export());
        member.seed(&ENDPOINT_SLICES, slice("web-x", "web", &["10.0.0.1"]));
        (control, member)
    }

    async fn start(control: Arc<FakeApi>, member: Arc<FakeApi>) -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let members = Arc::new(FakeMemberConnections::default());
        members.connect("m", &member);
        let context = context(&control, &tasks);
        start(&context, &options(&members)).await;
        Self {
            control,
            member,
            members,
            _informers: context.informers,
            tasks,
        }
    }

    async fn exporting() -> Self {
        let (control, member) = Self::seeded();
        let fixture = Self::start(control, member).await;
        let addresses = |slice: &Value| slice["endpoints"][0]["addresses"] == json!(["10.0.0.1"]);
        fixture.wait_for_imported("imported", addresses).await;
        fixture
    }

    fn imported(&self) -> Option<Value> {
        self.control.get_object(&ENDPOINT_SLICES, "n", IMPORTED)
    }

    fn collected(&self) -> Option<Value> {
        let name = work_name("EndpointSlice", "web-x", "n");
        self.control.get_object(&WORKS, SPACE, &name)
    }

    async fn wait_for_imported(&self, what: &str, is: impl Fn(&Value) -> bool) {
        wait_until(what, || self.imported().as_ref().is_some_and(&is)).await;
    }

    async fn wait_until_withdrawn(&self) {
        wait_until("withdrawn", || self.imported().is_none()).await;
    }

    async fn stop(self) {
        self.tasks.stop().await;
    }
}

fn cluster(ready: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn export() -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"namespace": "n", "name": "web"}})
}

/// The Work by which the export was propagated.
fn export_work(applied: &str) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"namespace": SPACE, "name": "web-export"},
        "spec": {"workload": {"manifests": [export()]}},
        "status": {"conditions": [{"type": "Applied", "status": applied}]}})
}

fn slice(name: &str, service: &str, addresses: &[&str]) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "n", "name": name, "labels": {
            "kubernetes.io/service-name": service,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": addresses, "conditions": {"ready": true}}]})
}

fn collected_works(control: &FakeApi) -> Vec<String> {
    let works = control.list_objects(&WORKS);
    let names = works
        .iter()
        .map(|w| w["metadata"]["name"].as_str().unwrap());
    let names = names.filter(|name| *name != "web-export");
    names.map(str::to_owned).collect()
}

fn count_writes(control: &FakeApi, resource: &Gvr) -> usize {
    let writes = control.writes();
    writes.iter().filter(|w| w.resource == *resource).count()
}

// proves: SVC-collected, SVC-imported, SVC-follows
#[tokio::test]
async fn slices_follow_the_member() {
    let fixture = ServicesFixture::exporting().await;
    let work = fixture.collected().unwrap();
    assert_eq!(work["spec"]["suspendDispatching"], true);
    let changed = slice("web-x", "web", &["10.0.0.2"]);
    fixture.member.seed(&ENDPOINT_SLICES, changed);
    fixture
        .wait_for_imported("changed", |slice| {
            slice["endpoints"][0]["addresses"] == json!(["10.0.0.2"])
        })
        .await;
    // Another Service, and a slice that came from another cluster.
    let other = slice("other-x", "other", &["10.0.0.3"]);
    fixture.member.seed(&ENDPOINT_SLICES, other);
    let mut foreign = slice("imported-k-web", "web", &["10.0.0.4"]);
    foreign["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] =
        "endpointslice-controller.karmada.io".into();
    fixture.member.seed(&ENDPOINT_SLICES, foreign);
    let second = slice("web-y", "web", &["10.0.0.5"]);
    fixture.member.seed(&ENDPOINT_SLICES, second);
    wait_until("the second slice", || {
        let second = "imported-m-web-y";
        let slice = fixture.control.get_object(&ENDPOINT_SLICES, "n", second);
        slice.is_some()
    })
    .await;
    assert_eq!(collected_works(&fixture.control).len(), 2);
    fixture.member.remove(&ENDPOINT_SLICES, "n", "web-x");
    fixture.wait_until_withdrawn().await;
    wait_until("the Work is gone", || fixture.collected().is_none()).await;
    fixture.stop().await;
}

// proves: SVC-unexported
#[tokio::test]
async fn a_service_that_is_no_longer_exported_is_withdrawn() {
    // The export is deleted in the member; or its Work is, while no controller runs.
    let fixture = ServicesFixture::exporting().await;
    fixture.member.remove(&SERVICE_EXPORTS, "n", "web");
    fixture.wait_until_withdrawn().await;
    fixture.member.seed(&SERVICE_EXPORTS, export());
    fixture.wait_for_imported("exported again", |_| true).await;
    fixture.tasks.stop().await;
    fixture.control.remove(&WORKS, SPACE, "web-export");
    let (control, member) = (fixture.control.clone(), fixture.member.clone());
    let restarted = ServicesFixture::start(control, member).await;
    restarted.wait_until_withdrawn().await;
    wait_until("the Work is gone", || restarted.collected().is_none()).await;
    restarted.stop().await;
}

// proves: SVC-untrusted
#[tokio::test]
async fn a_member_adds_endpoints_to_exported_services_only() {
    let fixture = ServicesFixture::exporting().await;
    // An agent writes the Works of its execution namespace: this one names a Service that was not exported.
    let genuine = fixture.collected().unwrap();
    let lie = |name: &str, service: (&str, &str), address: &str| {
        let mut work = genuine.clone();
        work["metadata"]["name"] = name.into();
        let labels = &mut work["metadata"]["labels"];
        labels["endpointslice.karmada.io/namespace"] = service.0.into();
        labels["endpointslice.karmada.io/name"] = service.1.into();
        let manifest = &mut work["spec"]["workload"]["manifests"][0];
        manifest["metadata"]["name"] = name.into();
        manifest["metadata"]["namespace"] = service.0.into();
        manifest["endpoints"][0]["addresses"][0] = address.into();
        work
    };
    let control = &fixture.control;
    control.seed(&WORKS, lie("lie-1", ("n", "payments"), "10.0.0.6"));
    control.seed(&WORKS, lie("lie-2", ("kube-system", "web"), "10.0.0.6"));
    // This one would lead whoever reads it to itself, and this one is no slice.
    control.seed(&WORKS, lie("lie-3", ("n", "web"), "127.0.0.1"));
    let mut role = lie("lie-4", ("n", "web"), "10.0.0.6");
    role["spec"]["workload"]["manifests"][0]["kind"] = "ClusterRole".into();
    control.seed(&WORKS, role);
    // The slice of another cluster has the name that this one would have.
    let mut other = fixture.imported().unwrap();
    other["metadata"]["name"] = "imported-m-k-web".into();
    let owner = "work.karmada.io/namespace";
    other["metadata"]["annotations"][owner] = "karmada-es-m-k".into();
    control.seed(&ENDPOINT_SLICES, other);
    for mut work in [
        export_work("True"),
        lie("k-web-work", ("n", "web"), "10.0.0.7"),
    ] {
        work["metadata"]["namespace"] = "karmada-es-m-k".into();
        if work["metadata"]["name"] == "k-web-work" {
            work["metadata"]["name"] = genuine["metadata"]["name"].clone();
            work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "web".into();
        }
        control.seed(&WORKS, work);
    }
    let mut neighbor = cluster("True");
    neighbor["metadata"]["name"] = "m-k".into();
    control.seed(&CLUSTERS, neighbor);
    control.seed(&WORKS, lie("k-web", ("n", "web"), "10.0.0.6"));
    // Without the export of the control plane, that of the member counts for nothing.
    let mut alone = export();
    alone["metadata"]["name"] = "payments".into();
    fixture.member.seed(&SERVICE_EXPORTS, alone);
    let endpoints = slice("payments-x", "payments", &["10.0.0.6"]);
    fixture.member.seed(&ENDPOINT_SLICES, endpoints);
    let last = slice("web-z", "web", &["10.0.0.8"]);
    fixture.member.seed(&ENDPOINT_SLICES, last);
    wait_until("the last slice", || {
        let last = control.get_object(&ENDPOINT_SLICES, "n", "imported-m-web-z");
        last.is_some()
    })
    .await;
    let slices = control.list_objects(&ENDPOINT_SLICES);
    let mut names: Vec<_> = slices
        .iter()
        .map(|slice| slice["metadata"]["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["imported-m-k-web", IMPORTED, "imported-m-web-z"]);
    assert!(!json!(slices).to_string().contains("10.0.0.6"));
    fixture.stop().await;
}

// proves: SVC-provider-dies
#[tokio::test]
async fn endpoints_of_a_cluster_that_is_not_ready_are_withdrawn() {
    let fixture = ServicesFixture::exporting().await;
    fixture.members.disconnect("m");
    for status in ["Unknown", "False"] {
        fixture.control.seed(&CLUSTERS, cluster(status));
        fixture.wait_until_withdrawn().await;
        assert!(fixture.collected().is_some());
        fixture.control.seed(&CLUSTERS, cluster("True"));
        fixture.wait_for_imported("back", |_| true).await;
    }
    // A change that was made while the member was away arrives with its connection.
    let changed = slice("web-x", "web", &["10.0.0.9"]);
    fixture.member.seed(&ENDPOINT_SLICES, changed);
    fixture.members.connect("m", &fixture.member);
    fixture
        .wait_for_imported("changed", |slice| {
            slice["endpoints"][0]["addresses"] == json!(["10.0.0.9"])
        })
        .await;
    fixture.stop().await;
}

// proves: SVC-no-idle-write
#[tokio::test]
async fn a_restart_writes_nothing() {
    let fixture = ServicesFixture::exporting().await;
    fixture.tasks.stop().await;
    fixture.control.clear_writes();
    let (control, member) = (fixture.control.clone(), fixture.member.clone());
    let restarted = ServicesFixture::start(control, member).await;
    // A change of a second slice shows that the controllers have seen the first.
    let second = slice("web-y", "web", &["10.0.0.5"]);
    restarted.member.seed(&ENDPOINT_SLICES, second);
    wait_until("the second slice", || {
        let second = "imported-m-web-y";
        let slice = restarted.control.get_object(&ENDPOINT_SLICES, "n", second);
        slice.is_some()
    })
    .await;
    assert_eq!(count_writes(&restarted.control, &WORKS), 1);
    assert_eq!(count_writes(&restarted.control, &ENDPOINT_SLICES), 1);
    restarted.stop().await;
}

// proves: SVC-only-exporting
#[tokio::test]
async fn only_namespaces_with_applied_exports_are_watched() {
    let (control, member) = ServicesFixture::seeded();
    control.seed(&WORKS, export_work("False"));
    let lists = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let listed_namespaces = Arc::clone(&lists);
    member.on_call(move |call| {
        if call.verb == "list" {
            listed_namespaces.lock().push(call.namespace.to_owned());
        }
        None
    });
    let fixture = ServicesFixture::start(control, member).await;
    assert!(lists.lock().is_empty());
    fixture.control.seed(&WORKS, export_work("True"));
    fixture.wait_for_imported("imported", |_| true).await;
    assert_eq!(*lists.lock(), ["n", "n"]);
    // A failed update of the export withdraws nothing.
    fixture.control.seed(&WORKS, export_work("False"));
    let changed = slice("web-x", "web", &["10.0.0.2"]);
    fixture.member.seed(&ENDPOINT_SLICES, changed);
    fixture
        .wait_for_imported("changed", |slice| {
            slice["endpoints"][0]["addresses"] == json!(["10.0.0.2"])
        })
        .await;
    fixture.stop().await;
}

// proves: SVC-repaired
#[tokio::test]
async fn what_others_change_is_repaired() {
    let fixture = ServicesFixture::exporting().await;
    fixture.control.remove(&ENDPOINT_SLICES, "n", IMPORTED);
    fixture.wait_for_imported("created again", |_| true).await;
    let mut edited = fixture.imported().unwrap();
    edited["endpoints"] = json!([]);
    fixture.control.seed(&ENDPOINT_SLICES, edited);
    fixture
        .wait_for_imported("repaired", |slice| {
            slice["endpoints"][0]["addresses"] == json!(["10.0.0.1"])
        })
        .await;
    let mut work = fixture.collected().unwrap();
    assert_eq!(
        work["metadata"]["finalizers"],
        json!([ENDPOINT_SLICE_FINALIZER])
    );
    work["spec"]["workload"]["manifests"][0]["endpoints"] = json!([]);
    work["metadata"]["labels"] = json!({});
    fixture.control.seed(&WORKS, work);
    wait_until("the Work is repaired", || {
        let work = fixture.collected().unwrap();
        work["spec"]["workload"]["manifests"][0]["endpoints"] != json!([])
            && work["metadata"]["labels"]["endpointslice.karmada.io/name"] == "web"
            && work["metadata"]["finalizers"] == json!([ENDPOINT_SLICE_FINALIZER])
    })
    .await;
    fixture.wait_for_imported("there", |_| true).await;
    fixture.stop().await;
}

// proves: SVC-derived
#[tokio::test]
async fn derived_services_follow_their_import() {
    let fixture = ServicesFixture::start(FakeApi::new(), FakeApi::new()).await;
    let import = |kind: &str, port: i64| {
        json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"namespace": "n", "name": "web"},
            "spec": {"type": kind, "ports": [{"port": port}]}})
    };
    let derived = || fixture.control.get_object(&SERVICES, "n", "derived-web");
    let has_port = |port: i64| {
        let service = derived();
        service.is_some_and(|s| s["spec"]["ports"][0]["port"] == port)
    };
    fixture
        .control
        .seed(&SERVICE_IMPORTS, import("ClusterSetIP", 80));
    wait_until("derived", || has_port(80)).await;
    fixture
        .control
        .seed(&SERVICE_IMPORTS, import("ClusterSetIP", 81));
    wait_until("changed", || has_port(81)).await;
    fixture.control.remove(&SERVICE_IMPORTS, "n", "web");
    wait_until("deleted", || derived().is_none()).await;
    // The Service of somebody else stays.
    let foreign_service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "n", "name": "derived-db"}, "spec": {"ports": [{"port": 1}]}});
    fixture.control.seed(&SERVICES, foreign_service);
    let mut headless = import("Headless", 80);
    headless["metadata"]["name"] = "db".into();
    fixture.control.seed(&SERVICE_IMPORTS, headless);
    fixture.control.remove(&SERVICE_IMPORTS, "n", "db");
    fixture
        .control
        .seed(&SERVICE_IMPORTS, import("ClusterSetIP", 80));
    wait_until("derived again", || has_port(80)).await;
    assert!(
        fixture
            .control
            .get_object(&SERVICES, "n", "derived-db")
            .is_some()
    );
    fixture.stop().await;
}

// proves: SVC-old-host
#[tokio::test]
async fn a_host_without_endpoint_slices_derives_services() {
    let (control, member) = ServicesFixture::seeded();
    control.on_call(|call| {
        let is_slice = call.resource == Some(&ENDPOINT_SLICES);
        is_slice.then(|| Error::from(Status::path_not_found()))
    });
    let fixture = ServicesFixture::start(control, member).await;
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"namespace": "n", "name": "web"},
        "spec": {"type": "ClusterSetIP", "ports": [{"port": 80}]}});
    fixture.control.seed(&SERVICE_IMPORTS, import);
    let derived = || fixture.control.get_object(&SERVICES, "n", "derived-web");
    wait_until("derived", || derived().is_some()).await;
    wait_until("collected", || fixture.collected().is_some()).await;
    fixture.stop().await;
}

// proves: SVC-limit
#[tokio::test]
async fn a_member_contributes_a_bounded_number_of_slices() {
    let (control, member) = ServicesFixture::seeded();
    for number in 0..MAX_SLICES + 5 {
        let slice = slice(&format!("web-{number:03}"), "web", &["10.0.0.1"]);
        member.seed(&ENDPOINT_SLICES, slice);
    }
    let fixture = ServicesFixture::start(control, member).await;
    let control = &fixture.control;
    let imported = || control.list_objects(&ENDPOINT_SLICES).len();
    wait_until("collected", || imported() == MAX_SLICES).await;
    assert_eq!(collected_works(control).len(), MAX_SLICES);
    assert!(fixture.imported().is_none(), "the last by name is left out");
    fixture.stop().await;
}

// proves: SVC-limit
#[tokio::test]
async fn an_agent_adds_no_more_slices_than_a_member_contributes() {
    let exporting = ServicesFixture::exporting().await;
    let genuine = exporting.collected().unwrap();
    exporting.stop().await;
    let control = FakeApi::new();
    control.seed(&CLUSTERS, cluster("True"));
    control.seed(&WORKS, export_work("True"));
    for number in 0..MAX_SLICES + 5 {
        let mut work = genuine.clone();
        let name = format!("web-{number:03}");
        work["metadata"]["name"] = name.as_str().into();
        work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = name.into();
        control.seed(&WORKS, work);
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let members = Arc::new(FakeMemberConnections::default());
    let context = context(&control, &tasks);
    let mut options = options(&members);
    options.enabled.service_export = false;
    options.enabled.endpoint_slice_collect = false;
    start(&context, &options).await;
    let has = |number: usize| {
        let name = format!("imported-m-web-{number:03}");
        control.get_object(&ENDPOINT_SLICES, "n", &name).is_some()
    };
    let first = || (0..MAX_SLICES).all(has);
    wait_until("imported", first).await;
    assert_eq!(control.list_objects(&ENDPOINT_SLICES).len(), MAX_SLICES);
    let at = ResourcePath::object(&WORKS, SPACE, "web-000");
    control.delete(at, &DeleteOptions::default()).await.unwrap();
    let next = || !has(0) && has(MAX_SLICES) && !has(MAX_SLICES + 1);
    wait_until("the next one is imported", next).await;
    tasks.stop().await;
}
