//! Events of the cache, which are decoded once and encoded once for all watchers.
//!
//! A stored value that cannot be decoded is kept as a [`CorruptObject`], so that reads of
//! it fail; it is never treated as absent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use machinery::Object;

use crate::error::Error;

/// A stored value that cannot be decoded.
#[derive(Debug)]
pub(crate) struct Corrupt {
    pub(crate) key: Arc<str>,
    pub(crate) why: String,
}

/// The decoded value of a key.
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
    /// The type as it is sent to clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one key, an element of the ring (`watchCacheEvent`).
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) key: Arc<str>,
    /// `None`: deleted.
    pub(crate) now: Option<Slot>,
    pub(crate) was: Option<Slot>,
    /// The previous object with this event's revision, for watchers that receive it as
    /// deleted.
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

    /// An estimate of the bytes that the ring holds because of this event, including its
    /// frames.
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

    /// The event for a watcher with this selector: an object that starts to match is
    /// added, one that no longer matches is deleted. `None` when neither the old nor the
    /// new object matches (`convertToWatchEvent`).
    pub(crate) fn seen_by(
        self: &Arc<Self>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Option<Delivery>, Error> {
        let now = match &self.now {
            Some(Err(corrupt)) => return Err((&**corrupt).into()),
            Some(Ok(object)) => Some(object).filter(|o| matches(o)),
            None => None,
        };
        // A watcher that received the corrupt object has ended; for others it did not
        // match.
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

/// An element of a watch stream.
#[derive(Clone, Debug)]
pub enum Item {
    Event(Delivery),
    /// The watcher has sent all its events up to the revision.
    Bookmark {
        revision: u64,
        /// Marks the end of the initial events (`k8s.io/initial-events-end`).
        initial_end: bool,
    },
}

/// An event of one object, as one watcher sends it.
#[derive(Clone)]
pub struct Delivery {
    change: Change,
    object: Object,
    /// `None` for an initial event.
    shared: Option<Arc<Event>>,
}

impl Delivery {
    /// The initial event of an object that exists when the watch starts.
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

    /// The new object; for a deletion the last object that matched, with the revision of
    /// the event.
    pub fn object(&self) -> &Object {
        &self.object
    }

    pub fn revision(&self) -> u64 {
        self.object.revision()
    }

    /// `{"type":"ADDED","object":{...}}` and a line feed. All watchers share one encoding
    /// per event and type.
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
