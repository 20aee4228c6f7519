//! Requests the progress of watches that wait for a revision.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The revisions that callers wait for, in one group per watched prefix.
#[derive(Default)]
pub(super) struct AwaitedRevisionsByWatchPrefix(Mutex<Vec<(Arc<str>, watch::Sender<u64>)>>);

impl AwaitedRevisionsByWatchPrefix {
    pub(super) fn subscribe(&self, prefix: &Arc<str>) -> watch::Receiver<u64> {
        let mut groups = self.0.lock();
        groups.retain(|(_, group)| group.receiver_count() > 0);
        if let Some((_, group)) = groups.iter().find(|(p, _)| p == prefix) {
            return group.subscribe();
        }
        let (group, member) = watch::channel(0);
        groups.push((Arc::clone(prefix), group));
        member
    }

    /// Asks the watches of a prefix, or all, to reach a revision.
    pub(super) fn request(&self, prefix: Option<&str>, revision: u64) {
        for (group_prefix, group) in self.0.lock().iter() {
            if prefix.is_none_or(|prefix| prefix == &**group_prefix) {
                group.send_if_modified(|requested| {
                    let higher = *requested < revision;
                    *requested = revision.max(*requested);
                    higher
                });
            }
        }
    }
}
