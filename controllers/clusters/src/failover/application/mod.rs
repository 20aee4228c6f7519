//! Application failover: evicts a workload that stays unhealthy for longer than its
//! policy tolerates.
//!
//! Karmada: `pkg/controllers/applicationfailover`.

mod controller;
mod reconcile;

pub(super) use controller::ApplicationFailoverController;

#[cfg(test)]
mod tests;
