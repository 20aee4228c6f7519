//! Tests of the cache of the fleet view over fake members: what it reads, and when it forgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, ApiResource, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use futures_util::StreamExt;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use machinery::{Gvr, Object, Status};
use members::{
    CONTROL_PLANE, ClusterProxyBackends, FleetCache, FleetResource, FleetSources, MemberEndpoint,
    MemberListRequest, MemberObjectSelection, MemberResourceCache, MemberWatchEvent,
    MemberWatchRequest, MemberWatchStream, RestrictedMembers,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use watchcache::{WatchCacheConfig, WatchCaches};

use crate::tests::{
    MAPS, SECRETS, cluster, context, map, names, next_event, unused_store, wait_until,
};
use crate::{FleetOptions, MemberCaches, start_fleet};

struct FleetFixture {
    host: Arc<FakeApi>,
    members: [Arc<FakeApi>; 2],
    cache: Arc<dyn FleetCache>,
    tasks: TaskGroup,
    watch_caches: Arc<WatchCaches>,
}

impl FleetFixture {
    /// Both members, of which the second may not be Ready.
    fn new(is_second_ready: bool) -> Self {
        let (host, members) = (FakeApi::new(), [FakeApi::new(), FakeApi::new()]);
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "kc", "name": "s"},
            "data": {"token": "dA==", "caBundle": "Y2E="}});
        host.seed(&SECRETS, secret);
        host.seed(&CLUSTERS, cluster("m1", true));
        host.seed(&CLUSTERS, cluster("m2", is_second_ready));
        for (member, objects) in members.iter().zip([["a", "b"], ["b", "c"]]) {
            for name in objects {
                member.seed(&MAPS, map("ns", name));
            }
        }
        let apis = members.clone();
        let connect = move |to: &MemberEndpoint, _: &TaskGroup| {
            let index = usize::from(to.cluster != "m1");
            Ok(Arc::clone(&apis[index]) as Arc<dyn Api>)
        };
        let tasks = TaskGroup::new(ShutdownToken::new());
        let watch_caches =
            WatchCaches::new(unused_store(host.clone()), WatchCacheConfig::default());
        let options = FleetOptions {
            connector: Arc::new(connect),
            backends: ClusterProxyBackends::start(host.clone(), &tasks),
            caches: MemberCaches::new(&watch_caches),
        };
        let cache = start_fleet(&context(&host, &tasks), options);
        Self {
            host,
            members,
            cache,
            tasks,
            watch_caches,
        }
    }

    async fn maps(&self) -> Arc<dyn FleetResource> {
        self.of_sources(FleetSources::Members).await
    }

    async fn of_sources(&self, sources: FleetSources) -> Arc<dyn FleetResource> {
        self.cache.resource(&MAPS, sources).await.unwrap()
    }

    /// The control plane serves the resource of the members, and has an object.
    fn seed_control_plane(&self, verbs: &[&str]) {
        self.host.add_resource(ApiResource {
            resource: MAPS.clone(),
            kind: "ConfigMap".to_owned(),
            namespaced: true,
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            subresources: Vec::new(),
            categories: Vec::new(),
            short_names: Vec::new(),
        });
        let mut own = map("ns", "a");
        own["metadata"]["uid"] = "own".into();
        own["metadata"]["labels"][CACHED_FROM_CLUSTER] = "m1".into();
        own["metadata"]["annotations"] = json!({CACHED_FROM_CLUSTER: "m1"});
        self.host.seed(&MAPS, own);
        self.host.seed(&MAPS, map("ns", "ann@example.com"));
    }

    async fn stop(self) {
        self.tasks.stop().await;
        self.watch_caches.shutdown().await;
    }
}

fn restricted(resource: &dyn FleetResource, clusters: &[&str]) -> Arc<dyn MemberResourceCache> {
    resource.restricted(RestrictedMembers {
        clusters: clusters.iter().map(|c| (*c).to_owned()).collect(),
        ..RestrictedMembers::default()
    })
}

async fn listed(cache: &dyn MemberResourceCache, request: MemberListRequest) -> Vec<String> {
    names(&cache.list(&MAPS, request).await.unwrap().items)
}

