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
pub(crate) struct CorruptObject {
    pub(crate) key: Arc<str>,
    pub(crate) reason: String,
}

impl From<&CorruptObject> for Error {
    fn from(corrupt: &CorruptObject) -> Self {
        Self::Corrupt {
            key: corrupt.key.to_string(),
            reason: corrupt.reason.clone(),
        }
    }
}

/// The decoded value of a key.
pub(crate) type ObjectDecodeResult = Result<Object, Arc<CorruptObject>>;

/// Decodes a stored value.
pub(crate) fn decode(key: &Arc<str>, value: &[u8], revision: u64) -> ObjectDecodeResult {
    let decoded = match storage::encryption::unreadable_reason(value) {
        Some(message) => Err(message.to_owned()),
        None => Object::from_stored(value, revision).map_err(|message| message.to_string()),
    };
    decoded.map_err(|message| {
        tracing::error!(%key, revision, why = %message, "stored value is not an object");
        let key = Arc::clone(key);
        Arc::new(CorruptObject {
            key,
            reason: message,
        })
    })
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectEventType {
    Added,
    Modified,
    Deleted,
}

impl ObjectEventType {
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
pub(crate) struct WatchCacheEvent {
    pub(crate) revision: u64,
    pub(crate) key: Arc<str>,
    /// `None`: deleted.
    pub(crate) object: Option<ObjectDecodeResult>,
    pub(crate) previous: Option<ObjectDecodeResult>,
    /// The previous object with this event's revision, for watchers that receive it as
    /// deleted.
    deleted_object: OnceLock<ObjectDecodeResult>,
    frames: [OnceLock<Bytes>; 3],
    /// In the second encoding that clients may ask for, by event type.
    protobuf_frames: [OnceLock<Bytes>; 3],
    encodings: Arc<AtomicU64>,
}

impl WatchCacheEvent {
    pub(crate) fn new(
        revision: u64,
        key: Arc<str>,
        object: Option<ObjectDecodeResult>,
        previous: Option<ObjectDecodeResult>,
        encodings: Arc<AtomicU64>,
    ) -> Self {
        Self {
            revision,
            key,
            object,
            previous,
            deleted_object: OnceLock::new(),
            frames: Default::default(),
            protobuf_frames: Default::default(),
            encodings,
        }
    }

    /// An estimate of the bytes that the ring holds because of this event, including its
    /// frames; protobuf needs about half of what JSON does.
    pub(crate) fn weight_bytes(&self) -> usize {
        const FIXED: usize = 512;
        // The bytes of an object in memory, and of its two frames.
        let sizes = |slot: &Option<ObjectDecodeResult>| match slot {
            Some(Ok(object)) => {
                let frame = object.served_len();
                (object.memory_bytes(), frame + frame / 2)
            }
            _ => (0, 0),
        };
        let ((new_size, new_frames), (old_size, old_frames)) =
            (sizes(&self.object), sizes(&self.previous));
        FIXED
            + self.key.len()
            + old_size
            + if self.object.is_some() {
                new_size + new_frames
            } else {
                // The deleted object is whole.
                2 * old_frames
            }
    }

    /// The event for a watcher with this selector: an object that starts to match is
    /// added, one that no longer matches is deleted. `None` when neither the old nor the
    /// new object matches (`convertToWatchEvent`).
    pub(crate) fn object_event(
        self: &Arc<Self>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Option<ObjectEvent>, Error> {
        let new_object = match &self.object {
            Some(Err(corrupt)) => return Err((&**corrupt).into()),
            Some(Ok(object)) => Some(object).filter(|o| matches(o)),
            None => None,
        };
        // A watcher that received the corrupt object has ended; for others it did not
        // match.
        let old_object = match &self.previous {
            Some(Ok(object)) => matches(object),
            _ => false,
        };
        let (change, object) = match (old_object, new_object) {
            (false, Some(new_object)) => (ObjectEventType::Added, new_object.clone()),
            (true, Some(new_object)) => (ObjectEventType::Modified, new_object.clone()),
            (true, None) => (ObjectEventType::Deleted, self.deleted()?),
            (false, None) => return Ok(None),
        };
        Ok(Some(ObjectEvent {
            event_type: change,
            object,
            event: Some(Arc::clone(self)),
        }))
    }

    fn deleted(&self) -> Result<Object, Error> {
        let slot = self.deleted_object.get_or_init(|| match &self.previous {
            Some(Ok(object)) => object.with_revision(self.revision).map_err(|message| {
                Arc::new(CorruptObject {
                    key: Arc::clone(&self.key),
                    reason: message.to_string(),
                })
            }),
            Some(Err(corrupt)) => Err(Arc::clone(corrupt)),
            None => Err(Arc::new(CorruptObject {
                key: Arc::clone(&self.key),
                reason: "no previous state".into(),
            })),
        });
        slot.clone().map_err(|corrupt| (&*corrupt).into())
    }

    fn frame(&self, change: ObjectEventType, object: &Object) -> Bytes {
        let encoded = self.frames[change as usize].get_or_init(|| {
            self.encodings.fetch_add(1, Ordering::Relaxed);
            encode_frame(change, object)
        });
        encoded.clone()
    }
}

/// The content of a slot, encoded by the first caller that succeeds.
fn get_or_encode<E>(
    slot: &OnceLock<Bytes>,
    encode: impl FnOnce() -> Result<Bytes, E>,
) -> Result<Bytes, E> {
    if let Some(encoded) = slot.get() {
        return Ok(encoded.clone());
    }
    let encoded = encode()?;
    Ok(slot.get_or_init(|| encoded).clone())
}

fn encode_frame(change: ObjectEventType, object: &Object) -> Bytes {
    let body = object.served_bytes();
    let mut frame = BytesMut::with_capacity(body.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(change.as_str().as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(&body);
    frame.extend_from_slice(b"}\n");
    frame.freeze()
}

/// An element of a watch stream.
#[derive(Clone, Debug)]
pub enum CacheWatcherItem {
    Event(ObjectEvent),
    /// The watcher has sent all its events up to the revision.
    Bookmark {
        revision: u64,
        /// Marks the end of the initial events (`k8s.io/initial-events-end`).
        initial_end: bool,
    },
}

/// An event of one object, as one watcher sends it.
#[derive(Clone)]
pub struct ObjectEvent {
    event_type: ObjectEventType,
    object: Object,
    /// `None` for an initial event.
    event: Option<Arc<WatchCacheEvent>>,
}

impl ObjectEvent {
    /// The initial event of an object that exists when the watch starts.
    pub(crate) fn initial(object: Object) -> Self {
        Self {
            event_type: ObjectEventType::Added,
            object,
            event: None,
        }
    }

    pub fn event_type(&self) -> ObjectEventType {
        self.event_type
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
        match &self.event {
            Some(event) => event.frame(self.event_type, &self.object),
            None => encode_frame(self.event_type, &self.object),
        }
    }
}

impl ObjectEvent {
    /// The frame in protobuf, which `encode` makes. All watchers share one encoding per event
    /// and type.
    pub fn protobuf_frame<E>(&self, encode: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        match &self.event {
            Some(event) => {
                let slot = &event.protobuf_frames[self.event_type as usize];
                get_or_encode(slot, || {
                    event.encodings.fetch_add(1, Ordering::Relaxed);
                    encode()
                })
            }
            None => encode(),
        }
    }
}

impl std::fmt::Debug for ObjectEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.event_type.as_str(), self.object)
    }
}
