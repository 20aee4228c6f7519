//! Evaluates admission policies for the kinds that this server serves
//! (`k8s.io/apiserver/pkg/admission/plugin/policy`).
//!
//! policies, bindings ──► `policy_set` (compiled once) ──► [`PolicyDispatcher`] ──► changes, denial, warnings, audit annotations
//!
//! A policy never applies to the objects that configure admission, which could not be
//! repaired then.

mod binding;
mod definition;
mod dispatcher;
mod match_resources;
mod metrics;
mod mutating_policy;
mod mutation;
mod params;
mod policy_set;
mod type_checking;
mod validating_policy;
mod validation;

pub use dispatcher::PolicyDispatcher;
pub use params::{KindResources, PolicyParamReader};
pub use type_checking::{KindSchemas, type_check};
