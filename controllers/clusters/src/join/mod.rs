//! Joining clusters to the control plane, and unjoining them.
//!
//! Karmada: `pkg/karmadactl/{join,unjoin}`, `pkg/util/credential.go`. Progress is
//! reported in short sentences without credentials.

mod enter;
mod leave;
mod objects;
mod wait;

pub use enter::{JoinError, JoinSpec, Joined, join};
pub use leave::{UnjoinError, UnjoinSpec, unjoin};

/// Called with a description of each step.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

#[cfg(test)]
mod tests;
