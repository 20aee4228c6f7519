//! The NoExecute taint manager: evicts bindings that do not tolerate a NoExecute taint,
//! one after another at a limited rate.
//!
//! Karmada: `pkg/controllers/cluster/{taint_manager,eviction_worker}.go`.

mod decide;
mod shell;
mod waiting;

pub(super) use shell::Manager;

#[cfg(test)]
mod tests;
