//! Model test of stores: random operations on a store and on a model that keeps all events.
//!
//! Ranges at any revision, and the events of a watch from any revision, must equal the history
//! of the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use storage::{ConsistentReadSupport, Error, RangeRequest, SingleKeyTxnOp, StoreEvent, StoreWatch};

use crate::contract::store::operations::{ArcDynStore, commit, within_timeout, write};

/// Revisions before the newest one.
type RevisionsBack = u64;

#[derive(Clone, Debug)]
enum StoreModelOperation {
    /// Writes or deletes a key, with its current revision as the expected one (`right`) or with
    /// another.
    Write {
        key: usize,
        delete: bool,
        right: bool,
    },
    Range {
        at: Option<RevisionsBack>,
        limit: usize,
        prefix: usize,
    },
    Watch {
        after: RevisionsBack,
        prefix: usize,
    },
    Compact(RevisionsBack),
}

const KEYS: [&str; 5] = ["a/1", "a/2", "ab/1", "b/1", "b/2"];
const PREFIXES: [&str; 4] = ["", "a/", "b/", "none/"];

fn operations() -> impl Strategy<Value = Vec<StoreModelOperation>> {
    let write = (
        0..KEYS.len(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.9),
    )
        .prop_map(|(key, delete, right)| StoreModelOperation::Write { key, delete, right });
    let range = (prop::option::of(0..30_u64), 0..4_usize, 0..PREFIXES.len())
        .prop_map(|(at, limit, prefix)| StoreModelOperation::Range { at, limit, prefix });
    let watch = (0..30_u64, 0..PREFIXES.len())
        .prop_map(|(after, prefix)| StoreModelOperation::Watch { after, prefix });
    let compact = (0..20_u64).prop_map(StoreModelOperation::Compact);
    let step = prop_oneof![8 => write, 3 => range, 1 => watch, 1 => compact];
    prop::collection::vec(step, 1..80)
}

struct StoreModelTestRun {
    store: ArcDynStore,
    /// The key prefix of this run, which separates its keys from those of other runs.
    root: String,
    base: u64,
    /// All events in the order of their revisions.
    events: Vec<StoreEvent>,
    compacted: u64,
    watches: Vec<(Box<dyn StoreWatch>, u64, String)>,
}

impl StoreModelTestRun {
    fn revision(&self) -> u64 {
        self.events.last().map_or(self.base, |e| e.revision)
    }

    fn state_at(&self, at: u64, prefix: &str) -> BTreeMap<Arc<str>, (Bytes, u64)> {
        let mut state = BTreeMap::new();
        let events = self.events.iter().filter(|e| e.revision <= at);
        for event in events.filter(|e| e.key.starts_with(prefix)) {
            match &event.value {
                Some(value) => state.insert(event.key.clone(), (value.clone(), event.revision)),
                None => state.remove(&event.key),
            };
        }
        state
    }

    fn revision_before(&self, back: RevisionsBack) -> u64 {
        self.revision().saturating_sub(back).max(self.base)
    }

    async fn run_operation(&mut self, step: &StoreModelOperation) {
        match *step {
            StoreModelOperation::Write { key, delete, right } => {
                self.write(KEYS[key], delete, right).await
            }
            StoreModelOperation::Range { at, limit, prefix } => {
                self.range(at, limit, PREFIXES[prefix]).await
            }
            StoreModelOperation::Watch { after, prefix } => {
                self.watch(after, PREFIXES[prefix]).await
            }
            StoreModelOperation::Compact(back) => {
                let at = self.revision_before(back);
                self.store.compact(at).await.unwrap();
                self.compacted = self.compacted.max(at);
            }
        }
    }

