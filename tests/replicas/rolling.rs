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

use client::{At, DeleteOptions, Error, WriteOptions};
use harness::Server;
use harness::etcd::NEW;
use harness::objects::{CONFIG_MAPS, config_map};
use parking_lot::Mutex;
use serde_json::Value;

use crate::history::{follow, state};
use crate::pair::{Balanced, Form, Pair};
use crate::processes::{BINARY, FAST};

const NS: &str = "rolling";
const WRITERS: usize = 4;
const WATCHERS: usize = 6;
const KEYS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);
/// The object that is created last, which ends the watches.
const END: &str = "the-end";
const PAUSE: Duration = Duration::from_millis(20);
/// How many writes each writer makes at least, even on a slow machine.
const LEAST: usize = 50;

/// The writes of one writer to its own objects.
#[derive(Default)]
struct Written {
    /// Revision → object name, of each acknowledged write.
    acknowledged: BTreeMap<u64, String>,
    /// The expected value of each object.
    last: BTreeMap<String, String>,
    /// Errors that are not retryable.
    surprises: Vec<String>,
    /// Errors of all writers, whose calls were retried.
    again: Arc<Mutex<Vec<String>>>,
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|v| v.parse().ok()).unwrap()
}

impl Written {
    fn note(&mut self, error: &Error) {
        let expected = match error {
            Error::Transport { .. } => true,
            Error::Status(status) => matches!(status.code, 429 | 503 | 504),
            Error::Protocol(_) => false,
        };
        if !expected {
            self.surprises.push(error.to_string());
        }
        self.again.lock().push(error.to_string());
    }

    /// Reads an object until there is a response, to learn the outcome of a write without one.
    async fn look(&mut self, server: &Server, name: &str) -> Option<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            match server.api.get(At::one(&CONFIG_MAPS, NS, name)).await {
                Ok(object) => return Some(object.value().unwrap()),
                Err(e) if e.is_not_found() => return None,
                Err(e) => self.note(&e),
            }
            assert!(Instant::now() < end, "{name} cannot be read");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sets the value of an object, or deletes it (`None`), as a controller does: reads it, writes
    /// it with the resourceVersion that was read, and after an error reads it again.
    async fn bring(&mut self, server: &Server, name: &str, desired: Option<&str>) {
        let mut current = self.look(server, name).await;
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
            let at = At::one(&CONFIG_MAPS, NS, name);
            let done = match (&current, desired) {
                (None, Some(value)) => {
                    let created = config_map(NS, name, value);
                    let all = At::all(&CONFIG_MAPS, NS);
                    server.api.create(all, created, &options).await.map(Some)
                }
                (Some(object), Some(value)) => {
                    let mut next = object.clone();
                    next["data"]["k"] = value.into();
                    server.api.update(at, next, &options).await.map(Some)
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
                    self.note(&e);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            current = self.look(server, name).await;
        }
        match desired {
            Some(value) => self.last.insert(name.into(), value.into()),
            None => self.last.remove(name),
        };
    }
}

async fn write(
    server: Server,
    writer: usize,
    stop: Arc<AtomicBool>,
    again: Arc<Mutex<Vec<String>>>,
) -> Written {
    let mut written = Written {
        again,
        ..Written::default()
    };
    let mut n = 0;
    while n < LEAST || !stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", n % KEYS);
        let value = n.to_string();
        let desired = (n % 7 != 6).then_some(value.as_str());
        written.bring(&server, &name, desired).await;
        n += 1;
        // Leave time of the machine to the servers.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    written
}

/// One restart of a replica.
struct Restart<'a> {
    node: usize,
    /// The binary that runs afterwards.
    program: &'a Path,
    /// Stopped with SIGTERM instead of SIGKILL.
    gently: bool,
}

impl Restart<'_> {
    /// Restarts the replica and waits until it is ready, as a Deployment does before the next.
    async fn run(&self, pair: &mut Pair) {
        let node = &mut pair.nodes[self.node];
        if self.gently {
            node.signal("-TERM");
            node.ended().await;
        } else {
            node.kill();
        }
        node.run_next(self.program);
        tokio::task::block_in_place(|| node.again());
    }
}

fn clients(balanced: &Balanced, name: &str, count: usize) -> Vec<Server> {
    let name = |n| format!("{name} {n}");
    (0..count).map(|n| balanced.connect(&name(n))).collect()
}

/// Restarts replicas, which first run `program`, one after the other under load, and asserts
/// that no write and no event is lost.
///
/// Graceful restarts come first, and no call may fail during them.
async fn loses_nothing(program: &Path, restarts: &[Restart<'_>]) {
    let _alone = crate::processes::alone().await;
    let flags = [&FAST[..], &["--shutdown-delay-duration=500ms"]].concat();
    let pair = Pair::start_with(program, Form::Alone, NEW, &flags).await;
    let Some(mut pair) = pair else { return };
    let balanced = pair.balanced();
    let control = balanced.connect("both");
    control.namespace(NS).await;
    let ready = |m: &Value| m["data"]["ca.crt"].is_string();
    control
        .until(&CONFIG_MAPS, NS, "kube-root-ca.crt", "there", ready)
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let watchers: Vec<_> = clients(&balanced, "watcher", WATCHERS)
        .into_iter()
        .map(|server| tokio::spawn(follow(server, NS, END)))
        .collect();
    let writers: Vec<_> = clients(&balanced, "writer", WRITERS)
        .into_iter()
        .enumerate()
        .map(|(n, s)| tokio::spawn(write(s, n, Arc::clone(&stop), Arc::clone(&errors))))
        .collect();
    for restart in restarts {
        restart.run(&mut pair).await;
        if restart.gently {
            let errors = errors.lock();
            assert!(
                errors.is_empty(),
                "calls failed during a graceful restart: {errors:#?}"
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = Written::default();
    for writer in writers {
        let one = writer.await.unwrap();
        all.acknowledged.extend(one.acknowledged);
        all.last.extend(one.last);
        all.surprises.extend(one.surprises);
    }
    control.create(config_map(NS, END, "")).await;
    let mut last = state(&control.list(&CONFIG_MAPS, NS).await);
    for (n, watcher) in watchers.into_iter().enumerate() {
        let history = tokio::time::timeout(PATIENCE, watcher).await;
        let history = history.unwrap_or_else(|_| panic!("watcher {n} did not see the end"));
        let history = history.unwrap();
        history.judge(&format!("watcher {n}"), &all.acknowledged, &last);
    }
    last.retain(|name, _| name.starts_with('w'));
    assert_eq!(last, all.last, "acknowledged and stored objects");
    assert!(all.surprises.is_empty(), "{:#?}", all.surprises);
    assert!(all.acknowledged.len() > 100, "too few writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_write_and_no_event() {
    let program = Path::new(BINARY);
    let restarts = [(0, true), (1, true), (0, false), (1, false)];
    let restarts = restarts.map(|(node, gently)| Restart {
        node,
        program,
        gently,
    });
    loses_nothing(program, &restarts).await;
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
    let restarts = restarts.map(|(node, program, gently)| Restart {
        node,
        program,
        gently,
    });
    loses_nothing(&before, &restarts).await;
}
