//! Checks acknowledged writes and the events of watchers against etcd's history of the keys,
//! and returns the first violation.

use std::collections::BTreeMap;
use std::fmt;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// `None`: deleted.
    pub(crate) value: Option<String>,
    /// The revision of the previous value; 0: there was none.
    pub(crate) before: u64,
}

/// A write that succeeded for the client.
#[derive(Clone, Debug)]
pub(crate) enum Acknowledged {
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
pub(crate) struct Watched {
    /// The revision at which it started.
    pub(crate) after: u64,
    pub(crate) told: Vec<Told>,
}

/// A watch event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: Kind,
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// The value; for a deletion the last one.
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// A description of the first violation.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The history read from etcd: revisions ascend, and each change has the right previous
/// revision.
#[derive(Debug)]
pub(crate) struct History {
    changes: Vec<Change>,
}

impl History {
    pub(crate) fn new(changes: Vec<Change>) -> Result<Self, Broken> {
        let mut last = 0;
        let mut present: BTreeMap<&str, u64> = BTreeMap::new();
        for change in &changes {
            if change.revision <= last {
                return Err(Broken(format!("{change:?} does not come after {last}")));
            }
            last = change.revision;
            let before = match change.value {
                Some(_) => present.insert(&change.key, change.revision),
                None => present.remove(&*change.key),
            };
            if before.unwrap_or(0) != change.before {
                return Err(Broken(format!("before {change:?} was {before:?}")));
            }
        }
        Ok(Self { changes })
    }

    /// The state after the last change: key → value and revision.
    pub(crate) fn present(&self) -> BTreeMap<String, (String, u64)> {
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
    pub(crate) fn holds(&self, all: &[Acknowledged]) -> Result<(), Broken> {
        let by_revision: BTreeMap<u64, &Change> =
            self.changes.iter().map(|c| (c.revision, c)).collect();
        let deletions: BTreeMap<(&str, u64), &Change> = self
            .changes
            .iter()
            .filter(|c| c.value.is_none())
            .map(|c| ((&*c.key, c.before), c))
            .collect();
        for acknowledged in all {
            let is_present = match acknowledged {
                Acknowledged::Put {
                    revision,
                    key,
                    value,
                } => by_revision
                    .get(revision)
                    .is_some_and(|c| c.key == *key && c.value.as_ref() == Some(value)),
                Acknowledged::Deleted { key, before } => {
                    deletions.contains_key(&(key.as_str(), *before))
                }
            };
            if !is_present {
                return Err(Broken(format!("acknowledged, and lost: {acknowledged:?}")));
            }
        }
        Ok(())
    }

    /// Checks that a watcher received every change after its start once, in order, with the
    /// right type and content.
    pub(crate) fn was_told(&self, watched: &Watched) -> Result<(), Broken> {
        let mut values: BTreeMap<u64, &str> = BTreeMap::new();
        let mut expected = Vec::new();
        for change in &self.changes {
            if let Some(value) = &change.value {
                values.insert(change.revision, value);
            }
            if change.revision <= watched.after {
                continue;
            }
            let (kind, value) = match (&change.value, change.before) {
                (Some(value), 0) => (Kind::Added, value.as_str()),
                (Some(value), _) => (Kind::Modified, value.as_str()),
                (None, before) => (Kind::Deleted, values.get(&before).copied().unwrap_or("")),
            };
            expected.push(Told {
                kind,
                revision: change.revision,
                key: change.key.clone(),
                value: value.to_owned(),
            });
        }
        for (n, expected) in expected.iter().enumerate() {
            let event = watched.told.get(n);
            if event != Some(expected) {
                let why = format!("event {n} should be {expected:?} and is {event:?}");
                return Err(Broken(why));
            }
        }
        match watched.told.get(expected.len()) {
            Some(more) => Err(Broken(format!("an event without a change: {more:?}"))),
            None => Ok(()),
        }
    }
}

// The tests below plant each kind of violation that the checks must find.

fn change(revision: u64, key: &str, value: &str, before: u64) -> Change {
    Change {
        revision,
        key: key.into(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        before,
    }
}

fn sample() -> Vec<Change> {
    vec![
        change(3, "a", "one", 0),
        change(4, "b", "two", 0),
        change(7, "a", "three", 3),
        change(8, "a", "", 7),
        change(9, "a", "four", 0),
    ]
}

fn told(kind: Kind, revision: u64, key: &str, value: &str) -> Told {
    Told {
        kind,
        revision,
        key: key.into(),
        value: value.into(),
    }
}

fn whole() -> Vec<Told> {
    vec![
        told(Kind::Added, 4, "b", "two"),
        told(Kind::Modified, 7, "a", "three"),
        told(Kind::Deleted, 8, "a", "three"),
        told(Kind::Added, 9, "a", "four"),
    ]
}

#[test]
fn broken_histories_are_found() {
    assert!(History::new(sample()).is_ok());
    for (n, change) in [
        (1, change(3, "b", "two", 0)),
        (2, change(7, "a", "three", 4)),
        (2, change(7, "a", "three", 0)),
        (3, change(8, "b", "", 7)),
    ] {
        let mut changes = sample();
        changes[n] = change;
        assert!(History::new(changes).is_err(), "{n}");
    }
}

#[test]
fn lost_writes_are_found() {
    let history = History::new(sample()).unwrap();
    let put = |revision, key: &str, value: &str| Acknowledged::Put {
        revision,
        key: key.into(),
        value: value.into(),
    };
    let deleted = |key: &str, before| Acknowledged::Deleted {
        key: key.into(),
        before,
    };
    history
        .holds(&[put(3, "a", "one"), put(9, "a", "four"), deleted("a", 7)])
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
            history.holds(std::slice::from_ref(&lost)).is_err(),
            "{lost:?}"
        );
    }
}

#[test]
fn gaps_repeats_and_wrong_events_are_found() {
    let history = History::new(sample()).unwrap();
    let check = |edit: &dyn Fn(&mut Vec<Told>)| {
        let mut watched = Watched {
            after: 3,
            told: whole(),
        };
        edit(&mut watched.told);
        history.was_told(&watched).is_ok()
    };
    assert!(check(&|_| ()));
    assert!(!check(&|t| drop(t.remove(1))));
    assert!(!check(&|t| drop(t.pop())));
    assert!(!check(&|t| t.insert(1, t[0].clone())));
    assert!(!check(&|t| t.push(t[3].clone())));
    assert!(!check(&|t| t.swap(0, 1)));
    assert!(!check(&|t| t[0].kind = Kind::Modified));
    assert!(!check(&|t| t[2].value = "one".into()));
    assert!(!check(&|t| t.insert(0, told(Kind::Added, 3, "a", "one"))));
}
