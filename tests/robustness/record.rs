//! What processes that are killed write down, and how their writes are known again.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{Event, Op, Outcome, Store, Txn};

const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const WRITERS: u64 = 16;
/// Of each writer.
pub(crate) const KEYS: u64 = 6;

/// What a key was set to (`None`: deleted) at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
}

pub(crate) type History = BTreeMap<u64, Write>;

/// Sets a key to something new, or deletes it, and says so. False: somebody else wrote
/// it meanwhile.
#[expect(clippy::print_stdout, reason = "the parent listens")]
pub(crate) async fn write_once(store: &dyn Store, key: &str, turn: u64) -> storage::Result<bool> {
    let written = write(store, key, turn).await?;
    if let Some((revision, write)) = &written {
        let value = write.value.as_deref().unwrap_or("-");
        // In one piece; the full stop tells that it is whole.
        println!("\nacknowledged {revision} {key} {value} .");
    }
    Ok(written.is_some())
}

/// The same, in silence.
pub(crate) async fn write(
    store: &dyn Store,
    key: &str,
    turn: u64,
) -> storage::Result<Option<(u64, Write)>> {
    let current = store.get(key).await?;
    let expected = current.map_or(0, |e| e.revision);
    let delete = expected > 0 && turn % 7 == 3;
    // Sizes from nothing to several pages; unique by key and turn.
    let padding = usize::try_from(turn * 997 % 20_000).unwrap();
    let value = format!("{turn}-{}-{}", std::process::id(), "x".repeat(padding));
    let op = if delete {
        Op::Delete
    } else {
        Op::Put {
            value: Bytes::from(value.clone()),
            ttl: None,
        }
    };
    let txn = Txn {
        key: key.into(),
        expected,
        op,
    };
    let Outcome::Committed { revision } = store.commit(txn).await? else {
        return Ok(None);
    };
    let write = Write {
        key: key.to_owned(),
        value: (!delete).then(|| digest(value.as_bytes())),
    };
    Ok(Some((revision, write)))
}

/// A short text that differs for different values.
pub(crate) fn digest(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    format!("{}{}", text.trim_end_matches('x'), value.len())
}

fn parse(line: &str) -> Option<(u64, Write)> {
    let words: Vec<_> = line.split(' ').collect();
    let ["acknowledged", revision, key, value, "."] = words[..] else {
        return None;
    };
    let write = Write {
        key: key.into(),
        value: (value != "-").then(|| value.to_owned()),
    };
    Some((revision.parse().unwrap(), write))
}

pub(crate) fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below
}

/// What the parent of this process gave it, if it is the child of a test.
pub(crate) fn parent_gave(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// This binary with one test alone, which knows by the environment that it is the child.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--include-ignored"]);
    command
}

/// Starts the child, lets it write, kills it; returns what it had acknowledged.
pub(crate) async fn run_and_kill(test: &str, variable: &str, value: &OsStr) -> History {
    let mut command = child(test);
    command.env(variable, value);
    // Sometimes while it opens the store, else after some writes.
    kill_after(command, random(5) * random(200)).await
}

/// The same after so many acknowledged writes, and a moment more.
pub(crate) async fn kill_after(command: Command, enough: u64) -> History {
    let mut running = Running::start(command);
    running.until(|now| now.count >= enough);
    let pause = if enough == 0 {
        random(60_000)
    } else {
        random(3_000)
    };
    tokio::time::sleep(Duration::from_micros(pause)).await;
    let ended = running.kill();
    assert_eq!(ended.refused, 0, "writes were refused");
    ended.acknowledged
}

/// What a child has said.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) acknowledged: History,
    /// How many writes it acknowledged.
    pub(crate) count: u64,
    /// How many writes got an error.
    pub(crate) refused: u64,
}

/// A child that writes; it is killed with this.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Said,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (heard, hear) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = heard.send(line);
            }
        });
        Self {
            child,
            lines: hear,
            said: Said::default(),
        }
    }

    /// Listens until this holds.
    pub(crate) fn until(&mut self, holds: impl Fn(&Said) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.said) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said.hear(&line),
                Err(why) => panic!(
                    "{why}: {} writes acknowledged, {} refused",
                    self.said.count, self.said.refused
                ),
            }
        }
    }

    /// SIGKILL. What it said before it died counts.
    pub(crate) fn kill(mut self) -> Said {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for line in self.lines.iter() {
            self.said.hear(&line);
        }
        std::mem::take(&mut self.said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    fn hear(&mut self, line: &str) {
        if let Some((revision, write)) = parse(line) {
            self.acknowledged.insert(revision, write);
            self.count += 1;
        }
        self.refused += u64::from(line.starts_with("refused "));
    }
}

pub(crate) fn seen(event: &Event) -> (u64, Write) {
    let write = Write {
        key: event.key.to_string(),
        value: event.value.as_deref().map(digest),
    };
    (event.revision, write)
}
