//! One watch at one etcd server. It assembles fragments, so that no revision is split
//! over two messages, and checks that every event has its previous value.

use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{WatchOptions, WatchRequestSender, WatchResponseStream};
use tokio::time::timeout;

use super::endpoints::EtcdEndpoints;
use super::error::{EtcdError, RetrySafety};
use super::etcd_keys::{EtcdKeyCodec, to_etcd_revision, to_revision};
use crate::store::{Error, StoreEvent, prefix_end};

/// The timeout until a server confirms a watch.
const WATCH_CREATE_TIMEOUT: Duration = Duration::from_secs(10);

/// A watch response of the server.
#[derive(Debug)]
pub(super) enum EtcdWatchMessage {
    /// Events of complete revisions; empty when fragments of a revision are yet to come.
    Events(Vec<StoreEvent>),
    /// Everything up to this revision was sent; 0 from a server without reliable progress.
    Progress(u64),
    /// The start revision is compacted; with the compaction revision.
    Compacted(u64),
    /// The previous value of an event is compacted; the compaction revision is at least this.
    PreviousCompacted(u64),
    /// The server canceled the watch, with its reason.
    Canceled(String),
    /// The server created the watch.
    Nothing,
}

/// Assembles the fragments of watch responses. Pure.
pub(super) struct EtcdWatchDecoder {
    keys: EtcdKeyCodec,
    /// Events up to this revision are skipped; their previous values may be compacted.
    start_revision: u64,
    /// Events of an incomplete revision.
    incomplete: Vec<StoreEvent>,
}

impl EtcdWatchDecoder {
    pub(super) fn new(keys: EtcdKeyCodec, start_revision: u64) -> Self {
        Self {
            keys,
            start_revision,
            incomplete: Vec::new(),
        }
    }

    pub(super) fn decode(&mut self, answer: PbWatchResponse) -> EtcdWatchMessage {
        if answer.compact_revision > 0 {
            return EtcdWatchMessage::Compacted(to_revision(answer.compact_revision));
        }
        if answer.canceled {
            return EtcdWatchMessage::Canceled(answer.cancel_reason);
        }
        if answer.created {
            return EtcdWatchMessage::Nothing;
        }
        if answer.events.is_empty() && !answer.fragment && self.incomplete.is_empty() {
            return EtcdWatchMessage::Progress(
                answer.header.map_or(0, |h| to_revision(h.revision)),
            );
        }
        let after = to_etcd_revision(self.start_revision);
        let new = |e: &PbEvent| e.kv.as_ref().is_none_or(|kv| kv.mod_revision > after);
        for event in answer.events.into_iter().filter(new) {
            // etcd reads the previous value at the revision before, which fails below the
            // compaction revision (etcd server/storage/mvcc/kvstore_txn.go).
            let at_least = event
                .kv
                .as_ref()
                .map_or(0, |kv| to_revision(kv.mod_revision));
            match self.decode_event(event) {
                Some(event) => self.incomplete.push(event),
                None => return EtcdWatchMessage::PreviousCompacted(at_least),
            }
        }
        let complete = match self.incomplete.last() {
            Some(last) if answer.fragment => self
                .incomplete
                .partition_point(|e| e.revision < last.revision),
            _ => self.incomplete.len(),
        };
        let rest = self.incomplete.split_off(complete);
        EtcdWatchMessage::Events(std::mem::replace(&mut self.incomplete, rest))
    }

    /// `None` when the previous value is missing.
    fn decode_event(&self, event: PbEvent) -> Option<StoreEvent> {
        const DELETE: i32 = 1;
        let kv = event.kv?;
        let deleted = event.r#type == DELETE;
        let created = !deleted && kv.create_revision == kv.mod_revision;
        let previous = event.prev_kv.map(|kv| self.keys.decode_key_value(kv));
        if previous.is_none() && !created {
            return None;
        }
        Some(StoreEvent {
            key: self.keys.decode_key(&kv.key),
            revision: to_revision(kv.mod_revision),
            value: (!deleted).then(|| kv.value.into()),
            previous,
        })
    }
}

/// A watch that the server has created.
pub(super) struct EtcdWatchStream {
    pub(super) url: String,
    sender: WatchRequestSender,
    responses: WatchResponseStream,
    decoder: EtcdWatchDecoder,
}

