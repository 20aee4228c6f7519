//! The cluster controller: execution space, taints, finalizer and deletion of a Cluster,
//! and the health of clusters in pull mode.
//!
//! Karmada: `pkg/controllers/cluster/cluster_controller.go`.

mod decide;
mod health;
mod monitor;
mod shell;

use crate::bindings::Bindings;
use crate::start::Deps;

pub(crate) use decide::taints_told;

pub(crate) fn start(deps: &Deps, bindings: &Bindings) {
    shell::Controller::start(deps, bindings);
    monitor::Monitor::start(deps);
}

#[cfg(test)]
mod tests;
