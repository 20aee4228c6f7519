//! One replica on three etcd nodes: the leader is killed, then a follower, then the network
//! to all of them is cut for a while.
//!
//! Clients write and watch all the time and record the responses; at the end the test
//! compares the records with etcd's history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, ListOptions, WatchEvent, WatchOptions, WriteOptions};
use futures_util::StreamExt;
use harness::objects::CONFIG_MAPS;
use harness::{Etcd, Relay, etcd};
use machinery::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::Replica;
use crate::history::{Acknowledged, Change, History, Kind, Told, Watched};

const NAMESPACE: &str = "default";
const WRITERS: usize = 6;
/// The number of keys of each writer.
const KEYS: u64 = 5;
/// Every request is answered within this time, whatever the fault.
const ANSWERED: Duration = Duration::from_secs(25);
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(20);
/// Writes between two faults.
const CALM: usize = 150;
/// The name of the last object; a watcher that sees it has seen all changes.
const END: &str = "the-end";

#[derive(Default)]
struct Record {
    acknowledged: Mutex<Vec<Acknowledged>>,
    refused: AtomicUsize,
    done: AtomicBool,
}

impl Record {
    fn count(&self) -> usize {
        self.acknowledged.lock().len()
    }

    fn put(&self, object: &Object, value: &str) {
        self.acknowledged.lock().push(Acknowledged::Put {
            revision: object.revision(),
            key: object.name().to_owned(),
            value: value.to_owned(),
        });
    }
}

fn config_map(name: &str, value: &str, revision: Option<u64>) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"value": value},
    });
    if let Some(revision) = revision {
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
    }
    object
}

async fn list(api: &dyn Api) -> client::Result<client::List> {
    let options = ListOptions::default();
    answered(api.list(At::all(&CONFIG_MAPS, NAMESPACE), &options)).await
}

fn value_of(object: &Object) -> String {
    let tree = object.value().unwrap();
    tree["data"]["value"].as_str().unwrap_or("").to_owned()
}

async fn answered<T>(request: impl Future<Output = client::Result<T>>) -> client::Result<T> {
    let answer = timeout(ANSWERED, request).await;
    answer.unwrap_or_else(|_| panic!("a request is not answered within {ANSWERED:?}"))
}

/// Writes its own keys until `record.done`. A failed write may have happened, so the writer
/// then reads the current revision.
async fn write(api: Arc<dyn Api>, writer: usize, record: Arc<Record>) {
    let mut revisions: Vec<Option<u64>> = vec![None; KEYS as usize];
    let mut turn = 0_u64;
    while !record.done.load(Ordering::Relaxed) {
        turn += 1;
        let slot = usize::try_from(turn % KEYS).unwrap();
        let name = format!("w{writer}-{slot}");
        let at = At::one(&CONFIG_MAPS, NAMESPACE, &name);
        let value = format!("{writer}-{turn}");
        let options = WriteOptions::default();
        let outcome = match revisions[slot] {
            None => {
                let body = config_map(&name, &value, None);
                let all = At::all(&CONFIG_MAPS, NAMESPACE);
                let made = answered(api.create(all, body, &options)).await;
                made.map(Some)
            }
            Some(before) if turn % 7 == 3 => {
                let options = DeleteOptions {
                    resource_version: Some(before.to_string()),
                    ..DeleteOptions::default()
                };
                let gone = answered(api.delete(at, &options)).await;
                gone.map(|_| {
                    let key = name.clone();
                    let deleted = Acknowledged::Deleted { key, before };
                    record.acknowledged.lock().push(deleted);
                    None
                })
            }
            Some(before) => {
                let body = config_map(&name, &value, Some(before));
                answered(api.update(at, body, &options)).await.map(Some)
            }
        };
        revisions[slot] = match outcome {
            Ok(Some(object)) => {
                record.put(&object, &value);
                Some(object.revision())
            }
            Ok(None) => None,
            Err(_) => {
                record.refused.fetch_add(1, Ordering::Relaxed);
                find(&*api, at).await
            }
        };
    }
}

