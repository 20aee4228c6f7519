//! What a kube-controller-manager does for a control plane that runs no
//! workloads: garbage collection, emptying of namespaces, service accounts and
//! their tokens, conditions of custom resource definitions.
//!
//! informers ──► decision (pure) ──► writes through `client::Api`
//!
//! Invariants: nothing is collected before every kind has been listed, and never
//! without asking for the owner itself. What cannot be discovered is left alone.
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
