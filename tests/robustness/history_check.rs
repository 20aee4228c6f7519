//! Checks acknowledged writes and the events of watchers against etcd's history of the keys,
//! and returns the first violation.

use std::collections::BTreeMap;
use std::fmt;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyChange {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// `None`: deleted.
    pub(crate) value: Option<String>,
    /// The revision of the previous value; 0: there was none.
    pub(crate) previous_revision: u64,
}

/// A write that succeeded for the client.
#[derive(Clone, Debug)]
pub(crate) enum AcknowledgedWrite {
    /// The value was written at this revision.
    Put {
        revision: u64,
        key: String,
        value: String,
    },
    /// The key, last written at the revision `before`, was deleted.
    Deleted { key: String, before: u64 },
}

/// The events of a watcher, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatcherLog {
    /// The revision at which it started.
    pub(crate) after: u64,
    pub(crate) events: Vec<WatcherEvent>,
}

/// A watch event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatcherEvent {
    pub(crate) event_type: WatcherEventType,
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// The value; for a deletion the last one.
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatcherEventType {
    Added,
    Modified,
    Deleted,
}

/// A description of the first violation.
#[derive(Debug)]
pub(crate) struct HistoryViolation(String);

impl fmt::Display for HistoryViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The history read from etcd: revisions ascend, and each change has the right previous
/// revision.
#[derive(Debug)]
pub(crate) struct EtcdChangeHistory {
    changes: Vec<KeyChange>,
}

impl EtcdChangeHistory {
    pub(crate) fn new(changes: Vec<KeyChange>) -> Result<Self, HistoryViolation> {
        let mut last = 0;
        let mut present: BTreeMap<&str, u64> = BTreeMap::new();
        for change in &changes {
            if change.revision <= last {
                return Err(HistoryViolation(format!(
                    "{change:?} does not come after {last}"
                )));
            }
            last = change.revision;
            let before = match change.value {
                Some(_) => present.insert(&change.key, change.revision),
                None => present.remove(&*change.key),
            };
            if before.unwrap_or(0) != change.previous_revision {
                return Err(HistoryViolation(format!(
                    "before {change:?} was {before:?}"
                )));
            }
        }
        Ok(Self { changes })
    }

    /// The state after the last change: key → value and revision.
    pub(crate) fn final_state(&self) -> BTreeMap<String, (String, u64)> {
        let mut present = BTreeMap::new();
        for change in &self.changes {
            match &change.value {
                Some(value) => {
                    present.insert(change.key.clone(), (value.clone(), change.revision));
                }
                None => {
                    present.remove(&change.key);
                }
            }
        }
        present
    }

