//! Rolling restarts and upgrades: replicas are restarted in turn while clients write and watch
//! through a load balancer.
//!
//! Replicas are first stopped with SIGTERM, then killed. In an upgrade the replicas run the
//! previous release and this one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{DeleteOptions, Error, ResourcePath, WriteOptions};
use harness::ApiServerClient;
use harness::etcd::VERSION_3_5;
use harness::objects::{CONFIG_MAPS, config_map};
use parking_lot::Mutex;
use serde_json::Value;

use crate::replicas::flotilla_process::{BINARY, FAST_ELECTION_FLAGS};
use crate::replicas::replica_pair::{ControlPlaneMode, ReplicaLoadBalancer, ReplicaPair};
use crate::replicas::watch_history::{list_and_watch, values_by_name};

const NS: &str = "rolling";
const WRITERS: usize = 4;
const WATCHERS: usize = 6;
const OBJECTS_PER_WRITER: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(90);
/// The object that is created last, which ends the watches.
const END_MARKER: &str = "the-end";
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How many writes each writer makes at least, even on a slow machine.
const MIN_WRITES_PER_WRITER: usize = 50;

/// The writes of one writer to its own objects.
#[derive(Default)]
struct WriterRecord {
    /// Revision → object name, of each acknowledged write.
    acknowledged: BTreeMap<u64, String>,
    /// The expected value of each object.
    last: BTreeMap<String, String>,
    /// Errors that are not retryable.
    unexpected_errors: Vec<String>,
    /// Errors of all writers, whose calls were retried.
    retried_errors: Arc<Mutex<Vec<String>>>,
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|v| v.parse().ok()).unwrap()
}

impl WriterRecord {
    fn record_error(&mut self, error: &Error) {
        let expected = match error {
            Error::Transport { .. } => true,
            Error::Status(status) => matches!(status.code, 429 | 503 | 504),
            Error::Protocol(_) => false,
        };
        if !expected {
            self.unexpected_errors.push(error.to_string());
        }
        self.retried_errors.lock().push(error.to_string());
    }

    /// Reads an object until there is a response, to learn the outcome of a write without one.
    async fn get_with_retries(&mut self, server: &ApiServerClient, name: &str) -> Option<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match server
                .api
                .get(ResourcePath::object(&CONFIG_MAPS, NS, name))
                .await
            {
                Ok(object) => return Some(object.value().unwrap()),
                Err(e) if e.is_not_found() => return None,
                Err(e) => self.record_error(&e),
            }
            assert!(Instant::now() < end, "{name} cannot be read");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Sets the value of an object, or deletes it (`None`), as a controller does: reads it, writes
    /// it with the resourceVersion that was read, and after an error reads it again.
    async fn write_until_acknowledged(
        &mut self,
        server: &ApiServerClient,
        name: &str,
        desired: Option<&str>,
    ) {
        let mut current = self.get_with_retries(server, name).await;
        let value = current
            .as_ref()
            .map(|c| c["data"]["k"].as_str().unwrap_or(""));
        let expected = self.last.get(name).map(String::as_str);
        assert!(value == expected, "{name} is {value:?}, was {expected:?}");
        loop {
            let value = current
                .as_ref()
                .map(|c| c["data"]["k"].as_str().unwrap_or(""));
            if value == desired {
                break;
            }
            let options = WriteOptions::default();
            let at = ResourcePath::object(&CONFIG_MAPS, NS, name);
            let done = match (&current, desired) {
                (None, Some(value)) => {
                    let created = config_map(NS, name, value);
                    let all = ResourcePath::collection(&CONFIG_MAPS, NS);
                    server
                        .api
                        .create(all, created.into(), &options)
                        .await
                        .map(Some)
                }
                (Some(object), Some(value)) => {
                    let mut next = object.clone();
                    next["data"]["k"] = value.into();
                    server.api.update(at, next.into(), &options).await.map(Some)
                }
                (Some(object), None) => {
                    let options = DeleteOptions {
                        uid: object["metadata"]["uid"].as_str().map(str::to_owned),
                        ..DeleteOptions::default()
                    };
                    server.api.delete(at, &options).await.map(|_| None)
                }
                (None, None) => break,
            };
            match done {
                Ok(Some(object)) => {
                    let object = object.value().unwrap();
                    self.acknowledged.insert(revision(&object), name.into());
                    break;
                }
                Ok(None) => break,
                // The previous write, which had no response, has succeeded.
                Err(e) if e.is_conflict() || e.is_already_exists() || e.is_not_found() => {}
                Err(e) => {
                    self.record_error(&e);
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
            current = self.get_with_retries(server, name).await;
        }
        match desired {
            Some(value) => self.last.insert(name.into(), value.into()),
            None => self.last.remove(name),
        };
    }
}

async fn run_writer(
    server: ApiServerClient,
    writer: usize,
    stop: Arc<AtomicBool>,
    again: Arc<Mutex<Vec<String>>>,
) -> WriterRecord {
    let mut written = WriterRecord {
        retried_errors: again,
        ..WriterRecord::default()
    };
    let mut n = 0;
    while n < MIN_WRITES_PER_WRITER || !stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", n % OBJECTS_PER_WRITER);
        let value = n.to_string();
        let desired = (n % 7 != 6).then_some(value.as_str());
        written
            .write_until_acknowledged(&server, &name, desired)
            .await;
        n += 1;
        // Leave time of the machine to the servers.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    written
}

/// One restart of a replica.
struct ReplicaRestart<'a> {
    replica: usize,
    /// The binary that runs afterwards.
    program: &'a Path,
    /// Stopped with SIGTERM instead of SIGKILL.
    is_graceful: bool,
}

impl ReplicaRestart<'_> {
    /// Restarts the replica and waits until it is ready, as a Deployment does before the next.
    async fn run(&self, pair: &mut ReplicaPair) {
        let node = &mut pair.replicas[self.replica];
        if self.is_graceful {
            node.signal("-TERM");
            node.wait_for_exit().await;
        } else {
            node.kill();
        }
        node.set_program(self.program);
        tokio::task::block_in_place(|| node.restart());
    }
}

