//! Tests of the cache over fake members: what it lists, watches and forgets.

mod cache_bounds;
/// Changes of ResourceRegistries and Clusters.
mod registries;
/// Where reads and watches are in each member.
mod resource_versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use futures_util::StreamExt;
use karmada_api::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use machinery::time::SystemClock;
use machinery::{Gvk, Gvr, Object, Status};
use members::{
    MemberEndpoint, MemberListPage, MemberListRequest, MemberObjectSelection, MemberResourceCache,
    MemberWatchEvent, MemberWatchRequest, MemberWatchStream,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use watchcache::{WatchCacheConfig, WatchCaches};

use crate::member_resource::{CachedForm, MemberResource, NamespaceScope};
use crate::member_store::MemberStore;
use crate::resource_version::MultiClusterResourceVersion;
use crate::{MemberCaches, SearchOptions, start};

pub(crate) static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
pub(crate) static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

pub(crate) struct SearchFixture {
    pub(crate) host: Arc<FakeApi>,
    pub(crate) members: [Arc<FakeApi>; 2],
    connections: Arc<AtomicUsize>,
    pub(crate) caches: MemberCaches,
    enabled: watch::Sender<bool>,
    cache: Arc<dyn MemberResourceCache>,
    tasks: TaskGroup,
    watch_caches: Arc<WatchCaches>,
}

pub(crate) fn cluster(name: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Push", "apiEndpoint": format!("https://{name}"),
            "secretRef": {"namespace": "kc", "name": "s"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "apiEnablements": [
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"},
                {"name": "secrets", "kind": "Secret"}]}]}})
}

pub(crate) fn registry(namespace: &str) -> Value {
    let maps = json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace}]);
    registry_of("r", json!({}), maps)
}

fn registry_of(name: &str, target: Value, selectors: Value) -> Value {
    json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": name},
        "spec": {"targetCluster": target, "resourceSelectors": selectors}})
}

pub(crate) fn map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"name": name}}})
}

pub(crate) fn unused_store(api: Arc<dyn Api>) -> Arc<MemberStore> {
    let resource = MemberResource {
        cluster: "m1".to_owned(),
        resource: MAPS.clone(),
        kind: Gvk::from_static("", "v1", "ConfigMap"),
        form: CachedForm::Search,
        scope: NamespaceScope::All,
        api,
        prefix: "/".to_owned(),
    };
    Arc::new(MemberStore::new(resource, None))
}

/// A context of the host, without events.
pub(crate) fn context(host: &Arc<FakeApi>, tasks: &TaskGroup) -> ControllerContext {
    ControllerContext {
        control_plane: host.clone(),
        informers: InformerFactory::new(tasks),
        clock: Arc::new(SystemClock),
        recorder: EventRecorder::disabled(),
        tasks: tasks.clone(),
    }
}

impl SearchFixture {
    pub(crate) fn new() -> Self {
        let (host, members) = (FakeApi::new(), [FakeApi::new(), FakeApi::new()]);
        host.seed(
            &SECRETS,
            json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"namespace": "kc", "name": "s"},
                "data": {"token": "dA==", "caBundle": "Y2E="}}),
        );
        let connections = Arc::new(AtomicUsize::new(0));
        let enabled = watch::Sender::new(true);
        let (apis, count) = (members.clone(), Arc::clone(&connections));
        let connect = move |to: &MemberEndpoint, _: &TaskGroup| {
            count.fetch_add(1, Ordering::Relaxed);
            let at = usize::from(to.cluster != "m1");
            Ok(Arc::clone(&apis[at]) as Arc<dyn Api>)
        };
        let tasks = TaskGroup::new(ShutdownToken::new());
        let store = unused_store(host.clone());
        let watch_caches = WatchCaches::new(store, WatchCacheConfig::default());
        let options = SearchOptions {
            connector: Arc::new(connect),
            caches: MemberCaches::new(&watch_caches),
            enabled: enabled.subscribe(),
        };
        let caches = options.caches.clone();
        let cache = start(&context(&host, &tasks), options);
        Self {
            host,
            members,
            connections,
            caches,
            enabled,
            cache,
            tasks,
            watch_caches,
        }
    }

    /// With both members Ready, and a registry of ConfigMaps.
    async fn with_registry(objects: [&[&str]; 2]) -> Self {
        let fixture = Self::new();
        for (member, names) in fixture.members.iter().zip(objects) {
            for name in names {
                member.seed(&MAPS, map("ns", name));
            }
        }
        fixture.host.seed(&CLUSTERS, cluster("m1", true));
        fixture.host.seed(&CLUSTERS, cluster("m2", true));
        fixture.host.seed(&RESOURCE_REGISTRIES, registry(""));
        fixture.wait_for_clusters(&["m1", "m2"]).await;
        fixture
    }

    async fn list(&self, request: MemberListRequest) -> Result<MemberListPage, Status> {
        self.cache.list(&MAPS, request).await
    }

    async fn wait_for_clusters(&self, expected: &[&str]) {
        wait_until(async || {
            let page = self.list(MemberListRequest::default()).await;
            page.is_ok_and(|page| {
                let version = MultiClusterResourceVersion::parse(&page.resource_version);
                version.unwrap().clusters().collect::<Vec<_>>() == expected
            })
        })
        .await;
    }

    async fn watch(&self, resource_version: &str) -> Result<MemberWatchStream, Status> {
        let request = MemberWatchRequest {
            resource_version: resource_version.to_owned(),
            ..MemberWatchRequest::default()
        };
        self.cache.watch(&MAPS, request).await
    }

    pub(crate) async fn stop(self) {
        self.tasks.stop().await;
        self.watch_caches.shutdown().await;
    }
}

