//! Application failover: a copy that stays unhealthy for longer than its policy
//! tolerates is evicted.
//!
//! Karmada: `pkg/controllers/applicationfailover`.

mod decide;
mod shell;

pub(super) use shell::Controller;

#[cfg(test)]
mod tests;
