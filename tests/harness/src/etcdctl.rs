//! Reads keys and their history from etcd with etcdctl, which shares no code with
//! Flotilla's client.

use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::EtcdCluster;
use crate::daemon::spawn_bound;
use crate::process::{ServerProcess, lines_of};

/// How long reading a history may take.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(90);

/// A key with its current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdKeyValue {
    pub key: String,
    pub value: Vec<u8>,
    /// Its `mod_revision`.
    pub revision: u64,
    /// The id of its lease; 0: it has none.
    pub lease: i64,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdWatchEvent {
    pub revision: u64,
    pub key: String,
    /// `None`: deleted.
    pub value: Option<Vec<u8>>,
    /// The revision of the previous value; 0: there was none.
    pub previous_revision: u64,
}

impl EtcdCluster {
    /// Lists the keys with a prefix, in ascending order.
    pub fn list_prefix(&self, prefix: &str) -> Vec<EtcdKeyValue> {
        let output = self.etcdctl(&["get", prefix, "--prefix", "-w", "json"]);
        let answer: Value = machinery::json::from_str(&output).unwrap();
        let all = answer["kvs"].as_array().cloned().unwrap_or_default();
        let stored = |kv: &Value| EtcdKeyValue {
            key: decode_text(&kv["key"]),
            value: decode_bytes(&kv["value"]),
            revision: parse_number(&kv["mod_revision"]),
            lease: kv["lease"].as_i64().unwrap_or(0),
        };
        all.iter().map(stored).collect()
    }

    /// Every change below a prefix after a revision, up to the first change of the key
    /// `last`.
    pub fn history(&self, prefix: &str, after: u64, last: &str) -> Vec<EtcdWatchEvent> {
        let mut command = self.etcdctl_command();
        command
            .args(["--endpoints", &self.endpoints(), "watch"])
            .args([prefix, "--prefix", "--prev-kv", "-w", "json"])
            .args(["--rev", &(after + 1).to_string()])
            .stdout(Stdio::piped());
        // Killed when this ends: etcdctl itself goes on when its etcd is gone.
        let mut watch = ServerProcess {
            child: spawn_bound(command).unwrap(),
        };
        let lines = lines_of(&mut watch.child);
        let deadline = Instant::now() + HISTORY_TIMEOUT;
        let mut changes = Vec::new();
        while changes
            .last()
            .is_none_or(|c: &EtcdWatchEvent| c.key != last)
        {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else {
                break;
            };
            let Ok(answer) = machinery::json::from_str::<Value>(&line) else {
                // etcdctl prints plain text when the watch was canceled.
                break;
            };
            let events = answer["Events"].as_array();
            changes.extend(events.into_iter().flatten().map(parse_change));
        }
        let end = changes.last().map(|c| c.key.as_str());
        assert_eq!(end, Some(last), "etcdctl did not show the key {last}");
        changes
    }
}

fn parse_change(event: &Value) -> EtcdWatchEvent {
    // The type of a put is 0, which the JSON omits.
    let deleted = event["type"].as_i64() == Some(1);
    EtcdWatchEvent {
        revision: parse_number(&event["kv"]["mod_revision"]),
        key: decode_text(&event["kv"]["key"]),
        value: (!deleted).then(|| decode_bytes(&event["kv"]["value"])),
        previous_revision: parse_number(&event["prev_kv"]["mod_revision"]),
    }
}

fn parse_number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn decode_bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

fn decode_text(value: &Value) -> String {
    String::from_utf8(decode_bytes(value)).unwrap()
}