    /// Checks that the history contains every acknowledged write with its revision and value.
    pub(crate) fn check_acknowledged(
        &self,
        all: &[AcknowledgedWrite],
    ) -> Result<(), HistoryViolation> {
        let by_revision: BTreeMap<u64, &KeyChange> =
            self.changes.iter().map(|c| (c.revision, c)).collect();
        let deletions: BTreeMap<(&str, u64), &KeyChange> = self
            .changes
            .iter()
            .filter(|c| c.value.is_none())
            .map(|c| ((&*c.key, c.previous_revision), c))
            .collect();
        for acknowledged in all {
            let is_present = match acknowledged {
                AcknowledgedWrite::Put {
                    revision,
                    key,
                    value,
                } => by_revision
                    .get(revision)
                    .is_some_and(|c| c.key == *key && c.value.as_ref() == Some(value)),
                AcknowledgedWrite::Deleted { key, before } => {
                    deletions.contains_key(&(key.as_str(), *before))
                }
            };
            if !is_present {
                return Err(HistoryViolation(format!(
                    "acknowledged, and lost: {acknowledged:?}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that a watcher received every change after its start once, in order, with the
    /// right type and content.
    pub(crate) fn check_watcher(&self, watched: &WatcherLog) -> Result<(), HistoryViolation> {
        let mut values: BTreeMap<u64, &str> = BTreeMap::new();
        let mut expected = Vec::new();
        for change in &self.changes {
            if let Some(value) = &change.value {
                values.insert(change.revision, value);
            }
            if change.revision <= watched.after {
                continue;
            }
            let (kind, value) = match (&change.value, change.previous_revision) {
                (Some(value), 0) => (WatcherEventType::Added, value.as_str()),
                (Some(value), _) => (WatcherEventType::Modified, value.as_str()),
                (None, before) => (
                    WatcherEventType::Deleted,
                    values.get(&before).copied().unwrap_or(""),
                ),
            };
            expected.push(WatcherEvent {
                event_type: kind,
                revision: change.revision,
                key: change.key.clone(),
                value: value.to_owned(),
            });
        }
        for (n, expected) in expected.iter().enumerate() {
            let event = watched.events.get(n);
            if event != Some(expected) {
                let message = format!("event {n} should be {expected:?} and is {event:?}");
                return Err(HistoryViolation(message));
            }
        }
        match watched.events.get(expected.len()) {
            Some(more) => Err(HistoryViolation(format!(
                "an event without a change: {more:?}"
            ))),
            None => Ok(()),
        }
    }
}

// The tests below plant each kind of violation that the checks must find.

fn key_change(revision: u64, key: &str, value: &str, before: u64) -> KeyChange {
    KeyChange {
        revision,
        key: key.into(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        previous_revision: before,
    }
}

fn sample_changes() -> Vec<KeyChange> {
    vec![
        key_change(3, "a", "one", 0),
        key_change(4, "b", "two", 0),
        key_change(7, "a", "three", 3),
        key_change(8, "a", "", 7),
        key_change(9, "a", "four", 0),
    ]
}

fn watcher_event(kind: WatcherEventType, revision: u64, key: &str, value: &str) -> WatcherEvent {
    WatcherEvent {
        event_type: kind,
        revision,
        key: key.into(),
        value: value.into(),
    }
}

fn all_events() -> Vec<WatcherEvent> {
    vec![
        watcher_event(WatcherEventType::Added, 4, "b", "two"),
        watcher_event(WatcherEventType::Modified, 7, "a", "three"),
        watcher_event(WatcherEventType::Deleted, 8, "a", "three"),
        watcher_event(WatcherEventType::Added, 9, "a", "four"),
    ]
}

#[test]
fn broken_histories_are_found() {
    assert!(EtcdChangeHistory::new(sample_changes()).is_ok());
    for (n, change) in [
        (1, key_change(3, "b", "two", 0)),
        (2, key_change(7, "a", "three", 4)),
        (2, key_change(7, "a", "three", 0)),
        (3, key_change(8, "b", "", 7)),
    ] {
        let mut changes = sample_changes();
        changes[n] = change;
        assert!(EtcdChangeHistory::new(changes).is_err(), "{n}");
    }
}

#[test]
fn lost_writes_are_found() {
    let history = EtcdChangeHistory::new(sample_changes()).unwrap();
    let put = |revision, key: &str, value: &str| AcknowledgedWrite::Put {
        revision,
        key: key.into(),
        value: value.into(),
    };
    let deleted = |key: &str, before| AcknowledgedWrite::Deleted {
        key: key.into(),
        before,
    };
    history
        .check_acknowledged(&[put(3, "a", "one"), put(9, "a", "four"), deleted("a", 7)])
        .unwrap();
    for lost in [
        put(5, "a", "one"),
        put(3, "b", "one"),
        put(3, "a", "other"),
        put(8, "a", ""),
        deleted("a", 3),
        deleted("b", 4),
    ] {
        assert!(
            history
                .check_acknowledged(std::slice::from_ref(&lost))
                .is_err(),
            "{lost:?}"
        );
    }
}

#[test]
fn gaps_repeats_and_wrong_events_are_found() {
    let history = EtcdChangeHistory::new(sample_changes()).unwrap();
    let check = |edit: &dyn Fn(&mut Vec<WatcherEvent>)| {
        let mut watched = WatcherLog {
            after: 3,
            events: all_events(),
        };
        edit(&mut watched.events);
        history.check_watcher(&watched).is_ok()
    };
    assert!(check(&|_| ()));
    assert!(!check(&|t| drop(t.remove(1))));
    assert!(!check(&|t| drop(t.pop())));
    assert!(!check(&|t| t.insert(1, t[0].clone())));
    assert!(!check(&|t| t.push(t[3].clone())));
    assert!(!check(&|t| t.swap(0, 1)));
    assert!(!check(&|t| t[0].event_type = WatcherEventType::Modified));
    assert!(!check(&|t| t[2].value = "one".into()));
    assert!(!check(&|t| t.insert(
        0,
        watcher_event(WatcherEventType::Added, 3, "a", "one")
    )));
}
