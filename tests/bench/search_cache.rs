//! Measures the search: the memory of its cache for the objects of many members, and what a list costs per object.
//!
//! members that generate their objects ──► cache ──► search ──► client, in this process
//!
//! The argument `--members=N` sets the number of members; the limits are for 100.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use async_trait::async_trait;
use client::{
    Api, ApiCall, ApiReply, Error, InformerFactory, ListOptions, ObjectList, ServerResources,
    ShutdownToken, TaskGroup, WatchStream,
};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use harness::process_stat::resident_bytes;
use karmada_api::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use machinery::time::SystemClock;
use machinery::{Gvr, Object, Status};
use members::{MemberEndpoint, MemberListRequest, MemberResourceCache};
use search::{MemberCaches, SearchOptions};
use serde_json::{Value, json};
use storage::{EmbeddedStore, EmbeddedStoreOptions};
use tokio::sync::watch;
use watchcache::{WatchCacheConfig, WatchCaches};

use crate::arguments::member_count;
use crate::measured_process::MIB;
use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};
use crate::search_endpoint::SearchConnection;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

const MEMBERS: usize = 100;
const OBJECTS_PER_MEMBER: usize = 10_000;
const OBJECT_BYTES: usize = 4096;
const FILL_TIMEOUT: Duration = Duration::from_secs(900);
/// Objects whose lists are timed together; a list of fewer is repeated.
const TIMED_OBJECTS: usize = 1_000_000;
const ROUNDS: usize = 7;

/// A member with ConfigMaps that nobody stores.
struct GeneratedMember {
    text: String,
}

fn not_served() -> Error {
    Status::failure(404, "NotFound", "the member has ConfigMaps only").into()
}

impl GeneratedMember {
    fn new() -> Self {
        Self {
            text: "x".repeat(OBJECT_BYTES - 256),
        }
    }

    fn object(&self, n: usize) -> Result<Object, Error> {
        let namespace = format!("ns-{}", n / 1000);
        // About what a list of a member has for an object of this size.
        let text = json!({"metadata": {"name": format!("map-{n:05}"), "namespace": namespace,
            "uid": format!("00000000-0000-0000-0000-{n:012}"), "resourceVersion": (n + 1).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "bench"}},
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": self.text}})
        .to_string();
        Ok(Object::from_json(text.into())?)
    }

    fn page(&self, options: &ListOptions) -> client::Result<ObjectList> {
        let first: usize = options.continue_token.parse().unwrap_or(0);
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX).max(1);
        let end = OBJECTS_PER_MEMBER.min(first.saturating_add(limit));
        let items: client::Result<Vec<Object>> = (first..end).map(|n| self.object(n)).collect();
        Ok(ObjectList {
            items: items?,
            revision: OBJECTS_PER_MEMBER as u64 + 1,
            continue_token: match end < OBJECTS_PER_MEMBER {
                true => end.to_string(),
                false => String::new(),
            },
        })
    }
}

#[async_trait]
impl Api for GeneratedMember {
    async fn call(&self, call: ApiCall<'_>) -> client::Result<ApiReply> {
        match call {
            ApiCall::List(at, options) if *at.resource == CONFIG_MAPS => {
                Ok(self.page(options)?.into())
            }
            ApiCall::Watch(..) => {
                let no_events: WatchStream = Box::pin(futures_util::stream::pending());
                Ok(no_events.into())
            }
            ApiCall::Discover(_) => Ok(ServerResources::default().into()),
            _ => Err(not_served()),
        }
    }
}

fn cluster(name: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Push", "apiEndpoint": format!("https://{name}"),
            "secretRef": {"namespace": "kc", "name": "s"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "apiEnablements": [
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]}]}})
}

fn registry(clusters: &[String]) -> Value {
    json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": "maps"}, "spec": {"targetCluster": {"clusterNames": clusters},
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}})
}

/// The cache of some of the members.
struct MeasuredCache {
    host: Arc<FakeApi>,
    cache: Arc<dyn MemberResourceCache>,
    names: Vec<String>,
}

