//! Both replicas are restarted in turn, first gently and then not, while clients
//! write and watch through something that balances the load. So are replicas of the
//! release before and of this one.

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
/// Made last of all.
const END: &str = "the-end";
const PAUSE: Duration = Duration::from_millis(20);
/// Of one writer, however slow the machine is.
const LEAST: usize = 50;

/// What one writer did to its own objects.
#[derive(Default)]
struct Written {
    /// Revision → object, of everything that was acknowledged.
    acknowledged: BTreeMap<u64, String>,
    /// What each object has to be now.
    last: BTreeMap<String, String>,
    /// Refusals that a client could not have expected.
    surprises: Vec<String>,
    /// Why calls of all writers had to be tried again.
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

    /// Reads until there is an answer: what became of a write without one.
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

    /// Brings an object to a value, or away (`None`), as a controller would: reads,
    /// writes against what was read, and after a failure reads again.
    async fn bring(&mut self, server: &Server, name: &str, wanted: Option<&str>) {
        let mut current = self.look(server, name).await;
        let known = current
            .as_ref()
            .map(|c| c["data"]["k"].as_str().unwrap_or(""));
        let expected = self.last.get(name).map(String::as_str);
        assert!(known == expected, "{name} is {known:?}, was {expected:?}");
        loop {
            let there = current
                .as_ref()
                .map(|c| c["data"]["k"].as_str().unwrap_or(""));
            if there == wanted {
                break;
            }
            let options = WriteOptions::default();
            let at = At::one(&CONFIG_MAPS, NS, name);
            let done = match (&current, wanted) {
                (None, Some(value)) => {
                    let made = config_map(NS, name, value);
                    let all = At::all(&CONFIG_MAPS, NS);
                    server.api.create(all, made, &options).await.map(Some)
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
                // The write before, without an answer, has happened after all.
                Err(e) if e.is_conflict() || e.is_already_exists() || e.is_not_found() => {}
                Err(e) => {
                    self.note(&e);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            current = self.look(server, name).await;
        }
        match wanted {
            Some(value) => self.last.insert(name.into(), value.into()),
            None => self.last.remove(name),
        };
    }
}

async fn write(
    server: Server,
    writer: usize,
    over: Arc<AtomicBool>,
    again: Arc<Mutex<Vec<String>>>,
) -> Written {
    let mut written = Written {
        again,
        ..Written::default()
    };
    let mut n = 0;
    while n < LEAST || !over.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", n % KEYS);
        let value = n.to_string();
        let wanted = (n % 7 != 6).then_some(value.as_str());
        written.bring(&server, &name, wanted).await;
        n += 1;
        // A load, not a flood: the machine is for the servers.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    written
}

/// One restart of a replica.
struct Restart<'a> {
    node: usize,
    /// The binary that runs afterwards.
    program: &'a Path,
    /// Told to stop instead of killed.
    gently: bool,
}

impl Restart<'_> {
    /// It is ready again when this returns, as a Deployment waits before the next.
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

/// Restarts replicas that begin with `program`, one after the other, under load. Those
/// that are told to stop come first, and no call may fail because of them.
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
    let over = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let watchers: Vec<_> = clients(&balanced, "watcher", WATCHERS)
        .into_iter()
        .map(|server| tokio::spawn(follow(server, NS, END)))
        .collect();
    let writers: Vec<_> = clients(&balanced, "writer", WRITERS)
        .into_iter()
        .enumerate()
        .map(|(n, s)| tokio::spawn(write(s, n, Arc::clone(&over), Arc::clone(&refused))))
        .collect();
    for restart in restarts {
        restart.run(&mut pair).await;
        if restart.gently {
            let again = refused.lock();
            assert!(again.is_empty(), "harm by a stopping server: {again:#?}");
        }
    }
    over.store(true, Ordering::Relaxed);
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
    assert_eq!(last, all.last, "what was acknowledged and what is there");
    assert!(all.surprises.is_empty(), "{:#?}", all.surprises);
    assert!(all.acknowledged.len() > 100, "that was no load");
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

/// Both versions serve the same etcd while they are rolled, forth and back.
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
