//! Who waits for what: one group per watched prefix. Enters: keys that changed, and
//! announcements of progress. Leaves: wake-ups of the feeds concerned, and of the
//! others only now and then, since a write must not cost a wake-up per kind.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::Event;

#[derive(Debug)]
struct Group {
    prefix: String,
    /// The revision up to which the feeds of the group should move.
    wake: watch::Sender<u64>,
    /// The newest change below the prefix, or where the group began.
    touched: u64,
}

#[derive(Debug, Default)]
pub(super) struct Hub {
    groups: Mutex<Vec<Group>>,
}

impl Hub {
    /// Joins the group of a prefix. `revision` is asked while no wake-up can pass,
    /// so a change is either older than its answer or wakes the new member.
    pub(super) fn register(
        &self,
        prefix: &str,
        revision: impl FnOnce() -> u64,
    ) -> watch::Receiver<u64> {
        let mut groups = self.groups.lock();
        groups.retain(|g| g.wake.receiver_count() > 0);
        if let Some(group) = groups.iter().find(|g| g.prefix == prefix) {
            return group.wake.subscribe();
        }
        let (wake, member) = watch::channel(0);
        groups.push(Group {
            prefix: prefix.to_owned(),
            wake,
            touched: revision(),
        });
        member
    }

    /// The newest change that the feeds of exactly this prefix get; `None` without
    /// a feed.
    pub(super) fn touched(&self, prefix: &str) -> Option<u64> {
        let groups = self.groups.lock();
        let group = groups.iter().find(|g| g.prefix == prefix)?;
        (group.wake.receiver_count() > 0).then_some(group.touched)
    }

    /// Wakes the feeds that get one of these events. Returns whether others exist
    /// that have not heard of the last revision.
    pub(super) fn publish(&self, events: &[Event]) -> bool {
        let Some(last) = events.last() else {
            return false;
        };
        let mut behind = false;
        for group in self.groups.lock().iter_mut() {
            let hit = events
                .iter()
                .rev()
                .find(|e| e.key.starts_with(&group.prefix));
            if let Some(event) = hit {
                group.touched = event.revision;
                group.wake.send_replace(last.revision);
            } else {
                behind = true;
            }
        }
        behind
    }

    /// Tells every feed that everything up to `revision` is there.
    pub(super) fn announce(&self, revision: u64) {
        for group in self.groups.lock().iter() {
            group.wake.send_if_modified(|wake| {
                let later = *wake < revision;
                if later {
                    *wake = revision;
                }
                later
            });
        }
    }

    /// Ends the feeds.
    pub(super) fn close(&self) {
        self.groups.lock().clear();
    }
}