// proves: FLV-known-kinds
#[tokio::test]
async fn a_member_does_not_rename_a_kind() {
    let fixture = FleetFixture::new(true);
    for (name, map_kind, dragon_kind) in [
        ("m0", "Secret", "Lie"),
        ("m1", "ConfigMap", "Dragon"),
        ("m2", "ConfigMap", "Dragon"),
    ] {
        let mut cluster = cluster(name, true);
        cluster["status"]["apiEnablements"] = json!([{"groupVersion": "v1", "resources": [
            {"name": "configmaps", "kind": map_kind}, {"name": "dragons", "kind": dragon_kind}]}]);
        fixture.host.seed(&CLUSTERS, cluster);
    }
    let dragons = Gvr::new("", "v1", "dragons");
    for (resource, expected) in [(&MAPS, "ConfigMap"), (&dragons, "Dragon")] {
        let cached = fixture.cache.resource(resource, FleetSources::Members);
        let cached = cached.await.unwrap();
        let kind = restricted(&*cached, &[]).cached_kind(resource).unwrap();
        assert_eq!(&*kind.kind, expected);
    }
    fixture.stop().await;
}

// proves: FLV-demand, FLV-list
#[tokio::test]
async fn a_resource_is_cached_when_it_is_read() {
    let fixture = FleetFixture::new(true);
    assert_eq!(fixture.watch_caches.stats().objects, 0);
    let unknown = Gvr::new("", "v1", "dragons");
    for sources in [FleetSources::Members, FleetSources::MembersAndControlPlane] {
        let rejection: Result<_, Status> = fixture.cache.resource(&unknown, sources).await;
        assert_eq!(rejection.err().map(|status| status.code), Some(404));
    }

    let resource = fixture.maps().await;
    assert_eq!(resource.clusters(), ["m1", "m2"]);
    assert!(resource.missing().is_empty());
    let cache = restricted(&*resource, &["m1", "m2"]);
    let all = listed(&*cache, MemberListRequest::default()).await;
    assert_eq!(all, ["m1/a", "m1/b", "m2/b", "m2/c"]);
    assert!(fixture.cache.has_cluster("m1").await);
    assert!(!fixture.cache.has_cluster("m3").await);
    let served = fixture.cache.served_resources().await;
    let names = BTreeSet::from(["configmaps".to_owned(), "secrets".to_owned()]);
    let expected = BTreeMap::from([("v1".to_owned(), names)]);
    assert_eq!(served["m2"], expected);
    fixture.stop().await;
}

/// A ConfigMap of a controller, most of which is the same in all of its objects.
fn controlled_map(name: &str, note: &str) -> Value {
    let mut map = map("ns", name);
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "r", "uid": "r", "controller": true}]);
    let text: Vec<String> = (0..200_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_string())
        .collect();
    map["data"] = json!({"note": note, "text": text.join(" ")});
    map
}

// proves: FLV-cached-once
#[tokio::test]
async fn objects_of_one_controller_share_their_bytes() {
    let fixture = FleetFixture::new(true);
    let name = |n: usize| format!("map-{n:02}");
    for n in 0..40 {
        let map = controlled_map(&name(n), &n.to_string());
        fixture.members[0].seed(&MAPS, map);
    }
    let resource = fixture.maps().await;
    let cache = restricted(&*resource, &["m1"]);
    let page = cache.list(&MAPS, MemberListRequest::default());
    let page = page.await.unwrap();
    let controlled = page
        .items
        .iter()
        .filter(|o| o.meta().controller().is_some());
    let controlled: Vec<&Object> = controlled.collect();
    assert_eq!(controlled.len(), 40);
    let lengths: usize = controlled.iter().map(|o| o.encoded_len()).sum();
    let memory: usize = controlled.iter().map(|o| o.memory_bytes()).sum();
    assert!(lengths > 4 * memory, "{lengths} bytes in {memory}");
    for (n, object) in controlled.iter().enumerate() {
        let expected = controlled_map(&name(n), &n.to_string());
        assert_eq!(object.value().unwrap()["data"], expected["data"]);
    }

    let request = MemberWatchRequest {
        resource_version: page.resource_version,
        ..MemberWatchRequest::default()
    };
    let mut events = cache.watch(&MAPS, request).await.unwrap();
    let changed = controlled_map(&name(7), "changed");
    fixture.members[0].seed(&MAPS, changed.clone());
    let Some(Ok(MemberWatchEvent::Object { object, .. })) = events.next().await else {
        panic!("no event");
    };
    assert_eq!(object.value().unwrap()["data"], changed["data"]);
    drop(events);
    fixture.stop().await;
}

