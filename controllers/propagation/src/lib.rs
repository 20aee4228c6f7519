//! Carrying templates to the clusters: a policy claims a template, a binding says
//! where it goes, a work per cluster says what goes there, and the object in the
//! member cluster is made so.
//!
//! template + policy ──[`detector`]──► binding ──[`binding`] + [`overrides`]──► works ──[`execution`]──► objects in members
//!
//! What a template refers to follows it ([`dependencies`]). Namespaces, shares of quotas
//! ([`quota`]) and rights of impersonators become works without a binding; a binding is
//! placed anew where somebody asks for it ([`rebalancer`]).
//!
//! Invariants: what a template, a policy or an observed object leads to is decided
//! in pure functions; a shell writes only where something differs, so that a restart
//! writes nothing. One cluster that is slow or dead does not delay another: works are
//! carried out by workers of their own cluster.
//!
//! Entry points: [`start`], [`Deps`], [`MemberAccess`]; [`plan`] for who asks what would be.

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
