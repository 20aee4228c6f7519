//! The controller of CronFederatedHPA, which scales a target at scheduled times.
//!
//! Each object has one executor with the next time of each rule. Executions that were due while no
//! controller ran are not made up for. Source: Karmada's `pkg/controllers/cronfederatedhpa`.

mod controller;
mod executor;
mod history;
mod scaling;
#[cfg(test)]
mod tests;

pub(crate) use controller::CronFederatedHpaController;