pub(crate) async fn wait_until(holds: impl AsyncFn() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .unwrap();
}

pub(crate) fn names(items: &[Object]) -> Vec<String> {
    let name = |object: &Object| {
        let value = object.value().unwrap();
        let cluster = &value["metadata"]["annotations"][CACHED_FROM_CLUSTER];
        format!("{}/{}", cluster.as_str().unwrap(), object.name())
    };
    items.iter().map(name).collect()
}

pub(crate) async fn next_event(
    watch: &mut MemberWatchStream,
) -> Option<Result<(String, String), Status>> {
    let next = tokio::time::timeout(Duration::from_secs(60), watch.next());
    let event = match next.await.unwrap()? {
        Ok(event) => event,
        Err(status) => return Some(Err(status)),
    };
    let MemberWatchEvent::Object { event_type, object } = event else {
        return Some(Ok(("BOOKMARK".to_owned(), String::new())));
    };
    let value = object.value().unwrap();
    let version = value["metadata"]["resourceVersion"].as_str().unwrap();
    let line = format!("{event_type} {}", names(&[object]).join(""));
    Some(Ok((line, version.to_owned())))
}

// proves: SRC-idle
#[tokio::test]
async fn members_are_connected_while_there_is_a_registry() {
    let fixture = SearchFixture::new();
    fixture.host.seed(&CLUSTERS, cluster("m1", true));
    fixture.members[0].seed(&MAPS, map("ns", "a"));
    assert_eq!(fixture.cache.cached_kind(&MAPS), None);
    let status = fixture.list(MemberListRequest::default()).await;
    assert_eq!(status.unwrap_err().code, 404);
    assert_eq!(fixture.connections.load(Ordering::Relaxed), 0);

    fixture.host.seed(&RESOURCE_REGISTRIES, registry(""));
    fixture.wait_for_clusters(&["m1"]).await;
    assert_eq!(
        &*fixture.cache.cached_kind(&MAPS).unwrap().kind,
        "ConfigMap"
    );
    assert!(fixture.watch_caches.stats().objects > 0);

    fixture.host.remove(&RESOURCE_REGISTRIES, "", "r");
    wait_until(async || fixture.cache.cached_kind(&MAPS).is_none()).await;
    wait_until(async || fixture.watch_caches.stats().objects == 0).await;
    fixture.stop().await;
}

