//! Graceful eviction: tasks end when the copies that replace an evicted one are
//! healthy, or their time is up; the copy goes with its task.
//!
//! Karmada: `pkg/controllers/gracefuleviction`.

mod decide;
mod shell;

pub(super) use decide::{all_healthy, stamp};
pub(super) use shell::{Controller, until};

#[cfg(test)]
mod tests;