    async fn write(&mut self, key: &str, delete: bool, right: bool) {
        let key = format!("{}{key}", self.root);
        let current = self
            .state_at(u64::MAX, &self.root)
            .get(key.as_str())
            .cloned();
        let current_revision = current.as_ref().map_or(0, |(_, revision)| *revision);
        let expected = if right {
            current_revision
        } else {
            current_revision + 1
        };
        let revision = self.revision() + 1;
        let value = (!delete).then(|| Bytes::from(format!("{key}@{revision}")));
        let op = match &value {
            Some(value) => SingleKeyTxnOp::Put {
                value: value.clone(),
                ttl: None,
            },
            None => SingleKeyTxnOp::Delete,
        };
        let holds = right && !(delete && current_revision == 0);
        let previous = current.map(|(value, revision)| storage::KeyValue {
            key: key.as_str().into(),
            value,
            mod_revision: revision,
        });
        match commit(&self.store, &key, expected, op).await {
            storage::TxnResponse::Committed { revision: at } => {
                assert!(holds);
                assert_eq!(at, revision);
                self.events.push(StoreEvent {
                    key: key.as_str().into(),
                    revision,
                    value,
                    previous,
                });
            }
            storage::TxnResponse::Conflict { current } => {
                assert!(!holds);
                assert_eq!(current, previous);
            }
        }
        assert_eq!(self.store.revision().await.unwrap(), self.revision());
    }

