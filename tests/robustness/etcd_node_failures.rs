//! One replica on three etcd nodes: the leader is killed, then a follower, then the network
//! to all of them is cut for a while.
//!
//! Clients write and watch all the time and record the responses; at the end the test
//! compares the records with etcd's history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, ListOptions, ResourcePath, WatchEvent, WatchOptions, WriteOptions,
};
use futures_util::StreamExt;
use harness::objects::CONFIG_MAPS;
use harness::{EtcdCluster, TcpRelay, etcd};
use machinery::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::robustness::ReplicaProcess;
use crate::robustness::history_check::{
    AcknowledgedWrite, EtcdChangeHistory, KeyChange, WatcherEvent, WatcherEventType, WatcherLog,
};

const NAMESPACE: &str = "default";
const WRITERS: usize = 6;
/// The number of keys of each writer.
const KEYS_PER_WRITER: u64 = 5;
/// Every request is answered within this time, whatever the fault.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Writes between two faults.
const WRITES_BETWEEN_FAULTS: usize = 150;
/// The name of the last object; a watcher that sees it has seen all changes.
const LAST_OBJECT: &str = "the-end";

#[derive(Default)]
struct AcknowledgedWriter {
    acknowledged: Mutex<Vec<AcknowledgedWrite>>,
    failed_writes: AtomicUsize,
    stop: AtomicBool,
}

impl AcknowledgedWriter {
    fn acknowledged_count(&self) -> usize {
        self.acknowledged.lock().len()
    }