impl MeasuredCache {
    fn start(members: usize, tasks: &TaskGroup) -> anyhow::Result<Self> {
        let host = FakeApi::new();
        host.seed(
            &SECRETS,
            json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"namespace": "kc", "name": "s"},
                "data": {"token": "dA==", "caBundle": "Y2E="}}),
        );
        let names: Vec<String> = (0..members).map(|n| format!("member{n:03}")).collect();
        for name in &names {
            host.seed(&CLUSTERS, cluster(name));
        }
        let member: Arc<dyn Api> = Arc::new(GeneratedMember::new());
        let connect = move |_: &MemberEndpoint, _: &TaskGroup| Ok(Arc::clone(&member));
        let store = EmbeddedStore::in_memory(EmbeddedStoreOptions::default())?;
        let watch_caches = WatchCaches::new(Arc::new(store), WatchCacheConfig::default());
        let (_, enabled) = watch::channel(true);
        let context = ControllerContext {
            control_plane: host.clone(),
            informers: InformerFactory::new(tasks),
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        };
        let options = SearchOptions {
            connector: Arc::new(connect),
            caches: MemberCaches::new(&watch_caches),
            enabled,
        };
        let cache = search::start(&context, options);
        Ok(Self { host, cache, names })
    }

    /// Selects the first members, and waits until all of their objects are listed.
    async fn fill(&self, members: usize) -> anyhow::Result<()> {
        self.host
            .seed(&RESOURCE_REGISTRIES, registry(&self.names[..members]));
        let (start, expected) = (Instant::now(), members * OBJECTS_PER_MEMBER);
        loop {
            let listed = self.list().await.map_or(0, |items| items.len());
            if listed == expected {
                return Ok(());
            }
            ensure!(
                start.elapsed() < FILL_TIMEOUT,
                "{listed} of {expected} objects"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn list(&self) -> anyhow::Result<Vec<Object>> {
        let request = MemberListRequest::default();
        let page = self.cache.list(&CONFIG_MAPS, request).await;
        Ok(page.map_err(|status| anyhow!("{status:?}"))?.items)
    }

    /// Nanoseconds for each object of a list that a client requests and receives.
    async fn list_nanoseconds(&self, objects: usize) -> anyhow::Result<f64> {
        let mut connection = SearchConnection::open(Arc::clone(&self.cache)).await?;
        median_nanoseconds(objects, async || {
            let start = Instant::now();
            let received = connection.list(&CONFIG_MAPS.resource).await?;
            let elapsed = start.elapsed();
            ensure!(
                received > objects * OBJECT_BYTES / 2,
                "{received} bytes of {objects} objects"
            );
            Ok(elapsed)
        })
        .await
    }

    /// As [`Self::list_nanoseconds`], for what the cache does: it collects references to the objects.
    async fn collect_nanoseconds(&self, objects: usize) -> anyhow::Result<f64> {
        median_nanoseconds(objects, async || {
            let start = Instant::now();
            let items = black_box(self.list().await?);
            let elapsed = start.elapsed();
            ensure!(
                items.len() == objects,
                "{} of {objects} objects",
                items.len()
            );
            Ok(elapsed)
        })
        .await
    }
}

/// Nanoseconds for each object of a list, from the times of lists with [`TIMED_OBJECTS`] together.
async fn median_nanoseconds(
    objects: usize,
    mut list: impl AsyncFnMut() -> anyhow::Result<Duration>,
) -> anyhow::Result<f64> {
    let lists = TIMED_OBJECTS.div_ceil(objects);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut elapsed = Duration::ZERO;
        for _ in 0..lists {
            elapsed += list().await?;
        }
        times.push(elapsed.as_nanos() as f64 / (lists * objects) as f64);
    }
    Ok(median(&mut times))
}

async fn measure(report: &mut MeasurementRecorder, members: usize) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let cache = MeasuredCache::start(members, &tasks)?;
    cache.fill(1).await?;
    let few = cache.list_nanoseconds(OBJECTS_PER_MEMBER).await?;
    let setup = "a search for 10,000 ConfigMaps of one member until its client has them, for each object; median of 7";
    report.record("search_list_few", few, "ns", MeasurementLimit::None, setup);
    let collected_few = cache.collect_nanoseconds(OBJECTS_PER_MEMBER).await?;
    let setup = "the cache's part of that";
    let limit = MeasurementLimit::None;
    report.record("search_collect_few", collected_few, "ns", limit, setup);

    let before = resident_bytes(std::process::id())?;
    let start = Instant::now();
    cache.fill(members).await?;
    let setup = format!("until 10,000 ConfigMaps of 4 KiB of each of {members} members are cached");
    let elapsed = start.elapsed().as_secs_f64();
    report.record("search_fill", elapsed, "s", MeasurementLimit::None, &setup);
    let items = cache.list().await?;
    let bytes: usize = items.iter().map(|item| item.encoded_len()).sum();
    drop(items);
    let resident = resident_bytes(std::process::id())? - before;
    // The first member was cached before.
    let added = bytes as f64 * (members - 1) as f64 / members as f64;
    let setup = format!(
        "memory for the objects of {members} members by their {:.0} MiB",
        bytes as f64 / MIB
    );
    let limit = MeasurementLimit::Below(1.5);
    report.record("search_memory", resident / added, "times", limit, &setup);
    let objects = members * OBJECTS_PER_MEMBER;
    let many = cache.list_nanoseconds(objects).await?;
    let setup = format!("the same of all {members} members ({many:.0} ns), by that of one");
    let limit = MeasurementLimit::Below(1.3);
    report.record("search_list_many", many / few, "times", limit, &setup);
    let collected = cache.collect_nanoseconds(objects).await?;
    let setup = format!("the cache's part of that ({collected:.0} ns), by that of one");
    let (times, limit) = (collected / collected_few, MeasurementLimit::None);
    report.record("search_collect_many", times, "times", limit, &setup);
    tasks.stop().await;
    Ok(())
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let members = member_count(MEMBERS)?;
    tokio::runtime::Runtime::new()?.block_on(measure(report, members))
}
