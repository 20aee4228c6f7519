//! Application failover: evicts a workload that stays unhealthy for longer than its
//! policy tolerates.
//!
//! Karmada: `pkg/controllers/applicationfailover`.

mod decide;
mod shell;

pub(super) use shell::Controller;

#[cfg(test)]
mod tests;
