//! The way back: what objects in member clusters report travels to their works,
//! from there to the binding, and in sum to the template.
//!
//! object in a member ──[`work`]──► Work status ──[`binding`]──► binding status, template status
//!
//! Invariants: what is reported is decided in pure functions of objects; a status
//! is written only where it differs, guarded by the revision that was read, so that
//! a restart writes nothing; what follows a write closely is gathered into the next.
//! Spec and metadata are never written here. A member that is slow or gone leaves
//! the statuses of its works as they are.
//!
//! Entry points: [`start`], [`Deps`]; alone: [`work::start`] (beside a member in
//! pull mode), [`binding::start`].

mod access;
pub mod binding;
mod deps;
mod facts;
mod failure;
mod mapper;
#[cfg(test)]
mod tests;
pub mod work;
mod written;

pub use access::{MemberStatus, OnConnect, OnObject};
pub use deps::{Deps, start};