// proves: FLV-restricted, FLV-resume
#[tokio::test]
async fn a_reader_of_some_members_sees_nothing_of_others() {
    let fixture = FleetFixture::new(true);
    let resource = fixture.maps().await;
    let both = restricted(&*resource, &["m1", "m2"]);
    let first = restricted(&*resource, &["m1"]);
    assert_eq!(
        listed(&*first, MemberListRequest::default()).await,
        ["m1/a", "m1/b"]
    );
    // An ambiguous name is not, for who sees one of the objects.
    assert_eq!(both.get(&MAPS, "ns", "b", "").await.unwrap_err().code, 409);
    assert_eq!(first.find_cluster(&MAPS, "ns", "b").await.unwrap(), "m1");
    let rejection = first.get(&MAPS, "ns", "c", "").await.unwrap_err();
    assert_eq!(rejection.code, 404);
    let search = first.search(&MAPS, MemberObjectSelection::default()).await;
    assert_eq!(names(&search.unwrap().items), ["m1/a", "m1/b"]);

    // Neither a token nor a resourceVersion of a wider reader helps.
    let page = MemberListRequest {
        limit: 3,
        ..MemberListRequest::default()
    };
    let wide = both.list(&MAPS, page.clone()).await.unwrap();
    let next = MemberListRequest {
        continue_token: wide.continue_token.unwrap(),
        ..page
    };
    assert_eq!(first.list(&MAPS, next).await.unwrap_err().code, 410);
    let watch = |resource_version: &str| MemberWatchRequest {
        resource_version: resource_version.to_owned(),
        ..MemberWatchRequest::default()
    };
    let rejection = first.watch(&MAPS, watch(&wide.resource_version)).await;
    assert_eq!(rejection.err().map(|status| status.code), Some(410));

    let page = first
        .list(&MAPS, MemberListRequest::default())
        .await
        .unwrap();
    let mut events = first
        .watch(&MAPS, watch(&page.resource_version))
        .await
        .unwrap();
    fixture.members[1].seed(&MAPS, map("ns", "d"));
    fixture.members[0].seed(&MAPS, map("ns", "e"));
    let (event, version) = next_event(&mut events).await.unwrap().unwrap();
    assert_eq!(event, "ADDED m1/e");
    fixture.members[0].seed(&MAPS, map("ns", "f"));
    drop(events);
    let mut resumed = first.watch(&MAPS, watch(&version)).await.unwrap();
    let (event, _) = next_event(&mut resumed).await.unwrap().unwrap();
    assert_eq!(event, "ADDED m1/f");
    fixture.stop().await;
}

// proves: FLV-missing
#[tokio::test]
async fn a_dead_member_is_missing_and_named() {
    let fixture = FleetFixture::new(false);
    let resource = fixture.maps().await;
    assert_eq!(resource.clusters(), ["m1"]);
    assert_eq!(resource.missing().keys().collect::<Vec<_>>(), ["m2"]);
    let cache = restricted(&*resource, &["m1"]);
    let mut events = cache
        .watch(&MAPS, MemberWatchRequest::default())
        .await
        .unwrap();
    for expected in ["ADDED m1/a", "ADDED m1/b"] {
        let (event, _) = next_event(&mut events).await.unwrap().unwrap();
        assert_eq!(event, expected);
    }
    // When it is back, the watch ends, so that the next one has its objects.
    fixture.host.seed(&CLUSTERS, cluster("m2", true));
    assert!(next_event(&mut events).await.is_none());
    wait_until(async || fixture.maps().await.clusters() == ["m1", "m2"]).await;
    fixture.stop().await;
}

// proves: FLV-missing
#[tokio::test]
async fn a_member_that_does_not_list_delays_nobody_for_long() {
    let fixture = FleetFixture::new(true);
    fixture.members[1].on_call(|_| {
        Some(client::Error::Transport {
            host: "10.0.0.1:6443".to_owned(),
            message: "down".to_owned(),
        })
    });
    let resource = fixture.maps().await;
    assert_eq!(resource.clusters(), ["m1"]);
    let expected = BTreeMap::from([("m2".to_owned(), "down".to_owned())]);
    assert_eq!(*resource.missing(), expected);
    fixture.stop().await;
}

// proves: FLV-missing, FLV-pull-rights
#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_is_named_with_its_words_and_asked_rarely() {
    let fixture = FleetFixture::new(true);
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let refusal = format!("User \"c\" cannot list it{}", "!".repeat(10_000));
    fixture.members[1].on_call(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(Status::forbidden(&MAPS, "", refusal.clone()).into())
    });
    let resource = fixture.maps().await;
    assert_eq!(resource.clusters(), ["m1"]);
    let reason = &resource.missing()["m2"];
    assert!(reason.contains("cannot list it"), "{reason}");
    assert!(reason.len() < 300, "{reason}");
    lists.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lists = lists.load(Ordering::Relaxed);
    assert!((1..=9).contains(&lists), "{lists}");
    // Once the right is given, the member is there.
    fixture.members[1].on_call(|_| None);
    wait_until(async || fixture.maps().await.clusters() == ["m1", "m2"]).await;
    fixture.stop().await;
}

