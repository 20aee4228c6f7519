//! Random writes of two processes to one etcd, with retirement of bases, compaction, abandoned
//! requests and restarts, against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::RangeRequest;
use crate::etcd::base_collection::collect;

const CLUSTERS: usize = 3;
const TEMPLATES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// The value's length differs by `version`.
    Put {
        store: usize,
        key: usize,
        version: usize,
    },
    Delete {
        store: usize,
        key: usize,
    },
    /// A put that is dropped at once: it may be applied.
    Abandon {
        store: usize,
        key: usize,
        version: usize,
    },
    Collect {
        store: usize,
    },
    Compact,
    Restart {
        store: usize,
    },
    List {
        store: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (store, key) = (0..2_usize, 0..CLUSTERS * TEMPLATES);
    prop_oneof![
        8 => (store.clone(), key.clone(), 0..6_usize)
            .prop_map(|(store, key, version)| Step::Put { store, key, version }),
        3 => (store.clone(), key.clone()).prop_map(|(store, key)| Step::Delete { store, key }),
        2 => (store.clone(), key, 0..6_usize)
            .prop_map(|(store, key, version)| Step::Abandon { store, key, version }),
        4 => store.clone().prop_map(|store| Step::Collect { store }),
        1 => Just(Step::Compact),
        1 => store.clone().prop_map(|store| Step::Restart { store }),
        2 => store.prop_map(|store| Step::List { store }),
    ]
}

struct Processes<'a> {
    etcd: &'a EtcdCluster,
    stores: [EtcdStore; 2],
    /// The revision and value of each key.
    model: BTreeMap<String, (u64, String)>,
}

fn numbers(key: usize) -> (usize, usize) {
    (key % CLUSTERS, key / CLUSTERS)
}

fn value(key: usize, version: usize) -> String {
    let (cluster, template) = numbers(key);
    // Every third version is like no other.
    let status = match version % 3 {
        0 => format!("\"text\":\"{}\"", format!("{version}:{key};").repeat(1500)),
        1 => APPLIED.to_owned(),
        _ => String::new(),
    };
    work(cluster, template, &status)
}

impl Processes<'_> {
    async fn run(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Put {
                store,
                key: number,
                version,
            } => {
                let (key, value) = (self.key(number), value(number, version));
                let revision = put(
                    &self.stores[store],
                    &key,
                    self.revision(&key),
                    value.clone(),
                )
                .await;
                self.model.insert(key, (revision, value));
            }
            Step::Delete { store, key } => {
                let key = self.key(key);
                if let Some((revision, _)) = self.model.remove(&key) {
                    let deleted = commit(&self.stores[store], &key, revision, None).await;
                    prop_assert!(deleted.unwrap().is_some());
                }
            }
            Step::Abandon {
                store,
                key: number,
                version,
            } => {
                let (key, value) = (self.key(number), value(number, version));
                let expected = self.revision(&key);
                let write = commit(&self.stores[store], &key, expected, Some(value.clone()));
                let _ = tokio::time::timeout(Duration::from_micros(300), write).await;
                self.replace_abandoned(store, &key, value).await?;
            }
            Step::Collect { store } => collect(&self.stores[store].client).await.unwrap(),
            Step::Compact => {
                let revision = self.stores[0].revision().await.unwrap();
                self.stores[0].compact(revision).await.unwrap();
            }
            Step::Restart { store } => {
                self.stores[store] = open_with_deltas(delta_options(self.etcd)).await;
            }
            Step::List { store } => self.check(store).await?,
        }
        Ok(())
    }

    /// Writes a value again that may have been written. Afterwards the abandoned write, which may
    /// still be on its way, fails.
    async fn replace_abandoned(
        &mut self,
        store: usize,
        key: &str,
        value: String,
    ) -> TestCaseResult {
        loop {
            let entry = self.stores[store].get(key).await.unwrap();
            let current = entry.as_ref().map(|e| (e.mod_revision, &*e.value));
            let before = self.model.get(key).map(|(at, text)| (*at, text.as_bytes()));
            let is_applied = current.is_some_and(|(_, bytes)| bytes == value.as_bytes());
            prop_assert!(is_applied || current == before);
            let expected = current.map_or(0, |(revision, _)| revision);
            let written = commit(&self.stores[store], key, expected, Some(value.clone()));
            if let Some(revision) = written.await.unwrap() {
                self.model.insert(key.to_owned(), (revision, value));
                return Ok(());
            }
        }
    }

    async fn check(&self, store: usize) -> TestCaseResult {
        let page = self.stores[store]
            .range(&RangeRequest::prefix(PREFIX))
            .await
            .unwrap();
        let entries = page.kvs.into_iter().map(|entry| {
            let text = String::from_utf8(entry.value.to_vec()).unwrap();
            (entry.key.to_string(), (entry.mod_revision, text))
        });
        prop_assert_eq!(&entries.collect::<BTreeMap<_, _>>(), &self.model);
        Ok(())
    }

    fn key(&self, number: usize) -> String {
        let (cluster, template) = numbers(number);
        key(cluster, template)
    }

    fn revision(&self, key: &str) -> u64 {
        self.model.get(key).map_or(0, |(revision, _)| *revision)
    }
}

#[test]
fn two_processes_read_what_they_wrote() {
    let Some(etcd) = start_etcd() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let config = ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in proptest::collection::vec(step(), 1..60))| {
        runtime.block_on(async {
            etcd.etcdctl(&["del", PREFIX, "--prefix"]);
            let mut processes = Processes {
                etcd: &etcd,
                stores: [
                    open_with_deltas(delta_options(&etcd)).await,
                    open_with_deltas(delta_options(&etcd)).await,
                ],
                model: BTreeMap::new(),
            };
            for step in steps {
                processes.run(step).await?;
            }
            processes.check(0).await?;
            processes.check(1).await?;
            // Two rounds after the last value, no base is left.
            etcd.etcdctl(&["del", PREFIX, "--prefix"]);
            for _ in 0..2 {
                collect(&processes.stores[0].client).await.unwrap();
            }
            prop_assert!(etcd.list_prefix(BASES).is_empty());
            Ok(())
        })?;
    });
}
