//! How much memory Works of 1 MiB take while hundreds of members do not answer the writes
//! of their manifests. Alone in its process: the allocator counts all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use client::{
    Api, ApiCall, ApiReply, ApiResource, Error, Informer, InformerFactory, ListWatchSelector,
    Result, ShutdownToken, TaskGroup,
};
use client_fake::FakeApi;
use controller_context::PropagationContext;
use detector::InlineSchedulingOptions;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use karmada_api::FeatureGates;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE};
use machinery::Gvr;
use machinery::time::SystemClock;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use peak_alloc::PeakAlloc;
use propagation::{PropagationOptions, start};
use scheduler::SchedulerClusterCache;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEMBERS: usize = 200;
const MIB: usize = 1 << 20;
/// The memory that the application of all Works may take beside what is there before.
const PEAK: usize = 16 * MIB;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

/// A member that can be read, and answers no write until it is closed.
struct HungWritesMemberApi {
    objects: Arc<FakeApi>,
    writes: AtomicUsize,
    answers: Semaphore,
}

#[async_trait]
impl Api for HungWritesMemberApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        if !call.is_write() {
            return self.objects.call(call).await;
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        let _closed = self.answers.acquire().await;
        // The call holds its body until here.
        drop(call);
        Err(Error::Protocol("closed".into()))
    }
}

/// All members are one server: what its informer holds is there once.
struct SingleServerMemberAccess {
    api: Arc<dyn Api>,
    informers: InformerFactory,
}

impl MemberAccess for SingleServerMemberAccess {
    fn api(&self, _: &str) -> std::result::Result<Arc<dyn Api>, String> {
        Ok(Arc::clone(&self.api))
    }

    fn managed_informer(&self, _: &str, resource: &Gvr) -> std::result::Result<Informer, String> {
        Ok(self
            .informers
            .get(&self.api, &ListWatchSelector::all(resource)))
    }

    fn find_managed_informer(&self, _: &str, _: &Gvr) -> Option<Informer> {
        None
    }

    fn stop_managed_informer(&self, _: &str, _: &Gvr) {}

    fn on_managed_object(&self, _: MemberObjectCallback) {}

    fn on_connection_change(&self, _: MemberConnectionCallback) {}
}

/// 1 MiB in the small parts that files of configuration have.
fn of_lines() -> Value {
    let line = |n: usize| (format!("key-{n:05}"), Value::from("x".repeat(200)));
    (0..MIB / 220).map(line).collect()
}

fn config_map(data: &Value, more: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "more": more,
        "metadata": {"name": "c", "namespace": "n", "labels": {MANAGED: MANAGED_VALUE}}})
}

fn cluster(name: &str, ready: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Push"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn context(
    control: &Arc<FakeApi>,
    member: &Arc<HungWritesMemberApi>,
    tasks: &TaskGroup,
) -> PropagationContext {
    let control: Arc<dyn Api> = control.clone();
    let informers = InformerFactory::new(tasks);
    PropagationContext {
        members: Arc::new(SingleServerMemberAccess {
            api: member.clone(),
            informers: InformerFactory::new(tasks),
        }),
        clusters: ClusterLister::watch(&control, &informers),
        interpreter: ResourceInterpreter::default(),
        host: HostWorkloadFilter::default(),
        feature_gates: FeatureGates::default(),
        controller: ControllerContext {
            control_plane: control,
            informers,
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        },
    }
}

fn options(context: &PropagationContext) -> PropagationOptions {
    let clusters = SchedulerClusterCache::new(context.clusters.informer().clone());
    PropagationOptions {
        call_timeout: Duration::from_secs(3600),
        ..PropagationOptions::new(InlineSchedulingOptions::new(clusters))
    }
}

/// A control plane with a Work for each of its clusters, none of which is ready.
fn control_plane(data: &Value) -> Arc<FakeApi> {
    let control = FakeApi::new();
    control.add_resource(ApiResource {
        resource: CONFIG_MAPS.clone(),
        kind: "ConfigMap".into(),
        namespaced: true,
        verbs: ["get", "list", "watch", "delete"].map(Into::into).into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
    let dispatching = json!({"type": "Dispatching", "status": "True", "reason": "Dispatching",
        "message": "Work is being dispatched to member clusters."});
    for at in 0..MEMBERS {
        control.seed(&CLUSTERS, cluster(&format!("m{at}"), "False"));
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": format!("karmada-es-m{at}"), "generation": 1},
            "spec": {"workload": {"manifests": [config_map(data, "new")]}},
            "status": {"conditions": [dispatching]}});
        control.seed(&WORKS, work);
    }
    control
}

/// The allocated bytes once all Works were seen to wait for their clusters.
async fn settled_usage() -> usize {
    let mut usage = 0;
    while usage != ALLOCATOR.current_usage() {
        usage = ALLOCATOR.current_usage();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    usage
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let limit = Duration::from_secs(300);
    assert!(tokio::time::timeout(limit, so).await.is_ok(), "{what}");
}

/// The memory in use at most while the Works are applied in members of which each hangs in a
/// write, when they have an object or none.
async fn peak(data: &Value, there: Option<Value>) -> usize {
    let member = Arc::new(HungWritesMemberApi {
        objects: FakeApi::new(),
        writes: AtomicUsize::new(0),
        answers: Semaphore::new(0),
    });
    if let Some(object) = there {
        member.objects.seed(&CONFIG_MAPS, object);
    }
    let control = control_plane(data);
    let tasks = TaskGroup::new(ShutdownToken::new());
    let context = context(&control, &member, &tasks);
    let started = start(&context, options(&context)).await;
    assert_eq!(started, Ok(()));
    let before = settled_usage().await;
    ALLOCATOR.reset_peak_usage();
    for at in 0..MEMBERS {
        control.seed(&CLUSTERS, cluster(&format!("m{at}"), "True"));
    }
    let writes = || member.writes.load(Ordering::Relaxed);
    until("all written", || writes() >= MEMBERS).await;
    let peak = ALLOCATOR.peak_usage() - before;
    assert_eq!(writes(), MEMBERS);
    member.answers.close();
    tasks.stop().await;
    peak
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_of_a_mebibyte_for_members_that_hang_take_at_most_16_mebibytes() {
    let data = of_lines();
    let objects = [("create", None), ("update", Some(config_map(&data, "old")))];
    for (verb, there) in objects {
        let peak = peak(&data, there).await;
        assert!(peak <= PEAK, "{verb}: {} MiB", peak / MIB);
    }
}