async fn find(api: &dyn Api, at: At<'_>) -> Option<u64> {
    loop {
        match answered(api.get(at)).await {
            Ok(object) => return Some(object.revision()),
            Err(why) if why.is_not_found() => return None,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Watches from a revision to the last object; it opens a new watch after each end of a
/// stream.
async fn watch(api: Arc<dyn Api>, after: u64) -> Watched {
    let mut watched = Watched {
        after,
        told: Vec::new(),
    };
    let mut reached = after;
    loop {
        let options = WatchOptions {
            resource_version: reached.to_string(),
            bookmarks: true,
            ..WatchOptions::default()
        };
        let opened = answered(api.watch(At::all(&CONFIG_MAPS, NAMESPACE), &options)).await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(why) => {
                assert!(!why.is_expired(), "history is kept for minutes: {why}");
                sleep(PAUSE).await;
                continue;
            }
        };
        while let Some(Ok(event)) = stream.next().await {
            let (kind, object) = match event {
                WatchEvent::Added(object) => (Kind::Added, object),
                WatchEvent::Modified(object) => (Kind::Modified, object),
                WatchEvent::Deleted(object) => (Kind::Deleted, object),
                WatchEvent::Bookmark { revision, .. } => {
                    assert!(
                        revision >= reached,
                        "a bookmark at {revision} after {reached}"
                    );
                    reached = revision;
                    continue;
                }
            };
            reached = object.revision();
            watched.told.push(Told {
                kind,
                revision: reached,
                key: object.name().to_owned(),
                value: value_of(&object),
            });
            if object.name() == END {
                return watched;
            }
        }
    }
}

/// The history of the namespace's ConfigMaps after a revision, read with etcdctl.
fn remembered(etcd: &Etcd, after: u64) -> History {
    const PREFIX: &str = "/registry/configmaps/default/";
    let last = format!("{PREFIX}{END}");
    let changes = etcd.history(PREFIX, after, &last).into_iter();
    let changes = changes.map(|change| {
        let value = change.value.map(|bytes| {
            let tree: Value = serde_json::from_slice(&bytes).unwrap();
            tree["data"]["value"].as_str().unwrap_or("").to_owned()
        });
        Change {
            revision: change.revision,
            key: change.key.strip_prefix(PREFIX).unwrap().to_owned(),
            value,
            before: change.before,
        }
    });
    History::new(changes.collect()).unwrap()
}

struct World {
    api: Arc<dyn Api>,
    record: Arc<Record>,
    watchers: Vec<tokio::task::JoinHandle<Watched>>,
    after: u64,
}

impl World {
    /// Waits until `writes` more writes were acknowledged.
    async fn calm(&self, writes: usize) {
        let target = self.record.count() + writes;
        let end = Instant::now() + PATIENCE;
        while self.record.count() < target {
            let count = self.record.count();
            assert!(Instant::now() < end, "only {count} of {target} writes");
            sleep(PAUSE).await;
        }
    }

    /// Starts a watcher at the revision at which the first one started.
    fn one_more_watcher(&mut self) {
        let task = watch(Arc::clone(&self.api), self.after);
        self.watchers.push(tokio::spawn(task));
    }

    /// Cuts the network to all nodes for a time; requests must fail meanwhile, and not hang.
    async fn cut(&mut self, relays: &[Relay], time: Duration) {
        let refused = self.record.refused.load(Ordering::Relaxed);
        relays.iter().for_each(Relay::cut);
        let end = Instant::now() + time;
        self.one_more_watcher();
        let listed = list(&*self.api).await;
        assert!(listed.is_err(), "a consistent list without etcd succeeds");
        let deadline = Instant::now() + PATIENCE;
        while self.api.raw("/readyz").await.is_ok() {
            assert!(Instant::now() < deadline, "ready without etcd");
            sleep(PAUSE).await;
        }
        tokio::time::sleep_until(end).await;
        relays.iter().for_each(Relay::mend);
        self.calm(CALM).await;
        assert!(self.record.refused.load(Ordering::Relaxed) > refused);
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.api.raw("/readyz").await {
            assert!(Instant::now() < deadline, "{why}");
            sleep(PAUSE).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nobody_misled_while_nodes_and_network_fail() {
    nodes_and_network_fail(Duration::from_secs(6)).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nobody_misled_while_the_network_fails_for_long() {
    nodes_and_network_fail(Duration::from_secs(30)).await;
}

/// Kills two nodes in turn, then cuts the network to all of them for `outage`.
async fn nodes_and_network_fail(outage: Duration) {
    let Some(mut etcd) = Etcd::start(etcd::NEW, 3) else {
        return;
    };
    let relays: Vec<Relay> = etcd
        .nodes
        .iter()
        .map(|n| Relay::start(&[n.address]))
        .collect();
    let urls: Vec<String> = relays
        .iter()
        .map(|r| format!("http://{}", r.address()))
        .collect();
    let replica = Replica::start("control", &urls.join(","), &[]);
    let api = Arc::clone(&replica.server.api);
    let mut world = World {
        after: list(&*api).await.unwrap().revision,
        api,
        record: Arc::default(),
        watchers: Vec::new(),
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(write(Arc::clone(&world.api), n, Arc::clone(&world.record))))
        .collect();
    world.one_more_watcher();
    world.one_more_watcher();
    world.calm(CALM).await;

    let leader = etcd.leader();
    for node in [leader, (leader + 1) % 3] {
        etcd.nodes[node].daemon.kill();
        world.one_more_watcher();
        world.calm(CALM).await;
        etcd.nodes[node].daemon.again();
        etcd.wait();
        world.calm(CALM).await;
    }
    world.cut(&relays, outage).await;

    world.record.done.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let last = find_or_make_the_end(&world).await;
    let history = tokio::task::block_in_place(|| remembered(&etcd, world.after));
    history
        .holds(&world.record.acknowledged.lock())
        .unwrap_or_else(|why| panic!("{why}"));
    for (n, watcher) in world.watchers.into_iter().enumerate() {
        let watched = timeout(PATIENCE, watcher).await;
        let watched = watched.unwrap_or_else(|_| panic!("watcher {n} never sees the end"));
        let checked = history.was_told(&watched.unwrap());
        checked.unwrap_or_else(|why| panic!("watcher {n}: {why}"));
    }
    let listed = list(&*world.api).await.unwrap();
    assert!(listed.revision >= last);
    let ours = listed.items.iter().filter(|o| o.revision() > world.after);
    let ours = ours.map(|o| (o.name().to_owned(), (value_of(o), o.revision())));
    assert_eq!(
        ours.collect::<std::collections::BTreeMap<_, _>>(),
        history.present()
    );
}

async fn find_or_make_the_end(world: &World) -> u64 {
    let at = At::all(&CONFIG_MAPS, NAMESPACE);
    let body = config_map(END, "end", None);
    match answered(world.api.create(at, body, &WriteOptions::default())).await {
        Ok(object) => object.revision(),
        Err(Error::Status(why)) => panic!("{}", why.message),
        Err(why) => panic!("{why}"),
    }
}
