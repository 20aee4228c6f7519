//! The documents that have to be written: ids and keys, without bodies. Of several changes of an
//! object the newest is sent, and one document is in one request at a time.
//!
//! The queue is bounded: who adds a document waits while it is full.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use flotilla_metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::indexed_resource::IndexedResource;
use super::limits::BackendStoreLimits;

/// The bytes of an entry besides its texts.
const ENTRY_BYTES: usize = 192;

/// The id of a document: its object's UID, in an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DocumentId {
    pub(crate) index: Arc<str>,
    pub(crate) uid: Arc<str>,
}

/// A document that is to be written as the cache has its object, or to be deleted if the cache
/// has not.
#[derive(Clone)]
pub(crate) struct PendingDocument {
    pub(crate) id: DocumentId,
    pub(crate) resource: Arc<IndexedResource>,
    /// The key of the object in the cache.
    pub(crate) key: Arc<str>,
    /// The newest known resourceVersion of the object; of one that is gone, of its deletion.
    pub(crate) resource_version: u64,
    /// How often in a row a write of it has failed.
    pub(crate) failures: u32,
    /// Of these, how often its document was newer.
    pub(crate) conflicts: u32,
}

impl PendingDocument {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.id.uid.len() + self.key.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentState {
    Ready,
    /// It waits after a failure.
    Delayed,
    InFlight,
    /// It has changed since it was sent.
    ChangedInFlight,
}

struct QueueEntry {
    document: PendingDocument,
    state: DocumentState,
}

#[derive(Default)]
struct QueueEntries {
    entries: HashMap<DocumentId, QueueEntry>,
    /// In the order in which they are sent; may have ids of entries that are gone.
    ready: VecDeque<DocumentId>,
    /// By the time when they are ready, and a number.
    delayed: BTreeMap<(Instant, u64), DocumentId>,
    next_number: u64,
    bytes: usize,
}

/// The queue of one backend store.
pub(crate) struct DocumentQueue {
    entries: Mutex<QueueEntries>,
    max_documents: usize,
    max_bytes: usize,
    /// Notified when a document is ready, or is delayed less than the others.
    ready: Notify,
    /// Notified when a document leaves.
    room: Notify,
    depth: Gauge,
}

impl QueueEntries {
    fn is_ready(&self, id: &DocumentId) -> bool {
        let entry = self.entries.get(id);
        entry.is_some_and(|entry| entry.state == DocumentState::Ready)
    }

    /// Moves what has waited long enough.
    fn end_delays(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let id = entry.remove();
            self.set_ready(&id, DocumentState::Delayed);
        }
    }

    /// Makes a document ready that is in a certain state.
    fn set_ready(&mut self, id: &DocumentId, from: DocumentState) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.state == from
        {
            entry.state = DocumentState::Ready;
            self.ready.push_back(id.clone());
        }
    }

    fn has_ready(&mut self) -> bool {
        while let Some(id) = self.ready.front() {
            if self.is_ready(id) {
                return true;
            }
            self.ready.pop_front();
        }
        false
    }

    fn remove(&mut self, id: &DocumentId) {
        if let Some(entry) = self.entries.remove(id) {
            self.bytes -= entry.document.bytes();
        }
    }
}

impl DocumentQueue {
    pub(crate) fn new(limits: &BackendStoreLimits, depth: Gauge) -> Self {
        Self {
            entries: Mutex::default(),
            max_documents: limits.pending_documents,
            max_bytes: limits.pending_bytes,
            ready: Notify::new(),
            room: Notify::new(),
            depth,
        }
    }

