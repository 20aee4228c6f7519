//! Status controllers: reflect the status of objects in member clusters to their Works,
//! and aggregate it to the binding and the template.
//!
//! object in a member ──[`work`]──► Work status ──[`binding`]──► binding status, template status
//!
//! Invariants: pure functions of objects compute every status; a status is written only
//! where it differs, guarded by the revision that was read, so that a restart writes
//! nothing; changes shortly after a write are batched into the next one. The controllers
//! never write spec or metadata. If a member is slow or gone, the status of its Works stays.
//!
//! Entry points: [`start`]; [`start_agent`] in the agent of a pull-mode cluster.

mod binding;
mod error;
mod partial_work;
mod start;
#[cfg(test)]
mod tests;
mod work;
mod write_interval;

pub use start::{start, start_agent};
