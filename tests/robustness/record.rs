//! Support of the crash tests: child processes that write to a store, print each
//! acknowledged write, and are killed by their parent.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use harness::process::{RunningCommand, lines_of};
use storage::{SingleKeyTxn, SingleKeyTxnOp, Store, StoreEvent, TxnResponse};

const CHILD_TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const WRITERS: u64 = 16;
/// The number of keys of each writer.
pub(crate) const KEYS_PER_WRITER: u64 = 6;

/// The value of a key (`None`: deleted) at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyWrite {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
}

pub(crate) type WriteHistory = BTreeMap<u64, KeyWrite>;

/// Sets a key to a new value, or deletes it, and prints the acknowledged write. False:
/// another writer changed the key meanwhile.
#[expect(clippy::print_stdout, reason = "the parent listens")]
pub(crate) async fn write_once(
    store: &dyn Store,
    key: &str,
    turn: u64,
) -> storage::StoreResult<bool> {
    let written = write(store, key, turn).await?;
    if let Some((revision, write)) = &written {
        let value = write.value.as_deref().unwrap_or("-");
        // One write of a full line; the full stop marks its end.
        println!("\nacknowledged {revision} {key} {value} .");
    }
    Ok(written.is_some())
}

/// The same without output.
pub(crate) async fn write(
    store: &dyn Store,
    key: &str,
    turn: u64,
) -> storage::StoreResult<Option<(u64, KeyWrite)>> {
    let current = store.get(key).await?;
    let expected = current.map_or(0, |e| e.mod_revision);
    let delete = expected > 0 && turn % 7 == 3;
    // Sizes from nothing to several pages; unique by key and turn.
    let padding = usize::try_from(turn * 997 % 20_000).unwrap();
    let value = format!("{turn}-{}-{}", std::process::id(), "x".repeat(padding));
    let op = if delete {
        SingleKeyTxnOp::Delete
    } else {
        SingleKeyTxnOp::Put {
            value: Bytes::from(value.clone()),
            ttl: None,
        }
    };
    let txn = SingleKeyTxn {
        key: key.into(),
        expected,
        op,
    };
    let TxnResponse::Committed { revision } = store.commit(txn).await? else {
        return Ok(None);
    };
    let write = KeyWrite {
        key: key.to_owned(),
        value: (!delete).then(|| digest(value.as_bytes())),
    };
    Ok(Some((revision, write)))
}

/// A short text that is unique for a value.
pub(crate) fn digest(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    format!("{}{}", text.trim_end_matches('x'), value.len())
}

fn parse_acknowledged(line: &str) -> Option<(u64, KeyWrite)> {
    let words: Vec<_> = line.split(' ').collect();
    let ["acknowledged", revision, key, value, "."] = words[..] else {
        return None;
    };
    let write = KeyWrite {
        key: key.into(),
        value: (value != "-").then(|| value.to_owned()),
    };
    Some((revision.parse().unwrap(), write))
}

pub(crate) fn random_below(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below
}

/// The value of a variable that the parent test sets for its child process.
pub(crate) fn variable_from_parent(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// A command that runs one test of this binary as the child process.
pub(crate) fn child_command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--include-ignored"]);
    command
}

/// Starts the child, lets it write and kills it; returns its acknowledged writes.
pub(crate) async fn run_and_kill(test: &str, variable: &str, value: &OsStr) -> WriteHistory {
    let mut command = child_command(test);
    command.env(variable, value);
    // The process is sometimes killed while it opens the store, otherwise after some writes.
    kill_after(&command, random_below(5) * random_below(200)).await
}

/// Kills the child a moment after `writes` acknowledged writes, and returns them.
pub(crate) async fn kill_after(command: &Command, writes: u64) -> WriteHistory {
    let mut running = WriterProcess::start(command);
    running.wait_until(|now| now.acknowledged_count >= writes);
    let pause = if writes == 0 {
        random_below(60_000)
    } else {
        random_below(3_000)
    };
    tokio::time::sleep(Duration::from_micros(pause)).await;
    let ended = running.kill();
    assert_eq!(ended.failed_count, 0, "writes were refused");
    ended.acknowledged
}

/// The writes that a child has printed.
#[derive(Default)]
pub(crate) struct WriterReport {
    pub(crate) acknowledged: WriteHistory,
    /// The number of acknowledged writes.
    pub(crate) acknowledged_count: u64,
    /// The number of writes that failed.
    pub(crate) failed_count: u64,
}

/// A child that writes. Dropping it kills the process.
pub(crate) struct WriterProcess {
    process: RunningCommand,
    lines: mpsc::Receiver<String>,
    report: WriterReport,
}

impl WriterProcess {
    pub(crate) fn start(command: &Command) -> Self {
        let mut process = RunningCommand::start(command);
        Self {
            lines: lines_of(&mut process.child),
            process,
            report: WriterReport::default(),
        }
    }

    /// Reads lines until `holds` returns true.
    pub(crate) fn wait_until(&mut self, holds: impl Fn(&WriterReport) -> bool) {
        let deadline = Instant::now() + CHILD_TIMEOUT;
        while !holds(&self.report) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.report.record_line(&line),
                Err(error) => panic!(
                    "{error}: {} writes acknowledged, {} refused",
                    self.report.acknowledged_count, self.report.failed_count
                ),
            }
        }
    }

    /// SIGKILL; reads the lines that it printed before.
    pub(crate) fn kill(self) -> WriterReport {
        let (lines, mut report) = (self.lines, self.report);
        drop(self.process);
        lines.iter().for_each(|line| report.record_line(&line));
        report
    }
}

impl WriterReport {
    fn record_line(&mut self, line: &str) {
        if let Some((revision, write)) = parse_acknowledged(line) {
            self.acknowledged.insert(revision, write);
            self.acknowledged_count += 1;
        }
        self.failed_count += u64::from(line.starts_with("refused "));
    }
}

pub(crate) fn key_write(event: &StoreEvent) -> (u64, KeyWrite) {
    let write = KeyWrite {
        key: event.key.to_string(),
        value: event.value.as_deref().map(digest),
    };
    (event.revision, write)
}
