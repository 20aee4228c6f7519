//! Admission: mutates and validates objects before they are stored. One file per kind,
//! or per few kinds with shared rules. What Karmada does in webhooks happens here, in
//! process.
//!
//! write ──► [`AdmissionChain::mutate`] ──► schema, [`metadata`], [`rules`] ──► [`AdmissionChain::validate`] ──► [`AdmissionChain::charge_quota`] ──► store
//!              └ [`webhooks`] of a host                                              └ [`webhooks`]
//!
//! Invariants: rules are functions from JSON values to field errors; only the chain and
//! webhooks are asynchronous and read other objects. Mutations are idempotent. No rule
//! panics, whatever the object.
//!
//! Entry points: [`AdmissionChain`], [`webhooks::WebhookDispatcher`],
//! [`AdmissionAttributes`], [`metadata`], [`rules`].

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
