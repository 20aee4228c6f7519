//! The lanes of a workqueue.

use client::InformerEvent;

/// How soon a key is handed out, among keys of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriorityQueueLane {
    /// A resync, or an object of an initial list.
    Low,
    /// A new object. Many are often created at once; whoever changes one thing meanwhile does not
    /// wait for all of them.
    Medium,
    /// A change or a deletion.
    High,
}

impl PriorityQueueLane {
    /// The lane for an event of an informer.
    pub fn of(change: &InformerEvent<'_>) -> Self {
        match change.old {
            _ if change.in_initial_list => Self::Low,
            None => Self::Medium,
            Some(_) => Self::High,
        }
    }
}
