//! Admission: what the server fills into an object before it is stored, and what
//! it refuses. One file per kind, or per few kinds that share their rules; what
//! Karmada does in webhooks happens here, in the process.
//!
//! write ──► [`Chain::mutate`] ──► schema, [`metadata`], [`rules`] ──► [`Chain::validate`] ──► [`Chain::charge`] ──► store
//!              └ [`webhooks`] of a host                            └ [`webhooks`]
//!
//! Invariants: rules are functions from trees of values to field errors; only the
//! chain and webhooks are asynchronous, and only they look at other objects.
//! Applying a mutation twice changes nothing more. No rule panics, whatever the
//! tree.
//!
//! Entry points: [`Chain`], [`webhooks::Webhooks`], [`Attributes`], [`metadata`], [`rules`].

mod affinity;
mod attributes;
mod binding;
mod builtin;
mod chain;
mod cluster;
mod federated;
mod interpreter;
pub mod metadata;
mod overrides;
mod placement;
mod policy;
pub mod protection;
mod quota;
mod resources;
mod search;
mod secret_access;
mod taint_policy;
mod tree;
mod url;
pub mod webhooks;

pub use attributes::{Attributes, Operation};
pub use builtin::validate as rules;
pub use chain::{Chain, Options};
pub use interpreter::Compile;
pub use quota::enforce::Charge;
pub use secret_access::SecretAuthorizer;
