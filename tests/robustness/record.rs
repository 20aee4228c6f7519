//! What processes that are killed write down, and how their writes are known again.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use storage::{Event, Op, Outcome, Store, Txn};

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

fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below
}

/// What [`run_and_kill`] gave this process, if it started it.
pub(crate) fn parent_gave(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// Starts this binary again with one test alone, lets it write, kills it; returns what
/// it had acknowledged. It knows by the environment that it is the child.
pub(crate) async fn run_and_kill(test: &str, variable: &str, value: &OsStr) -> History {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(variable, value)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = History::new();
    // Sometimes while it opens the store, else after some writes.
    let enough = random(5) * random(200);
    let mut count = 0;
    while count < enough {
        let Some(line) = lines.next() else {
            panic!("the child ended by itself: {:?}", child.wait());
        };
        if let Some((revision, write)) = parse(&line.unwrap()) {
            acknowledged.insert(revision, write);
            count += 1;
        }
    }
    let pause = if enough == 0 {
        random(60_000)
    } else {
        random(3_000)
    };
    tokio::time::sleep(Duration::from_micros(pause)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died counts.
    acknowledged.extend(lines.map_while(Result::ok).filter_map(|line| parse(&line)));
    acknowledged
}

pub(crate) fn seen(event: &Event) -> (u64, Write) {
    let write = Write {
        key: event.key.to_string(),
        value: event.value.as_deref().map(digest),
    };
    (event.revision, write)
}
