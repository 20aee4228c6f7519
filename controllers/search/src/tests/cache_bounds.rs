//! The bounds of what the fleet view caches: what exceeds them is dropped, and nothing else.

use members::CONTROL_PLANE;
use watchcache::CacheSize;

use super::*;
use crate::cache_budget::{CacheBudget, CacheLimits};
use crate::resource_caches::{MemberCacher, SelectedResourceCaches};
use crate::selected_resources::{SelectedResource, SelectedResources};

const MIB: usize = 1 << 20;

/// The caches of the fleet view over two members, under a budget.
struct BoundedFixture {
    /// m1 and m2.
    members: [Arc<FakeApi>; 2],
    lists: [Arc<AtomicUsize>; 2],
    budget: Arc<CacheBudget>,
    caches: SelectedResourceCaches,
    watch_caches: Arc<WatchCaches>,
}

impl BoundedFixture {
    /// The ConfigMaps of both members are selected; each has one of 10 KiB.
    async fn new(limits: CacheLimits) -> Self {
        let members = [FakeApi::new(), FakeApi::new()];
        let lists: [Arc<AtomicUsize>; 2] = Default::default();
        for (member, count) in members.iter().zip(lists.clone()) {
            member.on_call(move |call| {
                count.fetch_add(usize::from(call.verb == "list"), Ordering::Relaxed);
                None
            });
        }
        let store = unused_store(FakeApi::new());
        let watch_caches = WatchCaches::new(store, WatchCacheConfig::default());
        let budget = Arc::new(CacheBudget::new(limits));
        let caches = SelectedResourceCaches::new(
            Arc::clone(&watch_caches),
            CachedForm::Fleet,
            Some(Arc::clone(&budget)),
        );
        let fixture = Self {
            members,
            lists,
            budget,
            caches,
            watch_caches,
        };
        for member in [0, 1] {
            fixture.put(member, "first", 10 << 10);
        }
        fixture.select(&["m1", "m2"]).await;
        fixture
    }

    async fn select(&self, clusters: &[&str]) {
        let clusters = clusters.iter().map(|name| (*name).to_owned());
        let resource = SelectedResource {
            kind: Gvk::from_static("", "v1", "ConfigMap"),
            clusters: clusters.map(|name| (name, NamespaceScope::All)).collect(),
        };
        let selected = SelectedResources::from([(MAPS.clone(), resource)]);
        let api = |cluster: &str| {
            let index = usize::from(cluster != "m1");
            Ok(Arc::clone(&self.members[index]) as Arc<dyn Api>)
        };
        self.caches.update(&selected, &api).await;
    }

    /// Writes a ConfigMap of about a size.
    fn put(&self, member: usize, name: &str, bytes: usize) {
        let mut object = map("ns", name);
        object["data"] = json!({"text": "x".repeat(bytes)});
        self.members[member].seed(&MAPS, object);
    }

    fn cacher(&self, member: usize) -> Arc<MemberCacher> {
        let caches = self.caches.find(&MAPS).unwrap();
        let mut members = caches.members.values();
        Arc::clone(members.nth(member).unwrap())
    }

    async fn wait_for_objects(&self, member: usize, expected: usize) {
        let cacher = self.cacher(member);
        wait_until(async || cacher.cacher.len() == Some(expected)).await;
    }

    /// Waits until nothing of a member is cached, and returns why.
    async fn wait_for_overflow(&self, member: usize) -> String {
        let cacher = self.cacher(member);
        let is_empty = || !cacher.cacher.ready() && cacher.cacher.size() == CacheSize::default();
        wait_until(async || cacher.store.last_failure().is_some() && is_empty()).await;
        let stats = cacher.cacher.stats();
        let left = (stats.objects, stats.ring_events, stats.ring_bytes);
        assert_eq!(left, (0, 0, 0), "nothing is left");
        cacher.store.last_failure().unwrap()
    }