    fn record_put(&self, object: &Object, value: &str) {
        self.acknowledged.lock().push(AcknowledgedWrite::Put {
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

async fn list_config_maps(api: &dyn Api) -> client::Result<client::ObjectList> {
    let options = ListOptions::default();
    within_timeout(api.list(ResourcePath::collection(&CONFIG_MAPS, NAMESPACE), &options)).await
}

fn data_value(object: &Object) -> String {
    let tree = object.value().unwrap();
    tree["data"]["value"].as_str().unwrap_or("").to_owned()
}

async fn within_timeout<T>(request: impl Future<Output = client::Result<T>>) -> client::Result<T> {
    let answer = timeout(REQUEST_TIMEOUT, request).await;
    answer.unwrap_or_else(|_| panic!("a request is not answered within {REQUEST_TIMEOUT:?}"))
}

/// Writes its own keys until `record.stop` is set. A failed write may have happened, so the writer
/// then reads the current revision.
async fn write_keys(api: Arc<dyn Api>, writer: usize, record: Arc<AcknowledgedWriter>) {
    let mut revisions: Vec<Option<u64>> = vec![None; KEYS_PER_WRITER as usize];
    let mut turn = 0_u64;
    while !record.stop.load(Ordering::Relaxed) {
        turn += 1;
        let slot = usize::try_from(turn % KEYS_PER_WRITER).unwrap();
        let name = format!("w{writer}-{slot}");
        let at = ResourcePath::object(&CONFIG_MAPS, NAMESPACE, &name);
        let value = format!("{writer}-{turn}");
        let options = WriteOptions::default();
        let outcome = match revisions[slot] {
            None => {
                let body = config_map(&name, &value, None);
                let all = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
                let created = within_timeout(api.create(all, body.into(), &options)).await;
                created.map(Some)
            }
            Some(before) if turn % 7 == 3 => {
                let options = DeleteOptions {
                    resource_version: Some(before.to_string()),
                    ..DeleteOptions::default()
                };
                let gone = within_timeout(api.delete(at, &options)).await;
                gone.map(|_| {
                    let key = name.clone();
                    let deleted = AcknowledgedWrite::Deleted { key, before };
                    record.acknowledged.lock().push(deleted);
                    None
                })
            }
            Some(before) => {
                let body = config_map(&name, &value, Some(before));
                within_timeout(api.update(at, body.into(), &options))
                    .await
                    .map(Some)
            }
        };
        revisions[slot] = match outcome {
            Ok(Some(object)) => {
                record.record_put(&object, &value);
                Some(object.revision())
            }
            Ok(None) => None,
            Err(_) => {
                record.failed_writes.fetch_add(1, Ordering::Relaxed);
                find_revision(&*api, at).await
            }
        };
    }
}

async fn find_revision(api: &dyn Api, at: ResourcePath<'_>) -> Option<u64> {
    loop {
        match within_timeout(api.get(at)).await {
            Ok(object) => return Some(object.revision()),
            Err(error) if error.is_not_found() => return None,
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Watches from a revision to the last object; it opens a new watch after each end of a
/// stream.
async fn watch_to_last_object(api: Arc<dyn Api>, after: u64) -> WatcherLog {
    let mut watched = WatcherLog {
        after,
        events: Vec::new(),
    };
    let mut reached = after;
    loop {
        let options = WatchOptions {
            resource_version: reached.to_string(),
            bookmarks: true,
            ..WatchOptions::default()
        };
        let opened =
            within_timeout(api.watch(ResourcePath::collection(&CONFIG_MAPS, NAMESPACE), &options))
                .await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => {
                assert!(!error.is_expired(), "history is kept for minutes: {error}");
                sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        while let Some(Ok(event)) = stream.next().await {
            let (kind, object) = match event {
                WatchEvent::Added(object) => (WatcherEventType::Added, object),
                WatchEvent::Modified(object) => (WatcherEventType::Modified, object),
                WatchEvent::Deleted(object) => (WatcherEventType::Deleted, object),
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
            watched.events.push(WatcherEvent {
                event_type: kind,
                revision: reached,
                key: object.name().to_owned(),
                value: data_value(&object),
            });
            if object.name() == LAST_OBJECT {
                return watched;
            }
        }
    }
}

/// The history of the namespace's ConfigMaps after a revision, read with etcdctl.
fn etcd_history(etcd: &EtcdCluster, after: u64) -> EtcdChangeHistory {
    const PREFIX: &str = "/registry/configmaps/default/";
    let last = format!("{PREFIX}{LAST_OBJECT}");
    let changes = etcd.history(PREFIX, after, &last).into_iter();
    let changes = changes.map(|change| {
        let value = change.value.map(|bytes| {
            let tree: Value = machinery::json::from_slice(&bytes).unwrap();
            tree["data"]["value"].as_str().unwrap_or("").to_owned()
        });
        KeyChange {
            revision: change.revision,
            key: change.key.strip_prefix(PREFIX).unwrap().to_owned(),
            value,
            previous_revision: change.previous_revision,
        }
    });
    EtcdChangeHistory::new(changes.collect()).unwrap()
}

struct EtcdNodeFailureTraffic {
    api: Arc<dyn Api>,
    record: Arc<AcknowledgedWriter>,
    watchers: Vec<tokio::task::JoinHandle<WatcherLog>>,
    after: u64,
}

impl EtcdNodeFailureTraffic {
    /// Waits until `writes` more writes were acknowledged.
    async fn wait_for_writes(&self, writes: usize) {
        let target = self.record.acknowledged_count() + writes;
        let end = Instant::now() + WAIT_TIMEOUT;
        while self.record.acknowledged_count() < target {
            let count = self.record.acknowledged_count();
            assert!(Instant::now() < end, "only {count} of {target} writes");
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Starts a watcher at the revision at which the first one started.
    fn add_watcher(&mut self) {
        let task = watch_to_last_object(Arc::clone(&self.api), self.after);
        self.watchers.push(tokio::spawn(task));
    }

    /// Cuts the network to all nodes for a time; requests must fail meanwhile, and not hang.
    async fn partition_network(&mut self, relays: &[TcpRelay], time: Duration) {
        let failed_before = self.record.failed_writes.load(Ordering::Relaxed);
        relays.iter().for_each(TcpRelay::partition);
        let end = Instant::now() + time;
        self.add_watcher();
        let listed = list_config_maps(&*self.api).await;
        assert!(listed.is_err(), "a consistent list without etcd succeeds");
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while self.api.get_raw("/readyz").await.is_ok() {
            assert!(Instant::now() < deadline, "ready without etcd");
            sleep(RETRY_INTERVAL).await;
        }
        tokio::time::sleep_until(end).await;
        relays.iter().for_each(TcpRelay::heal);
        self.wait_for_writes(WRITES_BETWEEN_FAULTS).await;
        assert!(self.record.failed_writes.load(Ordering::Relaxed) > failed_before);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while let Err(message) = self.api.get_raw("/readyz").await {
            assert!(Instant::now() < deadline, "{message}");
            sleep(RETRY_INTERVAL).await;
        }
    }
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_a_consistent_history_while_nodes_and_network_fail() {
    check_node_and_network_failures(Duration::from_secs(6)).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_a_consistent_history_during_a_long_network_failure() {
    check_node_and_network_failures(Duration::from_secs(30)).await;
}

/// Kills two nodes in turn, then cuts the network to all of them for `outage`.
async fn check_node_and_network_failures(outage: Duration) {
    let Some(mut etcd) = EtcdCluster::start(etcd::VERSION_3_5, 3) else {
        return;
    };
    let relays: Vec<TcpRelay> = etcd
        .nodes
        .iter()
        .map(|n| TcpRelay::start(&[n.address]))
        .collect();
    let urls: Vec<String> = relays
        .iter()
        .map(|r| format!("http://{}", r.address()))
        .collect();
    let replica = ReplicaProcess::start("control", &urls.join(","), &[]);
    let api = Arc::clone(&replica.server.api);
    let mut traffic = EtcdNodeFailureTraffic {
        after: list_config_maps(&*api).await.unwrap().revision,
        api,
        record: Arc::default(),
        watchers: Vec::new(),
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            tokio::spawn(write_keys(
                Arc::clone(&traffic.api),
                n,
                Arc::clone(&traffic.record),
            ))
        })
        .collect();
    traffic.add_watcher();
    traffic.add_watcher();
    traffic.wait_for_writes(WRITES_BETWEEN_FAULTS).await;

    let leader = etcd.wait_for_leader();
    for node in [leader, (leader + 1) % 3] {
        etcd.nodes[node].daemon.kill();
        traffic.add_watcher();
        traffic.wait_for_writes(WRITES_BETWEEN_FAULTS).await;
        etcd.nodes[node].daemon.restart();
        etcd.wait_ready();
        traffic.wait_for_writes(WRITES_BETWEEN_FAULTS).await;
    }
    traffic.partition_network(&relays, outage).await;

    traffic.record.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let last = create_last_object(&traffic).await;
    let history = tokio::task::block_in_place(|| etcd_history(&etcd, traffic.after));
    history
        .check_acknowledged(&traffic.record.acknowledged.lock())
        .unwrap_or_else(|message| panic!("{message}"));
    for (n, watcher) in traffic.watchers.into_iter().enumerate() {
        let watched = timeout(WAIT_TIMEOUT, watcher).await;
        let watched = watched.unwrap_or_else(|_| panic!("watcher {n} never sees the end"));
        let checked = history.check_watcher(&watched.unwrap());
        checked.unwrap_or_else(|message| panic!("watcher {n}: {message}"));
    }
    let listed = list_config_maps(&*traffic.api).await.unwrap();
    assert!(listed.revision >= last);
    let written = listed.items.iter().filter(|o| o.revision() > traffic.after);
    let written = written.map(|o| (o.name().to_owned(), (data_value(o), o.revision())));
    assert_eq!(
        written.collect::<std::collections::BTreeMap<_, _>>(),
        history.final_state()
    );
}

async fn create_last_object(traffic: &EtcdNodeFailureTraffic) -> u64 {
    let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
    let body = config_map(LAST_OBJECT, "end", None);
    match within_timeout(
        traffic
            .api
            .create(at, body.into(), &WriteOptions::default()),
    )
    .await
    {
        Ok(object) => object.revision(),
        Err(Error::Status(error)) => panic!("{}", error.message),
        Err(error) => panic!("{error}"),
    }
}
