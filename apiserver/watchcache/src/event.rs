//! One change of one key, decoded once and encoded once for all watchers.
//!
//! Enters: stored values. Leaves: [`Item`]s for watchers. A value that is no object
//! stays visible as [`Corrupt`]; it never becomes an absence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use machinery::Object;

use crate::error::Error;

/// A stored value that is not an object.
#[derive(Debug)]
pub(crate) struct Corrupt {
    pub(crate) key: Arc<str>,
    pub(crate) why: String,
}

/// What is stored at a key.
pub(crate) type Slot = Result<Object, Arc<Corrupt>>;

/// Decodes a stored value.
pub(crate) fn decode(key: &Arc<str>, value: &[u8], revision: u64) -> Slot {
    let decoded = match storage::encryption::unreadable(value) {
        Some(why) => Err(why.to_owned()),
        None => Object::from_stored(value, revision).map_err(|why| why.to_string()),
    };
    decoded.map_err(|why| {
        tracing::error!(%key, revision, %why, "stored value is not an object");
        let key = Arc::clone(key);
        Arc::new(Corrupt { key, why })
    })
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An entry of the ring.
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) key: Arc<str>,
    /// `None`: deleted.
    pub(crate) now: Option<Slot>,
    pub(crate) was: Option<Slot>,
    /// The last state as of this revision, for those who see it leave.
    gone: OnceLock<Slot>,
    frames: [OnceLock<Bytes>; 3],
    encodings: Arc<AtomicU64>,
}

impl Event {
    pub(crate) fn new(
        revision: u64,
        key: Arc<str>,
        now: Option<Slot>,
        was: Option<Slot>,
        encodings: Arc<AtomicU64>,
    ) -> Self {
        Self {
            revision,
            key,
            now,
            was,
            gone: OnceLock::new(),
            frames: Default::default(),
            encodings,
        }
    }

    /// About how many bytes the ring holds because of this event, its frames
    /// included.
    pub(crate) fn weight(&self) -> usize {
        const FIXED: usize = 512;
        let size = |slot: &Option<Slot>| match slot {
            Some(Ok(object)) => object.bytes().len(),
            _ => 0,
        };
        let (now, was) = (size(&self.now), size(&self.was));
        FIXED
            + self.key.len()
            + if self.now.is_some() {
                2 * now + was
            } else {
                3 * was
            }
    }

    /// What the event is to a watcher whose selector is `matches`; `None`: nothing.
    pub(crate) fn seen_by(
        self: &Arc<Self>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Option<Delivery>, Error> {
        let now = match &self.now {
            Some(Err(corrupt)) => return Err((&**corrupt).into()),
            Some(Ok(object)) => Some(object).filter(|o| matches(o)),
            None => None,
        };
        // Who saw a corrupt state has ended there; for others it matched nothing.
        let was = match &self.was {
            Some(Ok(object)) => matches(object),
            _ => false,
        };
        let (change, object) = match (was, now) {
            (false, Some(now)) => (Change::Added, now.clone()),
            (true, Some(now)) => (Change::Modified, now.clone()),
            (true, None) => (Change::Deleted, self.gone()?),
            (false, None) => return Ok(None),
        };
        Ok(Some(Delivery {
            change,
            object,
            shared: Some(Arc::clone(self)),
        }))
    }

    fn gone(&self) -> Result<Object, Error> {
        let slot = self.gone.get_or_init(|| match &self.was {
            Some(Ok(object)) => object.at_revision(self.revision).map_err(|why| {
                Arc::new(Corrupt {
                    key: Arc::clone(&self.key),
                    why: why.to_string(),
                })
            }),
            Some(Err(corrupt)) => Err(Arc::clone(corrupt)),
            None => Err(Arc::new(Corrupt {
                key: Arc::clone(&self.key),
                why: "no previous state".into(),
            })),
        });
        slot.clone().map_err(|corrupt| (&*corrupt).into())
    }

    fn frame(&self, change: Change, object: &Object) -> Bytes {
        let encoded = self.frames[change as usize].get_or_init(|| {
            self.encodings.fetch_add(1, Ordering::Relaxed);
            encode(change, object)
        });
        encoded.clone()
    }
}

fn encode(change: Change, object: &Object) -> Bytes {
    let body = object.bytes();
    let mut frame = BytesMut::with_capacity(body.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(change.as_str().as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(body);
    frame.extend_from_slice(b"}\n");
    frame.freeze()
}

/// What a watcher gives.
#[derive(Clone, Debug)]
pub enum Item {
    Event(Delivery),
    /// All events up to the revision that this watcher selects were given before.
    Bookmark {
        revision: u64,
        /// The initial state is complete (`k8s.io/initial-events-end`).
        initial_end: bool,
    },
}

/// One event as one watcher sees it.
#[derive(Clone)]
pub struct Delivery {
    change: Change,
    object: Object,
    /// `None` for the initial state, which is no event.
    shared: Option<Arc<Event>>,
}

impl Delivery {
    /// An object that is there when a watch starts.
    pub(crate) fn present(object: Object) -> Self {
        Self {
            change: Change::Added,
            object,
            shared: None,
        }
    }

    pub fn change(&self) -> Change {
        self.change
    }

    /// The new state; of a deletion the last state that matched, with the revision
    /// of the event.
    pub fn object(&self) -> &Object {
        &self.object
    }

    pub fn revision(&self) -> u64 {
        self.object.revision()
    }

    /// `{"type":"ADDED","object":{...}}` and a line feed. Encoded once per event and
    /// type, whoever asks.
    pub fn frame(&self) -> Bytes {
        match &self.shared {
            Some(event) => event.frame(self.change, &self.object),
            None => encode(self.change, &self.object),
        }
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.change.as_str(), self.object)
    }
}
