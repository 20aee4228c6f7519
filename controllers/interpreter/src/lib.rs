//! The resource interpreter: tells the controllers how many replicas a template asks for and what one
//! needs, whether an object is healthy, what it depends on, which part of its status is collected, and
//! how the statuses of all clusters are aggregated.
//!
//! object ──► [`Interpreter`] ──► Lua script of a ResourceInterpreterCustomization ([`lua`]), else [`webhook`], else built-in rule ──► decision
//!
//! Rules are pure and synchronous: they do no I/O and read no clock (time is an argument). Only the
//! interface is asynchronous, because scripts and webhooks run elsewhere. The caller passes in the
//! HTTP client for webhooks ([`WebhookDeps`]). Only [`native`], [`pod_template`], [`dependencies`]
//! and [`thirdparty`] branch on the kind of an object.
//!
//! Entry point: [`Interpreter`].

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
