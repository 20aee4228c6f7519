//! The vocabulary of the Kubernetes API that every other crate speaks: names of
//! resources, the head of an object, selectors, quantities, time and `Status`
//! errors.
//!
//! bytes of an object ──► [`Object`] (head + shared bytes) ──► everyone
//!
//! Invariants: no I/O, no clock (time is an argument), no async runtime. Nothing
//! here knows a kind by name, and no parsed JSON tree is kept beside an object.
//!
//! Entry points: [`Object`], [`Gvr`], [`Gvk`], [`Status`].

pub mod duration;
pub mod failures;
pub mod fields;
pub mod names;
pub mod object;
pub mod quantity;
pub mod selector;
mod shared;
pub mod status;
pub mod time;
pub mod user;
mod views;

pub use failures::FailureLog;
pub use fields::FieldError;
pub use names::{Gvk, Gvr};
pub use object::{Head, Object, Owner};
pub use quantity::Quantity;
pub use selector::{FieldSelector, LabelSelector};
pub use status::{Cause, Details, Status};
pub use user::UserInfo;
