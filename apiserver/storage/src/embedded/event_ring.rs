//! A ring of the recent durable events, one per revision, for watches that are nearly up
//! to date. It is bounded in bytes, and the events it returns share their bytes.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::store::StoreEvent;

/// Bytes of memory that one event takes besides its key and values.
const EVENT_OVERHEAD_BYTES: usize = 160;

/// The newest events of the store, bounded by bytes, for watches that start in the past.
#[derive(Debug)]
pub(super) struct StoreEventRing {
    /// The event of revision `start + 1 + i` has the index `i`.
    events: VecDeque<StoreEvent>,
    start: u64,
    bytes: usize,
    limit: usize,
}

impl StoreEventRing {
    pub(super) fn new(start: u64, limit: usize) -> Self {
        Self {
            events: VecDeque::new(),
            start,
            bytes: 0,
            limit,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, event: StoreEvent) {
        self.bytes += event_bytes(&event);
        self.events.push_back(event);
    }

    /// Drops the oldest events until the ring is within its limit.
    pub(super) fn evict(&mut self) {
        while self.bytes > self.limit
            && let Some(event) = self.events.pop_front()
        {
            self.bytes -= event_bytes(&event);
            self.start = event.revision;
        }
    }

    /// The value written at a revision that the ring still holds.
    pub(super) fn value(&self, revision: u64) -> Option<Bytes> {
        let event = self
            .events
            .get(self.index_after(revision.checked_sub(1)?)?)?;
        debug_assert_eq!(event.revision, revision, "one event per revision");
        event.value.clone()
    }

    /// The index of the first event after a revision.
    fn index_after(&self, revision: u64) -> Option<usize> {
        usize::try_from(revision.checked_sub(self.start)?).ok()
    }

    /// The events after a revision whose keys begin with `prefix`; `None` when the ring
    /// no longer holds all events after it.
    pub(super) fn events_after(&self, revision: u64, prefix: &str) -> Option<Vec<StoreEvent>> {
        let events = self.events.iter().skip(self.index_after(revision)?);
        Some(
            events
                .filter(|e| e.key.starts_with(prefix))
                .cloned()
                .collect(),
        )
    }
}

fn event_bytes(event: &StoreEvent) -> usize {
    let previous = event.previous.as_ref().map_or(0, |e| e.value.len());
    EVENT_OVERHEAD_BYTES + event.key.len() + event.value.as_ref().map_or(0, |v| v.len()) + previous
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, key: &str) -> StoreEvent {
        StoreEvent {
            key: key.into(),
            revision,
            value: Some(Bytes::from(revision.to_string())),
            previous: None,
        }
    }

    #[test]
    fn keeps_the_newest_within_its_bytes() {
        let mut ring = StoreEventRing::new(10, 3 * (EVENT_OVERHEAD_BYTES + 4));
        for revision in 11..=15 {
            ring.push(event(revision, if revision % 2 == 0 { "a/" } else { "b/" }));
            ring.evict();
        }
        let revisions = |after, prefix| {
            let events = ring.events_after(after, prefix)?;
            Some(events.iter().map(|e| e.revision).collect::<Vec<_>>())
        };
        assert_eq!(revisions(11, ""), None);
        assert_eq!(revisions(12, ""), Some(vec![13, 14, 15]));
        assert_eq!(revisions(12, "b/"), Some(vec![13, 15]));
        assert_eq!(revisions(15, ""), Some(vec![]));
        let present = (10..=16).map(|revision| ring.value(revision).is_some());
        let expected = [false, false, false, true, true, true, false];
        assert!(present.eq(expected));
        assert_eq!(ring.value(14).unwrap(), "14");
    }
}
