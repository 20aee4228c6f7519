//! The taint manager: taints with the effect NoExecute evict what does not tolerate
//! them, one binding after another at a given rate.
//!
//! Karmada: `pkg/controllers/cluster/{taint_manager,eviction_worker}.go`.

mod decide;
mod shell;
mod waiting;

pub(super) use shell::Manager;

#[cfg(test)]
mod tests;
