//! A limit counts exactly the objects of its cache, whatever happens to lists and watches.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::{CacheSize, CacheSizeLimit, CacherListRequest, CacherOptions, ListRevision};

const KEYS: [&str; 7] = ["a/u", "a/v", "a/w", "b/u", "b/v", "b/w", "c/u"];
/// Keys per page.
const PAGE_KEYS: usize = 2;
/// A page takes as long.
const PAGE_TIME: Duration = Duration::from_millis(10);

/// The store in small and slow pages, of which one may fail.
struct PagedStore {
    store: FakeStoreAdapter,
    /// The pages until one fails; 0: none does.
    failing_page: Arc<AtomicUsize>,
}

#[async_trait]
impl Store for PagedStore {
    async fn revision(&self) -> StoreResult<u64> {
        self.store.revision().await
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        self.store.get(key).await
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        tokio::time::sleep(PAGE_TIME).await;
        let left = self.failing_page.load(Ordering::Relaxed);
        if left > 0 {
            self.failing_page.store(left - 1, Ordering::Relaxed);
        }
        if left == 1 {
            return Err(Error::Unavailable("the page fails".into()));
        }
        let range = RangeRequest {
            limit: PAGE_KEYS,
            ..range.clone()
        };
        self.store.range(&range).await
    }

    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        self.store.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        self.store.watch(prefix, after).await
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.store.compact(revision).await
    }
}

#[derive(Default)]
struct BoundedSize {
    max: AtomicUsize,
    size: Mutex<CacheSize>,
    /// How often the bound was exceeded.
    overflows: AtomicUsize,
}

impl CacheSizeLimit for BoundedSize {
    fn resize(&self, from: CacheSize, to: CacheSize) -> StoreResult<()> {
        let mut size = self.size.lock();
        if to.bytes > from.bytes && to.bytes > self.max.load(Ordering::Relaxed) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Unavailable("too many bytes".into()));
        }
        size.objects = size.objects + to.objects - from.objects;
        size.bytes = size.bytes + to.bytes - from.bytes;
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    PutAll(usize),
    Break,
    Compact,
    FailPage(usize),
    Limit(usize),
    /// The cache is dropped, and another one is opened.
    Reopen,
    /// Milliseconds.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..KEYS.len(), 0..2000_usize).prop_map(|(key, bytes)| Step::Put(key, bytes)),
        3 => (0..KEYS.len()).prop_map(Step::Delete),
        1 => (0..2000_usize).prop_map(Step::PutAll),
        2 => Just(Step::Break),
        1 => Just(Step::Compact),
        2 => (0..6_usize).prop_map(Step::FailPage),
        2 => (0..12_usize).prop_map(|kib| Step::Limit(kib << 10)),
        1 => Just(Step::Reopen),
        6 => (0..60_u64).prop_map(Step::Wait),
    ]
}

