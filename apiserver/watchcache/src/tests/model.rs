//! A model test: a list at a revision and the events after it yield the state of the
//! store, whatever happens in between.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::{At, Change, Error, Freshness, ListRequest};

const KEYS: [&str; 8] = ["a/x", "a/y", "a/z", "ab/x", "b/x", "b/y", "c/x", "c/w"];
const APPS: [&str; 3] = ["red", "blue", "green"];

#[derive(Clone, Debug)]
enum Op {
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

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..KEYS.len(), 0..APPS.len()).prop_map(|(k, a)| Op::Put(k, a)),
        4 => (0..KEYS.len()).prop_map(Op::Delete),
        1 => (0..KEYS.len(), 0..APPS.len()).prop_map(|(k, a)| Op::PutMany(k, a)),
        1 => Just(Op::Elsewhere),
        1 => (0..20_u64).prop_map(Op::Compact),
        1 => Just(Op::Break),
        6 => (0..READERS, 0..6_usize).prop_map(|(r, n)| Op::Read(r, n)),
        2 => (any::<Index>(), 0..4_usize).prop_map(|(at, limit)| Op::Past(at, limit)),
    ]
}

type Truth = BTreeMap<String, (u64, String)>;

fn record(object: &machinery::Object) -> (u64, String) {
    let app = object.head().label("app").unwrap_or_default();
    (object.revision(), app.to_owned())
}

/// A client: its selection and the state that it has built from its list and watch.
struct Reader {
    filter: Filter,
    selects: fn(&str, &str) -> bool,
    /// Starts with initial events in the watch, without a list.
    streams: bool,
    watcher: Option<Watcher>,
    believed: Truth,
    seen: u64,
}

const READERS: usize = 5;

fn readers() -> [Reader; READERS] {
    let reader = |filter, streams, selects| Reader {
        filter,
        selects,
        streams,
        watcher: None,
        believed: Truth::new(),
        seen: 0,
    };
    [
        reader(Filter::default(), false, |_, _| true),
        reader(namespace("a"), true, |key, _| key.starts_with("a/")),
        reader(labelled("red"), false, |_, app| app == "red"),
        reader(named(None, "x"), true, |key, _| key.ends_with("/x")),
        reader(
            Filter {
                namespace: Some("b".into()),
                ..labelled("blue")
            },
            true,
            |key, app| key.starts_with("b/") && app == "blue",
        ),
    ]
}

impl Fake {
    fn truth(&self, at: u64, selects: impl Fn(&str, &str) -> bool) -> Truth {
        let state = self.inner.lock().state(at);
        let objects = state.values().filter(|e| e.key.starts_with(PREFIX));
        objects
            .map(|e| machinery::Object::from_stored(&e.value, e.revision).unwrap())
            .map(|o| (o.head().key(), record(&o)))
            .filter(|(key, (_, app))| selects(key, app))
            .collect()
    }
}

impl Reader {
    /// Lists, and watches from the revision of the list.
    async fn restart(&mut self, bed: &Bed) {
        self.believed.clear();
        self.watcher = None;
        if self.streams {
            let start = Start::Initial(Freshness::Newest);
            self.watcher = bed.try_watch(self.filter.clone(), start, true).await.ok();
            self.seen = 0;
            return;
        }
        let request = ListRequest {
            filter: self.filter.clone(),
            at: At::Newest,
            limit: 0,
        };
        let reply = bed.cache.list(request).await.unwrap();
        let objects = reply.items.iter();
        self.believed = objects.map(|o| (o.head().key(), record(o))).collect();
        let truth = bed.store.truth(reply.revision, self.selects);
        assert_eq!(self.believed, truth, "list at {}", reply.revision);
        self.seen = reply.revision;
        self.resume(bed).await;
    }

    async fn resume(&mut self, bed: &Bed) {
        let start = Start::After(self.seen);
        self.watcher = bed.try_watch(self.filter.clone(), start, true).await.ok();
    }

