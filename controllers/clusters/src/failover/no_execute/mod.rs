//! The NoExecute taint manager: evicts bindings that do not tolerate a NoExecute taint,
//! one after another at a limited rate.
//!
//! Karmada: `pkg/controllers/cluster/{taint_manager,eviction_worker}.go`.

mod manager;
mod pending_evictions;
mod reconcile;

pub(super) use manager::NoExecuteTaintManager;

#[cfg(test)]
mod tests;
