//! The basic types of the Kubernetes API for every other crate: names of resources,
//! objects and their metadata, selectors, quantities, time and `Status` errors.
//!
//! Invariants: no I/O, no async runtime, and time is an argument (only
//! [`time::SystemClock`] reads the clock). Nothing here knows a kind by name, and an
//! object keeps no parsed JSON tree.
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
