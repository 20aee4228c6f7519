//! What a resource means: how many replicas it wants and what one needs, whether
//! it is healthy, what it refers to, which part of its status travels home, and what
//! its owner in the control plane shows for all clusters together.
//!
//! object ──► [`Interpreter`] ──► script of a customization ([`lua`]), else [`webhook`], else built-in rule ──► decision
//!
//! Invariants: rules are pure and synchronous, no I/O, no clock (time is an argument);
//! only the interface is asynchronous, since a level may decide elsewhere. The network is
//! handed in ([`Outside`]). Kinds are told apart only in [`native`], [`pods`], [`dependencies`] and [`wellknown`].
//!
//! Entry points: [`Interpreter`].

mod accounts;
mod bare_pods;
mod built_in;
mod changed;
mod cron;
mod customizations;
mod customized;
mod dependencies;
mod empties;
mod followed;
#[cfg(test)]
mod fuzz;
mod interpreter;
mod jobs;
mod lua;
mod native;
mod networking;
mod operation;
mod pods;
mod requirements;
mod returned;
#[cfg(test)]
mod rows;
mod scaling;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;
mod volumes;
mod webhook;
mod wellknown;
mod workloads;

pub use changed::Changed;
pub use interpreter::Interpreter;
pub use lua::{Limits, check};
pub use native::{Error, Replicas};
pub use operation::Operation;
pub use webhook::{Apply, Outside};
