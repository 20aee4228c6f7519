//! Wakes the watches of the embedded engine, which it keeps in one group per prefix.
//!
//! A write wakes the groups whose keys changed. The others are woken by the announcements
//! of progress, which are less frequent, since a write must not cost a wake-up per kind.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::StoreEvent;

#[derive(Debug)]
struct WatchGroup {
    prefix: String,
    /// The revision up to which the watches of the group should read.
    wake: watch::Sender<u64>,
    /// The newest change below the prefix, or the revision at which the group was created.
    last_change: u64,
}

#[derive(Debug, Default)]
struct WatchGroups {
    groups: Vec<WatchGroup>,
    /// Every group includes the changes up to this revision.
    published: u64,
}

#[derive(Debug)]
pub(super) struct WatchNotifier(Mutex<WatchGroups>);

impl WatchNotifier {
    pub(super) fn new(revision: u64) -> Self {
        Self(Mutex::new(WatchGroups {
            groups: Vec::new(),
            published: revision,
        }))
    }

    /// The revision up to which a watch of this prefix can advance from `after` without
    /// reading events, because nothing changed below the prefix.
    pub(super) fn unchanged_until(&self, prefix: &str, after: u64) -> Option<u64> {
        let state = self.0.lock();
        let group = state.groups.iter().find(|g| g.prefix == prefix)?;
        (group.last_change <= after && after < state.published).then_some(state.published)
    }

    /// Joins the group of a prefix. `revision` is called under the lock, while no wake-up
    /// is sent, so a change is either older than the returned revision or wakes the new
    /// member.
    pub(super) fn subscribe(
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
        groups.push(WatchGroup {
            prefix: prefix.to_owned(),
            wake,
            last_change: revision(),
        });
        member
    }

    /// The newest change that the watches of exactly this prefix receive; `None` without
    /// a watch.
    pub(super) fn last_change(&self, prefix: &str) -> Option<u64> {
        let state = self.0.lock();
        let group = state.groups.iter().find(|g| g.prefix == prefix)?;
        (group.wake.receiver_count() > 0).then_some(group.last_change)
    }

    /// Publishes events under one lock: `publish_state` makes them readable, then the
    /// groups are updated. No group can be read or joined in between, so that a client
    /// that received an event finds [`WatchNotifier::last_change`] of every prefix at
    /// least as new. Returns whether some groups were not woken.
    pub(super) fn publish(&self, events: &[StoreEvent], publish_state: impl FnOnce()) -> bool {
        let mut state = self.0.lock();
        publish_state();
        let Some(last) = events.last() else {
            return false;
        };
        let mut has_lagging = false;
        state.published = last.revision;
        for group in &mut state.groups {
            let hit = events
                .iter()
                .rev()
                .find(|e| e.key.starts_with(&group.prefix));
            if let Some(event) = hit {
                group.last_change = event.revision;
                group.wake.send_replace(last.revision);
            } else {
                has_lagging = true;
            }
        }
        has_lagging
    }

    /// Replaces the state with `replace_state` and treats every prefix as changed at
    /// `revision`.
    pub(super) fn reset(&self, revision: u64, replace_state: impl FnOnce()) {
        let mut state = self.0.lock();
        replace_state();
        state.published = revision;
        for group in &mut state.groups {
            group.last_change = revision;
            group.wake.send_replace(revision);
        }
    }

    /// Wakes every watch that has not yet read up to `revision`.
    pub(super) fn announce_progress(&self, revision: u64) {
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

    /// Ends all watches.
    pub(super) fn close(&self) {
        self.0.lock().groups.clear();
    }
}
