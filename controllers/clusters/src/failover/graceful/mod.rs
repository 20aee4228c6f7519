//! Graceful eviction: a task ends when the replacements of an evicted workload are
//! healthy or its time is up; the old workload is removed with its task.
//!
//! Karmada: `pkg/controllers/gracefuleviction`.

mod decide;
mod shell;

pub(super) use decide::{all_healthy, stamp};
pub(super) use shell::{Controller, until};

#[cfg(test)]
mod tests;