impl EtcdWatchStream {
    /// Opens a watch of `prefix` for the events after `after`. `newest` says that `after`
    /// is the newest revision known; then the watch starts at the next one. Otherwise it
    /// starts at `after` itself and skips that event, since only then does etcd always
    /// report that `after` is compacted.
    pub(super) async fn open(
        endpoints: &EtcdEndpoints,
        keys: &EtcdKeyCodec,
        prefix: &str,
        after: u64,
        newest: bool,
    ) -> Result<Self, EtcdError> {
        let from = if newest { after + 1 } else { after.max(1) };
        let endpoint = endpoints.next_watch_endpoint();
        let options = WatchOptions::new()
            .with_range(keys.encode_key(&prefix_end(prefix)))
            .with_start_revision(to_etcd_revision(from))
            .with_progress_notify()
            .with_prev_key()
            .with_fragment();
        let mut client = endpoint.watch.clone();
        let opened = async {
            let stream = client.watch(keys.encode_key(prefix), Some(options)).await?;
            let (sender, mut answers) = stream.split();
            let first = answers.message().await?;
            Ok::<_, etcd_client::Error>((sender, answers, first))
        };
        let (sender, answers, first) = match timeout(WATCH_CREATE_TIMEOUT, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                endpoint.record_failure();
                return Err(EtcdError::new(&error, after));
            }
            Err(_) => {
                endpoint.record_failure();
                let message = format!("etcd at {}: the watch was not created", endpoint.url);
                return Err(EtcdError::unavailable(message, RetrySafety::NotApplied));
            }
        };
        let mut stream = Self {
            url: endpoint.url.clone(),
            sender,
            responses: answers,
            decoder: EtcdWatchDecoder::new(keys.clone(), after),
        };
        let canceled = |message: String| {
            let message = format!("etcd at {}: {message}", endpoint.url);
            EtcdError::unavailable(message, RetrySafety::NotApplied)
        };
        match first.map(|answer| stream.decoder.decode(answer.0)) {
            Some(EtcdWatchMessage::Nothing) => Ok(stream),
            Some(EtcdWatchMessage::Compacted(at)) => Err(EtcdError {
                error: Error::Compacted { at },
                retry_safety: RetrySafety::NotRetryable,
                ..canceled(String::new())
            }),
            Some(EtcdWatchMessage::Canceled(message)) => Err(canceled(message)),
            _ => Err(canceled("the watch ended".into())),
        }
    }

    /// The next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<EtcdWatchMessage, String> {
        match self.responses.message().await {
            Ok(Some(answer)) => Ok(self.decoder.decode(answer.0)),
            Ok(None) => Err("the watch ended".into()),
            Err(error) => Err(EtcdError::new(&error, 0).error.to_string()),
        }
    }

    /// Sends a progress request; the response arrives as [`EtcdWatchMessage::Progress`].
    pub(super) async fn request_progress(&mut self) -> Result<(), String> {
        self.sender
            .request_progress()
            .await
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbKeyValue, PbResponseHeader};

    use super::*;

    fn kv(key: &str, created: i64, modified: i64) -> PbKeyValue {
        PbKeyValue {
            key: key.as_bytes().to_vec(),
            create_revision: created,
            mod_revision: modified,
            value: b"x".to_vec(),
            ..PbKeyValue::default()
        }
    }

    /// `+3` is a creation at revision 3, `*3` an update, `-3` a deletion, `!3` a deletion
    /// without its previous value.
    fn event(text: &str) -> PbEvent {
        let (kind, revision) = text.split_at(1);
        let revision: i64 = revision.parse().unwrap();
        let created = if kind == "+" { revision } else { 1 };
        PbEvent {
            r#type: i32::from(matches!(kind, "-" | "!")),
            kv: Some(kv("/a", created, revision)),
            prev_kv: matches!(kind, "*" | "-").then(|| kv("/a", 1, revision - 1)),
        }
    }

    fn answer(events: &[&str], fragment: bool) -> PbWatchResponse {
        PbWatchResponse {
            header: Some(PbResponseHeader {
                revision: 99,
                ..PbResponseHeader::default()
            }),
            events: events.iter().map(|e| event(e)).collect(),
            fragment,
            ..PbWatchResponse::default()
        }
    }

    fn show(step: &EtcdWatchMessage) -> String {
        match step {
            EtcdWatchMessage::Events(events) => {
                let revisions = events.iter().map(|e| e.revision.to_string());
                revisions.collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn revisions_are_never_split() {
        let mut decoder = EtcdWatchDecoder::new(EtcdKeyCodec::new("/registry"), 2);
        for (events, fragment, expected) in [
            (&["!2", "+3", "*4"] as &[_], false, "3 4"),
            (&[], false, "Progress(99)"),
            (&["+5", "+6"], true, "5"),
            (&["+6"], true, ""),
            (&[], true, ""),
            (&["+6", "-7"], true, "6 6 6"),
            (&["-7"], false, "7 7"),
            (&["+8"], true, ""),
            // The last fragment may be empty.
            (&[], false, "8"),
            (&["!9"], false, "PreviousCompacted(9)"),
        ] {
            let step = decoder.decode(answer(events, fragment));
            assert_eq!(show(&step), expected, "{events:?} {fragment}");
        }
    }

    #[test]
    fn ends_of_a_watch_are_distinguished() {
        let mut decoder = EtcdWatchDecoder::new(EtcdKeyCodec::new("/registry"), 0);
        let mut check = |change: fn(&mut PbWatchResponse), expected: &str| {
            let mut response = answer(&[], false);
            change(&mut response);
            assert_eq!(show(&decoder.decode(response)), expected);
        };
        check(|a| a.created = true, "Nothing");
        check(|a| a.header = None, "Progress(0)");
        check(
            |a| {
                a.canceled = true;
                a.compact_revision = 7;
            },
            "Compacted(7)",
        );
        check(
            |a| {
                a.created = true;
                a.canceled = true;
                a.cancel_reason = "why".into();
            },
            "Canceled(\"why\")",
        );
    }
}
