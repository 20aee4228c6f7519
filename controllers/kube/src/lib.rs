//! Controllers of kube-controller-manager for a control plane that runs no workloads:
//! garbage collection, namespace deletion, service accounts and their tokens, conditions of
//! CustomResourceDefinitions.
//!
//! informers ──► decision (pure) ──► writes through `client::Api`
//!
//! Invariants: nothing is collected before every kind has been listed, and never without
//! reading the owner from the server. Resources that discovery does not report are ignored.
//!
//! Entry points: [`start`].

mod accounts;
mod collector;
mod definitions;
mod graph;
mod namespaces;
mod resources;
mod start;
mod tokens;

#[cfg(test)]
mod tests;

pub use start::{Options, start};
pub use tokens::Issue;
