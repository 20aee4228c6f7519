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

mod binding;
mod dependencies;
mod detector;
#[cfg(test)]
mod end_to_end_tests;
mod error;
mod execution;
#[cfg(test)]
mod host_workload_tests;
#[cfg(test)]
mod late_watch_tests;
mod manifest_memory;
mod member_access;
mod metrics;
mod namespaces;
mod object_metadata;
mod overrides;
mod quotas;
mod rebalancer;
mod rest_mapper;
pub mod simulation;
mod startup;
mod template_informers;
mod unified_auth;
mod work_client;

pub use member_access::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
pub use startup::{ExecutionScope, Options, PropagationContext, start};