    async fn range(&self, back: Option<RevisionsBack>, limit: usize, prefix: &str) {
        let prefix = format!("{}{prefix}", self.root);
        let at = back.map_or(0, |back| self.revision_before(back));
        let range = RangeRequest {
            limit,
            revision: at,
            ..RangeRequest::prefix(&prefix)
        };
        let page = match self.store.range(&range).await {
            Ok(page) => page,
            Err(Error::Compacted { at: compacted }) => {
                assert_eq!(compacted, self.compacted);
                assert!(at != 0 && at < compacted);
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert!(at == 0 || at >= self.compacted);
        assert_eq!(page.revision, if at == 0 { self.revision() } else { at });
        let state = self.state_at(page.revision, &prefix);
        let count = if limit == 0 {
            state.len()
        } else {
            limit.min(state.len())
        };
        let actual = page
            .kvs
            .iter()
            .map(|e| (e.key.clone(), (e.value.clone(), e.mod_revision)));
        assert_eq!(
            actual.collect::<Vec<_>>(),
            state.clone().into_iter().take(count).collect::<Vec<_>>()
        );
        assert_eq!(page.remaining, u64::try_from(state.len() - count).unwrap());
    }

    async fn watch(&mut self, back: RevisionsBack, prefix: &str) {
        let prefix = format!("{}{prefix}", self.root);
        let after = self.revision_before(back);
        match self.store.watch(&prefix, after).await {
            Ok(watch) => {
                assert!(after >= self.compacted);
                self.watches.push((watch, after, prefix));
            }
            Err(Error::Compacted { at }) => {
                assert_eq!(at, self.compacted);
                assert!(after < at);
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Asserts that every watch delivers exactly the model's history.
    async fn finish(mut self) {
        for (mut watch, after, prefix) in std::mem::take(&mut self.watches) {
            let mut reached = after;
            let mut actual = Vec::new();
            let is_watched = |e: &&StoreEvent| e.revision > after && e.key.starts_with(&prefix);
            let proof = self.store.consistent_read_support();
            // Without progress notifications, only events advance a watch.
            let target = match proof {
                ConsistentReadSupport::Unsupported => self
                    .events
                    .iter()
                    .filter(is_watched)
                    .map(|e| e.revision)
                    .max(),
                _ => Some(self.revision()),
            };
            let mut overtaken = false;
            while reached < target.unwrap_or(0) {
                self.store.revision().await.unwrap();
                let response = match within_timeout(watch.next()).await {
                    // An etcd may compact events that it has not sent yet.
                    Err(Error::Compacted { at }) if proof != ConsistentReadSupport::Local => {
                        assert!(reached < at && at <= self.compacted);
                        overtaken = true;
                        break;
                    }
                    response => response.unwrap(),
                };
                assert!(response.revision > reached);
                assert!(response.events.iter().all(|e| e.revision > reached));
                reached = response.revision;
                assert!(response.events.iter().all(|e| e.revision <= reached));
                actual.extend(response.events);
            }
            let mut expected: Vec<_> = self.events.iter().filter(is_watched).collect();
            if overtaken {
                expected.truncate(actual.len());
            }
            assert_eq!(format!("{actual:?}"), format!("{expected:?}"));
        }
    }
}

pub(crate) async fn random_histories(store: &ArcDynStore) {
    let store = store.clone();
    let handle = tokio::runtime::Handle::current();
    let runs = AtomicU64::new(0);
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let all = move || {
        TestRunner::new(config).run(&operations(), |steps| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            handle.block_on(async {
                let base = store.revision().await.unwrap();
                let mut model = StoreModelTestRun {
                    store: store.clone(),
                    root: format!("/{run}/"),
                    base,
                    events: Vec::new(),
                    // An earlier run may have compacted up to here.
                    compacted: base,
                    watches: Vec::new(),
                };
                store.compact(base).await.unwrap();
                for step in &steps {
                    model.run_operation(step).await;
                }
                model.finish().await;
            });
            Ok(())
        })
    };
    tokio::task::spawn_blocking(all).await.unwrap().unwrap();
}

/// A watch that begins while a compaction runs delivers all events or fails as compacted; it
/// never skips events. etcd's bugs 17780, 18089 and 19179 violated this.
pub(crate) async fn compaction_races_with_watch_starts(store: &ArcDynStore) {
    const WRITES: u64 = 240;
    const KEYS: u64 = 8;
    // Before the first write.
    let base = store.revision().await.unwrap();
    let last = base + WRITES;
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        let mut revisions = [0; KEYS as usize];
        for i in 0..WRITES {
            let key = usize::try_from(i % KEYS).unwrap();
            // Large values, so that old events soon leave the engine's memory.
            let value = Bytes::from(vec![u8::try_from(i % 251).unwrap(); 96 << 10]);
            let op = SingleKeyTxnOp::Put { value, ttl: None };
            revisions[key] = write(&writer, &format!("/a/{key}"), revisions[key], op).await;
            if i % 5 == 4 {
                writer.compact((base + i).saturating_sub(40)).await.unwrap();
            }
        }
    });
    let watching = (0..12_u64).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut after = base;
            let mut starts = 0;
            while after < last {
                starts += 1;
                match follow(&store, base, after).await {
                    Ok(reached) => after = reached,
                    // Begin again further on, as a client does; some at the compacted revision.
                    Err(at) => after = at + task % 3,
                }
                after = after.min(store.revision().await.unwrap());
            }
            starts
        })
    });
    // How long they follow depends on the machine; each answer comes within the timeout.
    for task in watching.collect::<Vec<_>>() {
        assert!(task.await.unwrap() > 0);
    }
    writing.await.unwrap();

    /// Reads up to 3 batches and returns the revision reached; `Err` is the compacted revision.
    async fn follow(store: &ArcDynStore, base: u64, after: u64) -> Result<u64, u64> {
        let compacted = |e: Error| match e {
            Error::Compacted { at } if at > after => at,
            other => panic!("{other}"),
        };
        let mut watch = store.watch("/a/", after).await.map_err(compacted)?;
        let mut reached = after;
        for _ in 0..3 {
            if reached >= base + WRITES {
                break;
            }
            let response = within_timeout(watch.next()).await.map_err(compacted)?;
            for event in &response.events {
                reached += 1;
                assert_eq!(event.revision, reached, "a gap after {after}");
                let value = event.value.as_ref().unwrap();
                assert_eq!(u64::from(value[0]), (reached - base - 1) % 251);
                let previous = event.previous.as_ref().map_or(0, |e| e.mod_revision);
                assert_eq!(
                    previous,
                    if reached > base + KEYS {
                        reached - KEYS
                    } else {
                        0
                    },
                    "previous of {reached}"
                );
            }
            assert_eq!(response.revision, reached);
        }
        Ok(reached)
    }
}
