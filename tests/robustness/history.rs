//! What happened to some keys, as etcd remembers it, and what others say they saw.
//!
//! Enters: the history of etcd, acknowledged writes, what watchers were told. Leaves:
//! the first promise that does not hold. Pure.

use std::collections::BTreeMap;
use std::fmt;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// `None`: deleted.
    pub(crate) value: Option<String>,
    /// The revision of what was there before; 0: nothing.
    pub(crate) before: u64,
}

/// A write that a client was told to have happened.
#[derive(Clone, Debug)]
pub(crate) enum Acknowledged {
    /// At this revision.
    Put {
        revision: u64,
        key: String,
        value: String,
    },
    /// What was there at a revision is gone.
    Deleted { key: String, before: u64 },
}

/// What a watcher was told, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Where it began.
    pub(crate) after: u64,
    pub(crate) told: Vec<Told>,
}

/// An event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: Kind,
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// Of a deletion: the last value.
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// A promise that does not hold.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// etcd's own story: ascending, and each change follows from the one before.
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

    /// What is there at the end: key, value, revision.
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

    /// Every acknowledged write is there, as it was acknowledged, and once.
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
            let there = match acknowledged {
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
            if !there {
                return Err(Broken(format!("acknowledged, and lost: {acknowledged:?}")));
            }
        }
        Ok(())
    }

    /// A watcher was told everything after its start, each once, in order, with the
    /// right type and content.
    pub(crate) fn was_told(&self, watched: &Watched) -> Result<(), Broken> {
        let mut values: BTreeMap<u64, &str> = BTreeMap::new();
        let mut wanted = Vec::new();
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
            wanted.push(Told {
                kind,
                revision: change.revision,
                key: change.key.clone(),
                value: value.to_owned(),
            });
        }
        for (n, wanted) in wanted.iter().enumerate() {
            let told = watched.told.get(n);
            if told != Some(wanted) {
                let why = format!("event {n} should be {wanted:?} and is {told:?}");
                return Err(Broken(why));
            }
        }
        match watched.told.get(wanted.len()) {
            Some(more) => Err(Broken(format!("told of what never happened: {more:?}"))),
            None => Ok(()),
        }
    }
}

// The judge is judged first: each kind of fault that it must find is planted.

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
