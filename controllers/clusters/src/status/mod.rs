//! The cluster status controller: writes the health, version, APIs and resources of a
//! member into its Cluster's status.
//!
//! Karmada: `pkg/controllers/status/cluster_status_controller.go`,
//! `cluster_condition_cache.go`.

mod collect;
mod damping;
mod figures;
mod probe;
mod shell;
mod track;

use crate::start::Deps;

pub(crate) fn start(deps: &Deps) {
    shell::Controller::start(deps);
}

#[cfg(test)]
mod tests;
