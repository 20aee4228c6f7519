//! How a cluster comes into the control plane's care, and how it leaves.
//!
//! Karmada: `pkg/karmadactl/{join,unjoin}`, `pkg/util/credential.go`. Progress is
//! told as short sentences; no credential is in them.

mod enter;
mod leave;
mod objects;
mod wait;

pub use enter::{JoinError, JoinSpec, Joined, join};
pub use leave::{UnjoinError, UnjoinSpec, unjoin};

/// Told what is being done.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

#[cfg(test)]
mod tests;