fn clients(balanced: &ReplicaLoadBalancer, name: &str, count: usize) -> Vec<ApiServerClient> {
    let name = |n| format!("{name} {n}");
    (0..count).map(|n| balanced.connect(&name(n))).collect()
}

/// Restarts replicas, which first run `program`, one after the other under load, and asserts
/// that no write and no event is lost.
///
/// Graceful restarts come first, and no call may fail during them.
async fn check_restarts(program: &Path, restarts: &[ReplicaRestart<'_>]) {
    let _alone = crate::replicas::flotilla_process::exclusive_lock().await;
    let flags = [
        &FAST_ELECTION_FLAGS[..],
        &["--shutdown-delay-duration=500ms"],
    ]
    .concat();
    let pair =
        ReplicaPair::start_with(program, ControlPlaneMode::Standalone, VERSION_3_5, &flags).await;
    let Some(mut pair) = pair else { return };
    let balanced = pair.load_balancer();
    let control = balanced.connect("both");
    control.create_namespace(NS).await;
    let ready = |m: &Value| m["data"]["ca.crt"].is_string();
    control
        .wait_until(&CONFIG_MAPS, NS, "kube-root-ca.crt", "there", ready)
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let watchers: Vec<_> = clients(&balanced, "watcher", WATCHERS)
        .into_iter()
        .map(|server| tokio::spawn(list_and_watch(server, NS, END_MARKER)))
        .collect();
    let writers: Vec<_> = clients(&balanced, "writer", WRITERS)
        .into_iter()
        .enumerate()
        .map(|(n, s)| tokio::spawn(run_writer(s, n, Arc::clone(&stop), Arc::clone(&errors))))
        .collect();
    for restart in restarts {
        restart.run(&mut pair).await;
        if restart.is_graceful {
            let errors = errors.lock();
            assert!(
                errors.is_empty(),
                "calls failed during a graceful restart: {errors:#?}"
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = WriterRecord::default();
    for writer in writers {
        let one = writer.await.unwrap();
        all.acknowledged.extend(one.acknowledged);
        all.last.extend(one.last);
        all.unexpected_errors.extend(one.unexpected_errors);
    }
    control.create(config_map(NS, END_MARKER, "")).await;
    let mut last = values_by_name(&control.list(&CONFIG_MAPS, NS).await);
    for (n, watcher) in watchers.into_iter().enumerate() {
        let history = tokio::time::timeout(TIMEOUT, watcher).await;
        let history = history.unwrap_or_else(|_| panic!("watcher {n} did not see the end"));
        let history = history.unwrap();
        history.assert_complete(&format!("watcher {n}"), &all.acknowledged, &last);
    }
    last.retain(|name, _| name.starts_with('w'));
    assert_eq!(last, all.last, "acknowledged and stored objects");
    assert!(
        all.unexpected_errors.is_empty(),
        "{:#?}",
        all.unexpected_errors
    );
    assert!(all.acknowledged.len() > 100, "too few writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_write_and_no_event() {
    let program = Path::new(BINARY);
    let restarts = [(0, true), (1, true), (0, false), (1, false)];
    let restarts = restarts.map(|(replica, is_graceful)| ReplicaRestart {
        replica,
        program,
        is_graceful,
    });
    check_restarts(program, &restarts).await;
}

/// Both releases serve the same etcd while replicas are upgraded and downgraded.
#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_loses_no_write_and_no_event() {
    let Some([before]) = harness::tools(["flotilla-before"]) else {
        return;
    };
    let now = Path::new(BINARY);
    let restarts = [
        (0, now, true),
        (1, now, true),
        (0, &*before, true),
        (0, now, true),
        (1, &*before, false),
        (1, now, false),
    ];
    let restarts = restarts.map(|(replica, program, is_graceful)| ReplicaRestart {
        replica,
        program,
        is_graceful,
    });
    check_restarts(&before, &restarts).await;
}
