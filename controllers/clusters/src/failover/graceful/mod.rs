//! Graceful eviction: a task ends when the replacements of an evicted workload are
//! healthy or its time is up; the old workload is removed with its task.
//!
//! Karmada: `pkg/controllers/gracefuleviction`.

mod controller;
mod reconcile;

pub(super) use controller::{GracefulEvictionController, requeue_at};
pub(super) use reconcile::{all_healthy, creation_timestamp};

#[cfg(test)]
mod tests;
