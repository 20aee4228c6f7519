//! The durable record of who moved what: writes what happened to a template into its
//! TemplateHistory.
//!
//! binding, Rollout, Work before and after a write ──[`placement`], [`rollout_steps`], [`repairs`]──► entry
//! entry ──[`HistoryController`]──► pending entries of the template ──[`record`]──► TemplateHistory
//!
//! Invariants: a template that has not moved has no history, and costs a comparison of two lists
//! that are decoded anyway; no controller waits for its record; a restart writes nothing; entries
//! in memory and in an object are bounded.
//!
//! Entry point: [`HistoryController`].

mod controller;
mod field_managers;
mod metrics;
mod pending;
mod placement;
mod policy;
mod record;
mod repairs;
mod rollout_steps;

pub use controller::HistoryController;