// proves: FLV-pull
#[tokio::test]
async fn a_member_whose_agent_has_no_tunnel_is_missing_and_named() {
    let fixture = FleetFixture::new(true);
    let mut pull = cluster("m2", true);
    pull["spec"]["syncMode"] = "Pull".into();
    fixture.host.seed(&CLUSTERS, pull);
    wait_until(async || {
        let resource = fixture.maps().await;
        let reason = resource.missing().get("m2");
        reason.is_some_and(|reason| reason.contains("no tunnel to this replica"))
    })
    .await;
    assert_eq!(fixture.maps().await.clusters(), ["m1"]);
    let served = fixture.cache.served_resources().await;
    assert_eq!(served.keys().collect::<Vec<_>>(), ["m1"]);
    fixture.stop().await;
}

/// An event with the origin and the name of its object.
async fn next_change(events: &mut MemberWatchStream) -> (String, String) {
    let event = timeout(Duration::from_secs(60), events.next()).await;
    let Some(Ok(MemberWatchEvent::Object { event_type, object })) = event.unwrap() else {
        panic!("no event");
    };
    let version = object.value().unwrap()["metadata"]["resourceVersion"].clone();
    let line = format!("{event_type} {}", origin_and_name(&object));
    (line, version.as_str().unwrap().to_owned())
}

fn origin_and_name(object: &Object) -> String {
    let origin = object.meta().label(CACHED_FROM_CLUSTER).unwrap_or("-");
    format!("{origin}/{}", object.name())
}

// proves: FLT-list, FLT-watch, FLT-resume, FLT-untrusted
#[tokio::test]
async fn the_objects_of_the_control_plane_are_those_of_one_more_server() {
    let fixture = FleetFixture::new(true);
    fixture.seed_control_plane(&["list", "watch"]);
    // A reader of the members alone has nothing of them.
    assert_eq!(fixture.maps().await.clusters(), ["m1", "m2"]);
    let resource = fixture
        .of_sources(FleetSources::MembersAndControlPlane)
        .await;
    assert_eq!(resource.clusters(), [CONTROL_PLANE, "m1", "m2"]);
    assert_eq!(fixture.maps().await.clusters(), ["m1", "m2"]);
    let cache = restricted(&*resource, &[CONTROL_PLANE, "m1", "m2"]);
    let mut page = MemberListRequest {
        limit: 2,
        ..MemberListRequest::default()
    };
    let mut objects = Vec::new();
    let version = loop {
        let list = cache.list(&MAPS, page.clone()).await.unwrap();
        objects.extend(list.items);
        match list.continue_token {
            Some(token) => page.continue_token = token,
            None => break list.resource_version,
        }
    };
    let names: Vec<String> = objects.iter().map(origin_and_name).collect();
    // An object with an `@` in its name is not shown: the name of a cluster could follow it.
    assert_eq!(names, ["-/a", "m1/a", "m1/b", "m2/b", "m2/c"]);
    let own = objects[0].value().unwrap();
    assert_eq!(own["metadata"]["uid"], "own");
    assert_eq!(own["metadata"]["labels"], json!({"name": "a"}));
    assert!(own["metadata"]["annotations"].is_null());

    let watch = |resource_version: String| MemberWatchRequest {
        resource_version,
        ..MemberWatchRequest::default()
    };
    let mut events = cache.watch(&MAPS, watch(version)).await.unwrap();
    fixture.host.seed(&MAPS, map("ns", "d"));
    let (event, after) = next_change(&mut events).await;
    assert_eq!(event, "ADDED -/d");
    fixture.members[1].seed(&MAPS, map("ns", "e"));
    assert_eq!(next_change(&mut events).await.0, "ADDED m2/e");
    fixture.host.remove(&MAPS, "ns", "a");
    assert_eq!(next_change(&mut events).await.0, "DELETED -/a");
    drop(events);
    let mut resumed = cache.watch(&MAPS, watch(after)).await.unwrap();
    let mut changes = [
        next_change(&mut resumed).await.0,
        next_change(&mut resumed).await.0,
    ];
    changes.sort();
    assert_eq!(changes, ["ADDED m2/e", "DELETED -/a"]);
    fixture.stop().await;
}

// proves: FLT-list
#[tokio::test]
async fn a_control_plane_that_does_not_watch_a_resource_is_left_out() {
    let fixture = FleetFixture::new(true);
    fixture.seed_control_plane(&["list"]);
    let resource = fixture
        .of_sources(FleetSources::MembersAndControlPlane)
        .await;
    assert_eq!(resource.clusters(), ["m1", "m2"]);
    assert!(resource.missing().is_empty());
    fixture.stop().await;
}