// proves: SRC-list, SRC-paged
#[tokio::test]
async fn lists_go_over_the_members_in_the_order_of_their_names() {
    let fixture = SearchFixture::with_registry([&["a", "b"], &["b", "c"]]).await;
    let page = fixture.list(MemberListRequest::default()).await.unwrap();
    let all = ["m1/a", "m1/b", "m2/b", "m2/c"];
    assert_eq!(names(&page.items), all);
    assert_eq!(page.continue_token, None);
    // The objects have the versions of their members.
    let value = page.items[0].value().unwrap();
    let version = value["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(version.parse::<u64>().is_ok(), "{version}");
    for limit in 1..5 {
        let mut request = MemberListRequest {
            limit,
            ..MemberListRequest::default()
        };
        let mut listed = Vec::new();
        loop {
            let page = fixture.list(request.clone()).await.unwrap();
            assert!(page.items.len() <= limit);
            let version = MultiClusterResourceVersion::parse(&page.resource_version).unwrap();
            assert_eq!(version.clusters().count(), 2, "of all members on each page");
            listed.extend(names(&page.items));
            match page.continue_token {
                Some(token) => request.continue_token = token,
                None => break,
            }
        }
        assert_eq!(listed, all, "{limit}");
    }
    let selection = MemberObjectSelection {
        namespace: Some("ns".to_owned()),
        name: None,
        matches: Some(Arc::new(|object| object.meta().label("name") == Some("b"))),
    };
    let request = MemberListRequest {
        selection,
        ..MemberListRequest::default()
    };
    let page = fixture.list(request).await.unwrap();
    assert_eq!(names(&page.items), ["m1/b", "m2/b"]);
    fixture.stop().await;
}

// proves: SRC-ambiguous
#[tokio::test]
async fn a_get_finds_the_only_member_with_the_object() {
    let fixture = SearchFixture::with_registry([&["a", "b"], &["b"]]).await;
    let get = async |name: &str| fixture.cache.get(&MAPS, "ns", name, "").await;
    let object = get("a").await.unwrap();
    assert_eq!(names(std::slice::from_ref(&object)), ["m1/a"]);
    let value = object.value().unwrap();
    let version = value["metadata"]["resourceVersion"].as_str().unwrap();
    let own = fixture.cache.member_resource_version("m1", version);
    assert_eq!(own.unwrap(), object.revision().to_string());
    let status = get("b").await.unwrap_err();
    assert_eq!(status.code, 409);
    let message = "ambiguous objects in clusters [m1, m2]";
    assert!(status.message.ends_with(message), "{}", status.message);
    assert_eq!(get("c").await.unwrap_err().code, 404);
    let owner = fixture.cache.find_cluster(&MAPS, "ns", "a").await;
    assert_eq!(owner.unwrap(), "m1");
    fixture.stop().await;
}

// proves: SRC-watch, SRC-resume
#[tokio::test]
async fn watches_are_merged_and_resume_in_each_member() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let listed = fixture.list(MemberListRequest::default()).await.unwrap();
    let mut watch = fixture.watch(&listed.resource_version).await.unwrap();
    fixture.members[1].seed(&MAPS, map("ns", "c"));
    let (line, after_c) = next_event(&mut watch).await.unwrap().unwrap();
    assert_eq!(line, "ADDED m2/c");
    fixture.members[0].remove(&MAPS, "ns", "a");
    let (line, after_a) = next_event(&mut watch).await.unwrap().unwrap();
    assert_eq!(line, "DELETED m1/a");
    let version = MultiClusterResourceVersion::parse(&after_a).unwrap();
    assert_eq!(version.clusters().count(), 2);
    // Resumed, only what follows is sent again.
    let mut resumed = fixture.watch(&after_c).await.unwrap();
    let (line, _) = next_event(&mut resumed).await.unwrap().unwrap();
    assert_eq!(line, "DELETED m1/a");
    // Without a version, the present objects come first.
    let mut fresh = fixture.watch("").await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..2 {
        lines.push(next_event(&mut fresh).await.unwrap().unwrap().0);
    }
    lines.sort();
    assert_eq!(lines, ["ADDED m2/b", "ADDED m2/c"]);
    // The watches of a member end now and then; the cache goes on.
    fixture.members[0].end_watches();
    fixture.members[0].seed(&MAPS, map("ns", "d"));
    let (line, _) = next_event(&mut resumed).await.unwrap().unwrap();
    assert_eq!(line, "ADDED m1/d");
    fixture.stop().await;
}

// proves: SRC-initial-events
#[tokio::test]
async fn streaming_lists_end_with_one_bookmark_of_all_members() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let request = MemberWatchRequest {
        send_initial_events: Some(true),
        resource_version_match: "NotOlderThan".to_owned(),
        bookmarks: true,
        ..MemberWatchRequest::default()
    };
    let mut watch = fixture.cache.watch(&MAPS, request).await.unwrap();
    let mut names = Vec::new();
    let version = loop {
        match watch.next().await.unwrap().unwrap() {
            MemberWatchEvent::Object { object, .. } => names.push(object.name().to_owned()),
            MemberWatchEvent::Bookmark {
                resource_version,
                initial_end,
            } => {
                assert!(initial_end);
                break resource_version;
            }
        }
    };
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let version = MultiClusterResourceVersion::parse(&version).unwrap();
    assert_eq!(version.clusters().collect::<Vec<_>>(), ["m1", "m2"]);
    fixture.stop().await;
}