    /// Reads up to `count` items. Returns whether the watch had no more.
    async fn read(&mut self, bed: &Bed, count: usize) -> bool {
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
                Ok(Some(Ok(item))) => self.take(bed, &item),
                // The watch of the store broke: the client resumes at the last revision
                // that it has received completely.
                Ok(None) if self.is_whole(bed) => self.resume(bed).await,
                Ok(None) => self.watcher = None,
                Ok(Some(Err(Error::Expired { asked, oldest, .. }))) => {
                    assert!(asked < oldest, "{asked} is not older than {oldest}");
                    self.watcher = None;
                }
                Ok(Some(Err(Error::Storage(_)))) => self.watcher = None,
                Ok(Some(Err(e))) => panic!("{e}"),
            }
        }
        false
    }

    fn is_whole(&self, bed: &Bed) -> bool {
        self.seen > 0 && self.believed == bed.store.truth(self.seen, self.selects)
    }

    fn take(&mut self, bed: &Bed, item: &Item) {
        let delivery = match item {
            Item::Event(delivery) => delivery,
            Item::Bookmark {
                revision,
                initial_end,
            } => {
                assert!(*revision >= self.seen);
                assert_eq!(*initial_end, self.seen == 0, "one end of the initial state");
                self.seen = *revision;
                let truth = bed.store.truth(*revision, self.selects);
                assert_eq!(self.believed, truth, "bookmark at {revision}");
                return;
            }
        };
        let (object, revision) = (delivery.object(), delivery.revision());
        let key = object.head().key();
        let (_, app) = record(object);
        let previous = self.believed.get(&key).map(|(_, app)| app.clone());
        match delivery.change() {
            Change::Added => assert_eq!(previous, None, "added twice: {key}@{revision}"),
            Change::Modified => assert!(
                previous.is_some(),
                "modified before it was added: {key}@{revision}"
            ),
            Change::Deleted => assert_eq!(
                previous,
                Some(app.clone()),
                "the last received state is deleted"
            ),
        }
        if delivery.change() == Change::Deleted {
            self.believed.remove(&key);
        } else {
            assert!((self.selects)(&key, &app));
            self.believed.insert(key, (revision, app));
        }
        if self.seen > 0 {
            // Several keys may share a revision, and a client resumes after the last
            // revision that it has received completely.
            assert!(revision >= self.seen);
            let truth = bed.store.truth(revision, self.selects);
            if self.believed == truth {
                self.seen = revision;
            }
        }
    }
}

async fn check_past(bed: &Bed, revision: u64, limit: usize) {
    let mut at = At::Exact(revision);
    let mut listed = Truth::new();
    loop {
        let request = ListRequest {
            filter: Filter::default(),
            at,
            limit,
        };
        match bed.cache.list(request).await {
            Ok(reply) => {
                assert_eq!(reply.revision, revision);
                listed.extend(reply.items.iter().map(|o| (o.head().key(), record(o))));
                match reply.next {
                    Some(next) => at = At::Continue(next),
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
        bed.store.truth(revision, |_, _| true),
        "exactly {revision}"
    );
}

async fn play(ring_bytes: usize, uncached: bool, ops: Vec<Op>) {
    let bed = Bed::with(ring_bytes, uncached);
    let mut readers = readers();
    // The first write has revision 1.
    bed.store.elsewhere();
    for op in ops {
        match op {
            Op::Put(key, app) => {
                bed.store.put(KEYS[key], APPS[app]);
            }
            Op::Delete(key) => {
                if bed
                    .store
                    .truth(bed.store.now(), |k, _| k == KEYS[key])
                    .len()
                    == 1
                {
                    bed.store.delete(KEYS[key]);
                }
            }
            Op::PutMany(from, app) => {
                let keys = KEYS[from..].iter();
                let changes: Vec<_> = keys.map(|k| (*k, Some(json(k, APPS[app])))).collect();
                bed.store.write(&changes);
            }
            Op::Elsewhere => {
                bed.store.elsewhere();
            }
            Op::Compact(kept) => bed.store.compact_to(bed.store.now().saturating_sub(kept)),
            Op::Break => bed.store.break_feeds(),
            Op::Read(reader, count) => {
                readers[reader].read(&bed, count).await;
            }
            Op::Past(at, limit) => {
                let now = usize::try_from(bed.store.now()).unwrap();
                check_past(&bed, at.index(now) as u64 + 1, limit).await;
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
        let truth = bed.store.truth(bed.store.now(), reader.selects);
        assert_eq!(reader.believed, truth);
    }
    let stats = bed.cache.stats();
    assert!(stats.ring_bytes <= ring_bytes);
    drop(readers);
    assert_eq!(bed.cache.stats().watchers, 0);
    bed.hub.shutdown().await;
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
