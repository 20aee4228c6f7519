//! A model test: a list at a revision and the events after it yield the state of the
//! store, whatever happens in between.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::{CacherListRequest, Error, ListRevision, ObjectEventType, ReadFreshness};

const KEYS: [&str; 8] = ["a/x", "a/y", "a/z", "ab/x", "b/x", "b/y", "c/x", "c/w"];
const APPS: [&str; 3] = ["red", "blue", "green"];

#[derive(Clone, Debug)]
enum ModelOp {
    Put(usize, usize),
    Delete(usize),
    /// Sets a label on all keys from one on, at one revision.
    PutMany(usize, usize),
    Elsewhere,
    /// Compacts all but some revisions.
    Compact(u64),
    Break,
    /// A client reads some items.
    Read(usize, usize),
    /// Lists a past revision, in pages.
    Past(Index, usize),
}

fn op() -> impl Strategy<Value = ModelOp> {
    prop_oneof![
        8 => (0..KEYS.len(), 0..APPS.len()).prop_map(|(k, a)| ModelOp::Put(k, a)),
        4 => (0..KEYS.len()).prop_map(ModelOp::Delete),
        1 => (0..KEYS.len(), 0..APPS.len()).prop_map(|(k, a)| ModelOp::PutMany(k, a)),
        1 => Just(ModelOp::Elsewhere),
        1 => (0..20_u64).prop_map(ModelOp::Compact),
        1 => Just(ModelOp::Break),
        6 => (0..READERS, 0..6_usize).prop_map(|(r, n)| ModelOp::Read(r, n)),
        2 => (any::<Index>(), 0..4_usize).prop_map(|(index, limit)| ModelOp::Past(index, limit)),
    ]
}

type ModelState = BTreeMap<String, (u64, String)>;

fn record(object: &machinery::Object) -> (u64, String) {
    let app = object.meta().label("app").unwrap_or_default();
    (object.revision(), app.to_owned())
}

/// A client: its selection and the state that it has built from its list and watch.
struct ModelClient {
    filter: SelectionPredicate,
    selects: fn(&str, &str) -> bool,
    /// Starts with initial events in the watch, without a list.
    sends_initial_events: bool,
    watcher: Option<CacheWatcher>,
    state: ModelState,
    revision: u64,
}

const READERS: usize = 5;

fn readers() -> [ModelClient; READERS] {
    let reader = |filter, streams, selects| ModelClient {
        filter,
        selects,
        sends_initial_events: streams,
        watcher: None,
        state: ModelState::new(),
        revision: 0,
    };
    [
        reader(SelectionPredicate::default(), false, |_, _| true),
        reader(namespace("a"), true, |key, _| key.starts_with("a/")),
        reader(labelled("red"), false, |_, app| app == "red"),
        reader(named(None, "x"), true, |key, _| key.ends_with("/x")),
        reader(
            SelectionPredicate {
                namespace: Some("b".into()),
                ..labelled("blue")
            },
            true,
            |key, app| key.starts_with("b/") && app == "blue",
        ),
    ]
}

impl FakeStorageEngine {
    fn expected_state(&self, revision: u64, selects: impl Fn(&str, &str) -> bool) -> ModelState {
        let state = self.inner.lock().state(revision);
        let objects = state.values().filter(|e| e.key.starts_with(PREFIX));
        objects
            .map(|e| machinery::Object::from_stored(&e.value, e.mod_revision).unwrap())
            .map(|o| (o.meta().key(), record(&o)))
            .filter(|(key, (_, app))| selects(key, app))
            .collect()
    }
}

impl ModelClient {
    /// Lists, and watches from the revision of the list.
    async fn restart(&mut self, bed: &CacherFixture) {
        self.state.clear();
        self.watcher = None;
        if self.sends_initial_events {
            let start = WatchStart::Initial(ReadFreshness::Newest);
            self.watcher = bed.try_watch(self.filter.clone(), start, true).await.ok();
            self.revision = 0;
            return;
        }
        let request = CacherListRequest {
            filter: self.filter.clone(),
            revision: ListRevision::Newest,
            limit: 0,
        };
        let reply = bed.cache.list(request).await.unwrap();
        let objects = reply.items.iter();
        self.state = objects.map(|o| (o.meta().key(), record(o))).collect();
        let truth = bed.store.expected_state(reply.revision, self.selects);
        assert_eq!(self.state, truth, "list at {}", reply.revision);
        self.revision = reply.revision;
        self.resume(bed).await;
    }

    async fn resume(&mut self, bed: &CacherFixture) {
        let start = WatchStart::After(self.revision);
        self.watcher = bed.try_watch(self.filter.clone(), start, true).await.ok();
    }

    /// Reads up to `count` items. Returns whether the watch had no more.
    async fn read(&mut self, bed: &CacherFixture, count: usize) -> bool {
        if self.watcher.is_none() {
            self.restart(bed).await;
        }
        for _ in 0..count {
            let Some(watcher) = &mut self.watcher else {
                return false;
            };
            let next = tokio::time::timeout(Duration::from_millis(1), watcher.next()).await;
            match next {
                Err(_) => return true,
                Ok(Some(Ok(item))) => self.apply(bed, &item),
                // The watch of the store broke: the client resumes at the last revision
                // that it has received completely.
                Ok(None) if self.is_up_to_date(bed) => self.resume(bed).await,
                Ok(None) => self.watcher = None,
                Ok(Some(Err(Error::Expired {
                    requested, oldest, ..
                }))) => {
                    assert!(requested < oldest, "{requested} is not older than {oldest}");
                    self.watcher = None;
                }
                Ok(Some(Err(Error::Storage(_)))) => self.watcher = None,
                Ok(Some(Err(e))) => panic!("{e}"),
            }
        }
        false
    }

