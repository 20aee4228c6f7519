//! The basic types of the Kubernetes API for every other crate: names of resources,
//! objects and their metadata, selectors, quantities, time and `Status` errors.
//!
//! Invariants: no I/O, no async runtime, and time is an argument (only
//! [`time::SystemClock`] reads the clock). Nothing here knows a kind by name, and an
//! object keeps no parsed JSON tree.
//!
//! Entry points: [`Object`], [`Gvr`], [`Gvk`], [`Status`].

pub mod agent_user;
pub mod backoff;
pub mod base_group;
pub mod bootstrap_token;
pub mod bounded_text;
pub mod certificate_request;
pub mod conditions;
mod decode_cache;
pub mod delta_codec;
pub mod duration;
pub mod failure_log_limiter;
pub mod field_error;
mod field_text;
pub mod go_format;
pub mod go_numbers;
pub mod go_pattern;
pub mod json;
pub mod json_errors;
pub mod managed_fields_text;
pub mod names;
pub mod object;
mod object_meta;
pub mod quantity;
pub mod selector;
mod shared_bytes;
mod similar_objects;
pub mod status;
pub mod time;
pub mod tree_memory;
mod uncached_metadata;
pub mod user;
pub mod value_visitor;
pub mod yaml;

pub use backoff::ExponentialBackoff;
pub use failure_log_limiter::FailureLogLimiter;
pub use field_error::{FieldError, FieldErrorType};
pub use names::{Gvk, Gvr};
pub use object::{Object, ObjectMeta, OwnerReference};
pub use quantity::Quantity;
pub use selector::{FieldSelector, LabelSelector};
pub use similar_objects::SimilarObjects;
pub use status::{Status, StatusCause, StatusDetails};
pub use user::UserInfo;