    /// The bytes of the caches, which are those that the budget counts.
    fn bytes(&self) -> usize {
        let bytes = |member: usize| self.cacher(member).cacher.size().bytes;
        let sum = bytes(0) + bytes(1);
        assert_eq!(self.budget.bytes(), sum);
        sum
    }

    async fn stop(self) {
        self.caches.clear().await;
        assert_eq!(self.budget.bytes(), 0);
        self.watch_caches.shutdown().await;
    }
}

const FEW_OBJECTS: CacheLimits = CacheLimits {
    resource: CacheSize {
        objects: 3,
        bytes: MIB,
    },
    member_bytes: 100 * MIB,
    total_bytes: 100 * MIB,
};

// proves: FLT-bounds
#[tokio::test(start_paused = true)]
async fn the_bounds_of_members_are_none_of_the_control_plane() {
    let fixture = BoundedFixture::new(FEW_OBJECTS).await;
    for name in ["second", "third", "fourth"] {
        fixture.put(1, name, 2 * MIB);
    }
    fixture.select(&[CONTROL_PLANE, "m2"]).await;
    fixture.wait_for_overflow(1).await;
    fixture.wait_for_objects(0, 4).await;
    assert_eq!(fixture.budget.bytes(), 0);
    fixture.stop().await;
}

// proves: FLV-bounds
#[tokio::test(start_paused = true)]
async fn what_a_watch_adds_is_bounded_as_what_is_listed() {
    let fixture = BoundedFixture::new(FEW_OBJECTS).await;
    fixture.wait_for_objects(0, 1).await;
    fixture.wait_for_objects(1, 1).await;
    let filled = fixture.bytes();
    assert!((20 << 10..24 << 10).contains(&filled), "{filled}");
    fixture.put(0, "second", 0);
    fixture.put(0, "third", 0);
    fixture.wait_for_objects(0, 3).await;
    // To replace or delete an object makes room, to add one more does not.
    for name in ["second", "third", "second"] {
        fixture.put(0, name, 100);
    }
    fixture.members[0].remove(&MAPS, "ns", "third");
    fixture.wait_for_objects(0, 2).await;
    fixture.put(0, "fourth", 0);
    fixture.wait_for_objects(0, 3).await;
    fixture.put(0, "fifth", 0);
    let expected = "cluster \"m1\" has more than 3 configmaps or 1 MiB of them";
    assert_eq!(fixture.wait_for_overflow(0).await, expected);
    assert!((10 << 10..12 << 10).contains(&fixture.bytes()));
    fixture.wait_for_objects(1, 1).await;

    // So is a list of too many, and a member that has fewer is there again.
    fixture.put(1, "second", 0);
    fixture.wait_for_objects(1, 2).await;
    fixture.select(&["m2"]).await;
    fixture.select(&["m1", "m2"]).await;
    assert_eq!(fixture.wait_for_overflow(0).await, expected);
    fixture.members[0].remove(&MAPS, "ns", "fifth");
    tokio::time::sleep(Duration::from_secs(60)).await;
    fixture.wait_for_objects(0, 3).await;
    assert_eq!(fixture.cacher(0).store.last_failure(), None);
    assert_eq!(fixture.cacher(1).cacher.stats().fills, 1);
    fixture.bytes();
    fixture.stop().await;
}

// proves: FLV-bounds
#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_resource_are_bounded() {
    let fixture = BoundedFixture::new(FEW_OBJECTS).await;
    fixture.put(0, "second", 900 << 10);
    fixture.wait_for_objects(0, 2).await;
    // An object that grows counts too.
    fixture.put(0, "first", 200 << 10);
    let reason = fixture.wait_for_overflow(0).await;
    assert!(reason.ends_with("1 MiB of them"), "{reason}");
    fixture.wait_for_objects(1, 1).await;
    fixture.stop().await;
}

