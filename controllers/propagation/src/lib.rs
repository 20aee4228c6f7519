//! Propagates templates to member clusters: a policy claims a template, a binding selects its
//! clusters, a Work per cluster holds the manifest, and the execution controller applies the
//! manifest in the member.
//!
//! template + policy ──[`detector`]──► binding ──[`binding`] + [`overrides`]──► Works ──[`execution`]──► objects in members
//!
//! [`dependencies`] propagates the objects that a template refers to. The controllers for
//! namespaces, [`quotas`] and impersonation create Works without a binding; [`rebalancer`] triggers
//! a new scheduling of bindings on request.
//!
//! Invariants: pure functions compute what a template, a policy or an observed object leads to; a
//! controller writes only differences, so that a restart writes nothing. A slow or dead cluster
//! does not delay another, because each cluster has its own execution workers.
//!
//! Entry points: [`start`], [`PropagationContext`], [`MemberAccess`]; [`simulation`] computes what
//! a policy would do without writing anything.

mod access;
mod binding;
mod dependencies;
mod detector;
#[cfg(test)]
mod echo_tests;
mod error;
mod execution;
mod figures;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod host_tests;
mod impersonation;
mod kinds;
mod manifest_memory;
mod meta;
mod namespaces;
mod overrides;
pub mod plan;
mod quota;
mod rebalancer;
mod run;
mod templates;
mod works;

pub use access::{MemberAccess, OnConnect, OnObject};
pub use run::{Deps, Options, Reach, start};