    fn is_up_to_date(&self, bed: &CacherFixture) -> bool {
        self.revision > 0 && self.state == bed.store.expected_state(self.revision, self.selects)
    }

    fn apply(&mut self, bed: &CacherFixture, item: &CacheWatcherItem) {
        let delivery = match item {
            CacheWatcherItem::Event(delivery) => delivery,
            CacheWatcherItem::Bookmark {
                revision,
                initial_end,
            } => {
                assert!(*revision >= self.revision);
                assert_eq!(
                    *initial_end,
                    self.revision == 0,
                    "one end of the initial state"
                );
                self.revision = *revision;
                let truth = bed.store.expected_state(*revision, self.selects);
                assert_eq!(self.state, truth, "bookmark at {revision}");
                return;
            }
        };
        let (object, revision) = (delivery.object(), delivery.revision());
        let key = object.meta().key();
        let (_, app) = record(object);
        let previous = self.state.get(&key).map(|(_, app)| app.clone());
        match delivery.event_type() {
            ObjectEventType::Added => assert_eq!(previous, None, "added twice: {key}@{revision}"),
            ObjectEventType::Modified => assert!(
                previous.is_some(),
                "modified before it was added: {key}@{revision}"
            ),
            ObjectEventType::Deleted => assert_eq!(
                previous,
                Some(app.clone()),
                "the last received state is deleted"
            ),
        }
        if delivery.event_type() == ObjectEventType::Deleted {
            self.state.remove(&key);
        } else {
            assert!((self.selects)(&key, &app));
            self.state.insert(key, (revision, app));
        }
        if self.revision > 0 {
            // Several keys may share a revision, and a client resumes after the last
            // revision that it has received completely.
            assert!(revision >= self.revision);
            let truth = bed.store.expected_state(revision, self.selects);
            if self.state == truth {
                self.revision = revision;
            }
        }
    }
}

async fn check_past_revision(bed: &CacherFixture, revision: u64, limit: usize) {
    let mut page = ListRevision::Exact(revision);
    let mut listed = ModelState::new();
    loop {
        let request = CacherListRequest {
            filter: SelectionPredicate::default(),
            revision: page,
            limit,
        };
        match bed.cache.list(request).await {
            Ok(reply) => {
                assert_eq!(reply.revision, revision);
                listed.extend(reply.items.iter().map(|o| (o.meta().key(), record(o))));
                match reply.continue_token {
                    Some(next) => page = ListRevision::Continue(next),
                    None => break,
                }
            }
            Err(Error::Expired { oldest, .. }) => {
                assert!(revision < oldest);
                return;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(
        listed,
        bed.store.expected_state(revision, |_, _| true),
        "exactly {revision}"
    );
}

async fn play(ring_bytes: usize, uncached: bool, ops: Vec<ModelOp>) {
    let bed = CacherFixture::with_ring(ring_bytes, uncached);
    let mut readers = readers();
    // The first write has revision 1.
    bed.store.write_other_resource();
    for op in ops {
        match op {
            ModelOp::Put(key, app) => {
                bed.store.put(KEYS[key], APPS[app]);
            }
            ModelOp::Delete(key) => {
                if bed
                    .store
                    .expected_state(bed.store.revision(), |k, _| k == KEYS[key])
                    .len()
                    == 1
                {
                    bed.store.delete(KEYS[key]);
                }
            }
            ModelOp::PutMany(from, app) => {
                let keys = KEYS[from..].iter();
                let changes: Vec<_> = keys.map(|k| (*k, Some(thing_json(k, APPS[app])))).collect();
                bed.store.write(&changes);
            }
            ModelOp::Elsewhere => {
                bed.store.write_other_resource();
            }
            ModelOp::Compact(kept) => bed
                .store
                .compact_to(bed.store.revision().saturating_sub(kept)),
            ModelOp::Break => bed.store.break_watches(),
            ModelOp::Read(reader, count) => {
                readers[reader].read(&bed, count).await;
            }
            ModelOp::Past(at, limit) => {
                let now = usize::try_from(bed.store.revision()).unwrap();
                check_past_revision(&bed, at.index(now) as u64 + 1, limit).await;
            }
        }
    }
    for reader in &mut readers {
        let mut rounds = 0;
        while !reader.read(&bed, 1000).await {
            tokio::time::sleep(Duration::from_secs(1)).await;
            rounds += 1;
            assert!(rounds < 50, "a client does not finish");
        }
        let truth = bed
            .store
            .expected_state(bed.store.revision(), reader.selects);
        assert_eq!(reader.state, truth);
    }
    let stats = bed.cache.stats();
    assert!(stats.ring_bytes <= ring_bytes);
    drop(readers);
    assert_eq!(bed.cache.stats().watchers, 0);
    bed.caches.shutdown().await;
    assert_eq!(bed.cache.stats().ring_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_list_and_its_watch_yield_the_state_of_the_store(
        ring_bytes in prop_oneof![Just(0), Just(3_000), Just(10_000), Just(32 << 20)],
        uncached in prop::bool::weighted(0.2),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(ring_bytes, uncached, ops));
    }
}
