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
struct Groups {
    groups: Vec<Group>,
    /// Every group knows of the changes up to here.
    published: u64,
}

#[derive(Debug)]
pub(super) struct Hub(Mutex<Groups>);

impl Hub {
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(Groups {
            groups: Vec::new(),
            published: revision,
        }))
    }

    /// How far a feed of this prefix may go on from `after` because nothing changed
    /// for it, without a look at any event.
    pub(super) fn quiet_until(&self, prefix: &str, after: u64) -> Option<u64> {
        let hub = self.0.lock();
        let group = hub.groups.iter().find(|g| g.prefix == prefix)?;
        (group.touched <= after && after < hub.published).then_some(hub.published)
    }

    /// Joins the group of a prefix. `revision` is asked while no wake-up can pass,
    /// so a change is either older than its answer or wakes the new member.
    pub(super) fn register(
        &self,
        prefix: &str,
        revision: impl FnOnce() -> u64,
    ) -> watch::Receiver<u64> {
        let groups = &mut self.0.lock().groups;
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
        let hub = self.0.lock();
        let group = hub.groups.iter().find(|g| g.prefix == prefix)?;
        (group.wake.receiver_count() > 0).then_some(group.touched)
    }

    /// Publishes events in one step: `publish_state` makes them readable, then the
    /// groups learn of them. No group can be asked or joined in between, so that
    /// whoever got an event from the state finds [`Hub::touched`] of every prefix at
    /// least as new. Returns whether groups exist that are not woken.
    pub(super) fn publish(&self, events: &[Event], publish_state: impl FnOnce()) -> bool {
        let mut hub = self.0.lock();
        publish_state();
        let Some(last) = events.last() else {
            return false;
        };
        let mut behind = false;
        hub.published = last.revision;
        for group in &mut hub.groups {
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

    /// After the state was replaced by `replace_state`: any prefix may have changed up to
    /// `revision`.
    pub(super) fn reset(&self, revision: u64, replace_state: impl FnOnce()) {
        let mut hub = self.0.lock();
        replace_state();
        hub.published = revision;
        for group in &mut hub.groups {
            group.touched = revision;
            group.wake.send_replace(revision);
        }
    }

    /// Tells every feed that everything up to `revision` is there.
    pub(super) fn announce(&self, revision: u64) {
        for group in &self.0.lock().groups {
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
        self.0.lock().groups.clear();
    }
}
