//! Starts the controllers that propagate templates to member clusters: a policy claims a template, a
//! binding selects its clusters, a Work per cluster holds the manifest, and the execution
//! controller applies the manifest in the member.
//!
//! template + policy ──[`detector`]──► binding ──[`binding`] + [`overrides`]──► Works ──[`execution`]──► objects in members
//!
//! [`rollout`] lets changes of templates go through their clusters in stages: the binding controller
//! then makes a Work from the revision that its cluster may have.
//! [`history`] records where templates went, and why.
//! [`dependencies`] propagates the objects that a template refers to. The controllers of
//! [`policies`] create Works without a binding, and trigger a new scheduling of bindings on request.
//!
//! Invariants: pure functions compute what a template, a policy or an observed object leads to; a
//! controller writes only differences, so that a restart writes nothing. A slow or dead cluster
//! does not delay another, because each cluster has its own execution workers.
//!
//! Entry points: [`start`] and [`PropagationOptions`]; [`start_agent`] in the agent of a pull-mode
//! cluster.

mod options;
mod start;
#[cfg(test)]
mod tests;

pub use options::{PropagationOptions, QUOTA_RESYNC_PERIOD};
pub use start::{member_writes, start, start_agent};