    /// Adds a document, or takes note that it has changed. Waits while the queue is full.
    pub(crate) async fn push(&self, document: PendingDocument) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // From here on no notification is missed.
            room.as_mut().enable();
            if self.try_push(&document) {
                return;
            }
            room.await;
        }
    }

    fn try_push(&self, document: &PendingDocument) -> bool {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.entries.get_mut(&document.id) {
            let former = entry.document.bytes();
            entry.document = PendingDocument {
                resource_version: document
                    .resource_version
                    .max(entry.document.resource_version),
                failures: entry.document.failures,
                conflicts: entry.document.conflicts,
                ..document.clone()
            };
            if entry.state == DocumentState::InFlight {
                entry.state = DocumentState::ChangedInFlight;
            }
            entries.bytes = entries.bytes - former + document.bytes();
            return true;
        }
        let bytes = entries.bytes + document.bytes();
        let is_full = entries.entries.len() >= self.max_documents || bytes > self.max_bytes;
        if is_full && !entries.entries.is_empty() {
            return false;
        }
        entries.bytes = bytes;
        let entry = QueueEntry {
            document: document.clone(),
            state: DocumentState::Ready,
        };
        entries.entries.insert(document.id.clone(), entry);
        entries.ready.push_back(document.id.clone());
        self.record_depth(&entries);
        drop(entries);
        self.ready.notify_one();
        true
    }

    /// Waits until a document is ready. For one waiter.
    pub(crate) async fn wait_until_ready(&self) {
        loop {
            let delayed_until = {
                let mut entries = self.entries.lock();
                entries.end_delays(Instant::now());
                if entries.has_ready() {
                    return;
                }
                entries.delayed.keys().next().map(|(at, _)| *at)
            };
            match delayed_until {
                None => self.ready.notified().await,
                Some(at) => tokio::select! {
                    () = self.ready.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }

    /// Takes the documents that are to be sent next. Each is given back to [`Self::finish`],
    /// [`Self::put_back`] or [`Self::retry`].
    pub(crate) fn take(&self, most: usize) -> Vec<PendingDocument> {
        let mut entries = self.entries.lock();
        let mut documents = Vec::new();
        while documents.len() < most && entries.has_ready() {
            let Some(id) = entries.ready.pop_front() else {
                break;
            };
            if let Some(entry) = entries.entries.get_mut(&id) {
                entry.state = DocumentState::InFlight;
                documents.push(entry.document.clone());
            }
        }
        documents
    }

    /// A document is written, or is not to be; if it has changed meanwhile it is ready again.
    pub(crate) fn finish(&self, id: &DocumentId) {
        let mut entries = self.entries.lock();
        match entries.entries.get_mut(id) {
            Some(entry) if entry.state == DocumentState::ChangedInFlight => {
                (entry.document.failures, entry.document.conflicts) = (0, 0);
                entries.set_ready(id, DocumentState::ChangedInFlight);
            }
            Some(entry) if entry.state == DocumentState::InFlight => entries.remove(id),
            _ => return,
        }
        self.record_depth(&entries);
        drop(entries);
        self.room.notify_waiters();
    }

    /// Documents that were not sent, or whose request has failed, are the next again.
    pub(crate) fn put_back<'a>(&self, ids: impl DoubleEndedIterator<Item = &'a DocumentId>) {
        let mut entries = self.entries.lock();
        for id in ids.rev() {
            if let Some(entry) = entries.entries.get_mut(id)
                && entry.is_in_flight()
            {
                entry.state = DocumentState::Ready;
                entries.ready.push_front(id.clone());
            }
        }
        drop(entries);
        self.ready.notify_one();
    }

    /// The write of a document has failed, maybe because the document is newer; it is ready again
    /// after a delay.
    pub(crate) fn retry(&self, id: &DocumentId, delay: Duration, is_conflict: bool) {
        let mut entries = self.entries.lock();
        let number = entries.next_number;
        entries.next_number += 1;
        if let Some(entry) = entries.entries.get_mut(id)
            && entry.is_in_flight()
        {
            entry.state = DocumentState::Delayed;
            entry.document.failures = entry.document.failures.saturating_add(1);
            entry.document.conflicts += u32::from(is_conflict);
            let at = Instant::now() + delay;
            entries.delayed.insert((at, number), id.clone());
        }
    }

    /// Removes the documents of a resource that is not selected any more.
    pub(crate) fn forget(&self, resource: &Arc<IndexedResource>) {
        let mut entries = self.entries.lock();
        let of_it = entries.entries.iter();
        let of_it = of_it.filter(|(_, e)| Arc::ptr_eq(&e.document.resource, resource));
        let of_it: Vec<DocumentId> = of_it.map(|(id, _)| id.clone()).collect();
        for id in &of_it {
            entries.remove(id);
        }
        self.record_depth(&entries);
        drop(entries);
        self.room.notify_waiters();
    }

    fn record_depth(&self, entries: &QueueEntries) {
        self.depth.set(entries.entries.len() as i64);
    }
}

impl QueueEntry {
    fn is_in_flight(&self) -> bool {
        matches!(
            self.state,
            DocumentState::InFlight | DocumentState::ChangedInFlight
        )
    }
}