/// A stored object with two labels and a text.
fn sized_thing(suffix: &str, bytes: usize) -> String {
    let text = "x".repeat(bytes);
    let labels = r#""labels":{"tier":"one","app":"#;
    let thing = thing_json(suffix, "a").replacen(r#""labels":{"app":"#, labels, 1);
    format!(r#"{},"text":"{text}"}}"#, &thing[..thing.len() - 1])
}

struct LimitedFixture {
    store: Arc<FakeStorageEngine>,
    paged: Arc<dyn Store>,
    failing_page: Arc<AtomicUsize>,
    limit: Arc<BoundedSize>,
    caches: Arc<WatchCaches>,
    cache: Arc<Cacher>,
}

impl LimitedFixture {
    fn new(max: usize) -> Self {
        let store = Arc::new(FakeStorageEngine::default());
        let failing_page = Arc::new(AtomicUsize::new(0));
        let paged: Arc<dyn Store> = Arc::new(PagedStore {
            store: FakeStoreAdapter(Arc::clone(&store)),
            failing_page: Arc::clone(&failing_page),
        });
        let limit = Arc::new(BoundedSize::default());
        limit.max.store(max, Ordering::Relaxed);
        let caches = WatchCaches::new(Arc::clone(&paged), WatchCacheConfig::default());
        let cache = open(&caches, &paged, &limit);
        Self {
            store,
            paged,
            failing_page,
            limit,
            caches,
            cache,
        }
    }

    async fn run(&mut self, step: Step) {
        let thing = |key: usize, bytes| Some(sized_thing(KEYS[key], bytes));
        match step {
            Step::Put(key, bytes) => drop(self.store.write(&[(KEYS[key], thing(key, bytes))])),
            Step::Delete(key) => drop(self.store.delete(KEYS[key])),
            Step::PutAll(bytes) => {
                let all = KEYS.iter().enumerate();
                let all: Vec<_> = all.map(|(n, key)| (*key, thing(n, bytes))).collect();
                self.store.write(&all);
            }
            Step::Break => self.store.break_watches(),
            Step::Compact => self.store.compact_to(self.store.revision()),
            Step::FailPage(page) => self.failing_page.store(page, Ordering::Relaxed),
            Step::Limit(max) => self.limit.max.store(max, Ordering::Relaxed),
            Step::Reopen => {
                self.caches.remove("limited").await;
                assert_eq!(*self.limit.size.lock(), CacheSize::default());
                self.cache = open(&self.caches, &self.paged, &self.limit);
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }

    /// Compares what is counted with what readers get.
    async fn check(&self) {
        let counted = *self.limit.size.lock();
        let size = self.cache.size();
        if !self.cache.ready() {
            // A list may be in progress.
            assert_eq!(size, CacheSize::default());
            assert!(counted.bytes <= 12 << 10);
            return;
        }
        let request = CacherListRequest {
            filter: SelectionPredicate::default(),
            revision: ListRevision::Any,
            limit: 0,
        };
        let items = self.cache.list(request).await.unwrap().items;
        let bytes = |object: &machinery::Object| {
            let key = PREFIX.len() + object.meta().key().len();
            object.bytes().len() + key + 512 + 64 * 2
        };
        let expected = CacheSize {
            objects: items.len(),
            bytes: items.iter().map(bytes).sum(),
        };
        assert_eq!((counted, size), (expected, expected));
    }
}

fn open(caches: &WatchCaches, store: &Arc<dyn Store>, limit: &Arc<BoundedSize>) -> Arc<Cacher> {
    let options = CacherOptions {
        limit: Some(limit.clone()),
        ..CacherOptions::default()
    };
    caches.cacher_of("limited", PREFIX, store, options)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_limit_counts_what_the_cache_holds(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut fixture = LimitedFixture::new(12 << 10);
            fixture.cache.ready();
            for step in steps {
                fixture.run(step).await;
                fixture.check().await;
            }
            fixture.caches.shutdown().await;
            assert_eq!(*fixture.limit.size.lock(), CacheSize::default());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_beyond_its_limit_holds_nothing() {
    let mut fixture = LimitedFixture::new(8 << 10);
    fixture.run(Step::PutAll(100)).await;
    fixture.cache.ready();
    fixture.run(Step::Wait(200)).await;
    assert_eq!(fixture.cache.len(), Some(KEYS.len()));
    let start = WatchStart::After(fixture.cache.revision());
    let request = CacherWatchRequest {
        filter: SelectionPredicate::default(),
        start,
        bookmarks: false,
        deadline: None,
    };
    let mut watcher = fixture.cache.watch(request).await.unwrap();
    fixture.run(Step::Put(0, 7 << 10)).await;
    // The watch ends, without the object that is too large.
    assert_eq!(drain(&mut watcher).await, ["END"]);
    fixture.run(Step::Wait(10_000)).await;
    fixture.check().await;
    let stats = fixture.cache.stats();
    assert_eq!(
        (stats.objects, stats.ring_events, stats.ring_bytes),
        (0, 0, 0)
    );
    // Lists fail as the watch did.
    assert!(fixture.limit.overflows.load(Ordering::Relaxed) > 1);
    fixture.run(Step::Put(0, 10)).await;
    fixture.run(Step::Wait(10_000)).await;
    assert_eq!(fixture.cache.len(), Some(KEYS.len()));
    fixture.check().await;
    fixture.caches.shutdown().await;
}