// proves: FLV-bounds
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_budget_of_all_is_not_cached() {
    let limits = CacheLimits {
        resource: CacheSize {
            objects: 1000,
            bytes: 10 * MIB,
        },
        member_bytes: 2 * MIB,
        total_bytes: 2 * MIB,
    };
    let fixture = BoundedFixture::new(limits).await;
    fixture.put(1, "second", MIB);
    fixture.wait_for_objects(1, 2).await;
    fixture.put(0, "second", MIB / 2);
    fixture.wait_for_objects(0, 2).await;
    fixture.put(0, "third", MIB / 2);
    let expected =
        "the fleet view may cache 2 MiB, and the configmaps of cluster \"m1\" do not fit";
    assert_eq!(fixture.wait_for_overflow(0).await, expected);
    fixture.wait_for_objects(1, 2).await;
    // Once the other has less, there is room.
    fixture.members[1].remove(&MAPS, "ns", "second");
    tokio::time::sleep(Duration::from_secs(60)).await;
    fixture.wait_for_objects(0, 3).await;
    fixture.wait_for_objects(1, 1).await;
    fixture.bytes();
    fixture.stop().await;
}

// proves: FLV-bounds
#[tokio::test(start_paused = true)]
async fn a_member_beyond_its_bound_is_listed_rarely() {
    let fixture = BoundedFixture::new(FEW_OBJECTS).await;
    fixture.wait_for_objects(0, 1).await;
    // It lists little, and then floods its watch.
    let mut lists_per_hour = Vec::new();
    for _ in 0..2 {
        fixture.lists[0].store(0, Ordering::Relaxed);
        for _ in 0..3600 {
            let names: Vec<String> = (0..4).map(|n| format!("flood-{n}")).collect();
            if fixture.cacher(0).cacher.ready() {
                names.iter().for_each(|name| fixture.put(0, name, 10));
            } else {
                let member = &fixture.members[0];
                names
                    .iter()
                    .for_each(|name| member.remove(&MAPS, "ns", name));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(fixture.budget.bytes() < MIB);
        }
        lists_per_hour.push(fixture.lists[0].load(Ordering::Relaxed));
    }
    // After 1, 2, 4, 8 and then 10 min each time.
    assert!((7..=9).contains(&lists_per_hour[0]), "{lists_per_hour:?}");
    assert!((5..=7).contains(&lists_per_hour[1]), "{lists_per_hour:?}");
    assert_eq!(fixture.lists[1].load(Ordering::Relaxed), 1);
    // After long within its bounds it begins anew.
    let names = (0..4).map(|n| format!("flood-{n}"));
    names.for_each(|name| fixture.members[0].remove(&MAPS, "ns", &name));
    tokio::time::sleep(Duration::from_secs(1200)).await;
    fixture.wait_for_objects(0, 1).await;
    ["a", "b", "c"]
        .iter()
        .for_each(|name| fixture.put(0, name, 10));
    fixture.wait_for_overflow(0).await;
    fixture.members[0].remove(&MAPS, "ns", "a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    fixture.wait_for_objects(0, 3).await;
    fixture.stop().await;
}

// proves: FLV-bounds
#[tokio::test(start_paused = true)]
async fn a_member_whose_watches_expire_is_listed_rarely() {
    let fixture = BoundedFixture::new(FEW_OBJECTS).await;
    fixture.wait_for_objects(0, 1).await;
    let lists = Arc::clone(&fixture.lists[0]);
    fixture.members[0].on_call(move |call| {
        lists.fetch_add(usize::from(call.verb == "list"), Ordering::Relaxed);
        (call.verb == "watch").then(|| Status::expired("too old resource version").into())
    });
    fixture.members[0].end_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lists = fixture.lists[0].load(Ordering::Relaxed);
    assert!((5..=11).contains(&lists), "{lists}");
    fixture.members[0].on_call(|_| None);
    tokio::time::sleep(Duration::from_secs(15)).await;
    fixture.put(0, "second", 0);
    fixture.wait_for_objects(0, 2).await;
    fixture.bytes();
    fixture.stop().await;
}