// proves: SRC-members-change
#[tokio::test]
async fn watches_end_when_the_members_change() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let listed = fixture.list(MemberListRequest::default()).await.unwrap();
    let mut watch = fixture.watch(&listed.resource_version).await.unwrap();
    fixture.host.seed(&CLUSTERS, cluster("m2", false));
    assert!(next_event(&mut watch).await.is_none());
    fixture.wait_for_clusters(&["m1"]).await;
    // The objects that the client knows of m2 would never be deleted.
    let status = fixture.watch(&listed.resource_version).await.err().unwrap();
    assert_eq!(status.code, 410);
    let without = fixture.list(MemberListRequest::default()).await.unwrap();
    fixture.host.seed(&CLUSTERS, cluster("m2", true));
    fixture.wait_for_clusters(&["m1", "m2"]).await;
    // The objects of a member that is new to the client are added.
    let mut watch = fixture.watch(&without.resource_version).await.unwrap();
    let (line, _) = next_event(&mut watch).await.unwrap().unwrap();
    assert_eq!(line, "ADDED m2/b");
    fixture.stop().await;
}

// proves: SRC-namespaces
#[tokio::test]
async fn only_the_selected_namespaces_are_cached() {
    let fixture = SearchFixture::with_registry([&["a"], &[]]).await;
    fixture.members[0].seed(&MAPS, map("other", "b"));
    let mut two = registry("ns");
    let third = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "third"});
    let selectors = two["spec"]["resourceSelectors"].as_array_mut();
    selectors.unwrap().push(third);
    for (registry, expected) in [(registry("other"), "m1/b"), (two, "m1/a")] {
        fixture.host.seed(&RESOURCE_REGISTRIES, registry);
        wait_until(async || {
            let result = fixture
                .cache
                .search(&MAPS, MemberObjectSelection::default());
            names(&result.await.unwrap().items) == [expected]
        })
        .await;
    }
    // Events of other namespaces do not stop the watch.
    fixture.members[0].seed(&MAPS, map("other", "c"));
    fixture.members[0].seed(&MAPS, map("third", "d"));
    wait_until(async || fixture.cache.get(&MAPS, "third", "d", "").await.is_ok()).await;
    assert!(fixture.cache.get(&MAPS, "other", "c", "").await.is_err());
    fixture.stop().await;
}

#[tokio::test]
async fn a_member_that_has_lost_its_history_is_listed_again() {
    let fixture = SearchFixture::with_registry([&["a"], &[]]).await;
    let listed = fixture.list(MemberListRequest::default()).await.unwrap();
    fixture.members[0].pause_watches(&MAPS);
    fixture.members[0].seed(&MAPS, map("ns", "b"));
    fixture.members[0].compact();
    fixture.members[0].end_watches();
    fixture.members[0].resume_watches(&MAPS);
    wait_until(async || fixture.cache.get(&MAPS, "ns", "b", "").await.is_ok()).await;
    // The events in between are lost, which a client learns.
    wait_until(
        async || match fixture.watch(&listed.resource_version).await {
            Ok(mut watch) => matches!(next_event(&mut watch).await, Some(Ok(_))),
            Err(status) => status.code == 410,
        },
    )
    .await;
    fixture.stop().await;
}

// proves: SRC-missing-members
#[tokio::test]
async fn searches_name_the_members_that_are_missing() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let mut pull = cluster("m2", true);
    pull["spec"]["syncMode"] = "Pull".into();
    fixture.host.seed(&CLUSTERS, pull);
    wait_until(async || {
        let result = fixture
            .cache
            .search(&MAPS, MemberObjectSelection::default());
        let result = result.await.unwrap();
        let warned = result.warnings == ["cluster(m2): cluster \"m2\" is in pull mode"];
        warned && names(&result.items) == ["m1/a"]
    })
    .await;
    fixture.stop().await;
}

// proves: ADD-search
#[tokio::test]
async fn a_disabled_cache_is_disconnected_until_it_is_enabled() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let mut watched = fixture.watch("").await.unwrap();
    fixture.enabled.send_replace(false);
    wait_until(async || fixture.cache.cached_kind(&MAPS).is_none()).await;
    // A watch ends, so that its client learns it.
    let ended = async { while let Some(Ok(_)) = watched.next().await {} };
    tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .unwrap();
    let dialed = fixture.connections.load(Ordering::Relaxed);
    fixture.host.seed(&CLUSTERS, cluster("m1", true));
    fixture.enabled.send_replace(true);
    fixture.wait_for_clusters(&["m1", "m2"]).await;
    assert_eq!(fixture.connections.load(Ordering::Relaxed), dialed + 2);
    fixture.stop().await;
}
