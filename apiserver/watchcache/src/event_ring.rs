//! The ring of the recent events of one resource, oldest first. Pure; the caller bounds it
//! with [`WatchEventRing::evict`].

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::WatchCacheEvent;

#[derive(Default)]
pub(crate) struct WatchEventRing {
    events: VecDeque<Arc<WatchCacheEvent>>,
    /// The position of the oldest event. Positions count events and never repeat.
    first: u64,
    /// The ring has all events of greater revisions.
    floor: u64,
}

impl WatchEventRing {
    /// Empties the ring at a revision, at which the resource was listed.
    pub(crate) fn reset(&mut self, revision: u64) {
        self.first = self.head();
        self.events.clear();
        self.floor = revision;
    }

    /// Empties the ring and continues with the positions of another ring.
    pub(crate) fn reset_at(&mut self, position: u64) {
        self.events.clear();
        self.first = position;
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The position of the next event.
    pub(crate) fn head(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(crate) fn push(&mut self, event: Arc<WatchCacheEvent>) {
        self.events.push_back(event);
    }

    /// Drops all events of the oldest revision. Returns the freed bytes.
    pub(crate) fn evict(&mut self) -> usize {
        let mut freed = 0;
        let Some(oldest) = self.events.front().map(|e| e.revision) else {
            return 0;
        };
        while self.events.front().is_some_and(|e| e.revision == oldest) {
            if let Some(event) = self.events.pop_front() {
                freed += event.weight_bytes();
                self.first += 1;
            }
        }
        self.floor = oldest;
        freed
    }

    pub(crate) fn get(&self, position: u64) -> Option<&Arc<WatchCacheEvent>> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.events.get(index)
    }

    /// The position of the first event newer than a revision; `None` when the ring may
    /// have dropped such events.
    pub(crate) fn position_after(&self, revision: u64) -> Option<u64> {
        (revision >= self.floor)
            .then(|| self.first + self.events.partition_point(|e| e.revision <= revision) as u64)
    }

    /// Events newer than `low` up to `high`, newest first.
    pub(crate) fn events_between(
        &self,
        low: u64,
        high: u64,
    ) -> impl Iterator<Item = &Arc<WatchCacheEvent>> {
        self.events
            .iter()
            .rev()
            .skip_while(move |e| e.revision > high)
            .take_while(move |e| e.revision > low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(revisions: &[u64]) -> WatchEventRing {
        let mut ring = WatchEventRing::default();
        ring.reset(10);
        for revision in revisions {
            ring.push(Arc::new(WatchCacheEvent::new(
                *revision,
                "/r/a".into(),
                None,
                None,
                Arc::default(),
            )));
        }
        ring
    }

    #[test]
    fn positions_follow_revisions() {
        let mut ring = ring(&[12, 15, 15, 19]);
        let check = |ring: &WatchEventRing, table: &[(u64, Option<u64>)]| {
            for (revision, position) in table {
                assert_eq!(
                    ring.position_after(*revision),
                    *position,
                    "after {revision}"
                );
            }
        };
        check(
            &ring,
            &[
                (9, None),
                (10, Some(0)),
                (12, Some(1)),
                (14, Some(1)),
                (15, Some(3)),
                (19, Some(4)),
                (99, Some(4)),
            ],
        );
        assert!(ring.evict() > 0);
        assert!(
            ring.evict() > 0,
            "both events of revision 15 are dropped together"
        );
        check(
            &ring,
            &[(12, None), (14, None), (15, Some(3)), (19, Some(4))],
        );
        assert_eq!((ring.first(), ring.floor(), ring.head()), (3, 15, 4));
        assert!(ring.get(2).is_none() && ring.get(4).is_none());
        let newer: Vec<u64> = ring.events_between(15, 99).map(|e| e.revision).collect();
        assert_eq!(newer, [19]);
    }
}
