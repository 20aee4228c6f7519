//! Execution space, taints, finalizer and deletion of a Cluster; silence of
//! agents.
//!
//! Karmada: `pkg/controllers/cluster/cluster_controller.go`.

mod decide;
mod health;
mod monitor;
mod shell;

use crate::start::Deps;

pub(crate) fn start(deps: &Deps) {
    shell::Controller::start(deps);
    monitor::Monitor::start(deps);
}

#[cfg(test)]
mod tests;
