//! The remedy controller: the actions that a cluster needs because of its conditions, which
//! other programs take.
//!
//! Karmada: `pkg/controllers/remediation`.

mod controller;
mod reconcile;
#[cfg(test)]
mod tests;

pub(crate) use controller::RemedyController;
