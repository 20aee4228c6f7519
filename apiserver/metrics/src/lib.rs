//! Metrics: the one way in which every room counts.
//!
//! room ──names, labels──► [`Registry`] ──handle──► room counts; `/metrics` ──► [`text`]
//!
//! What belongs to one server (its requests, its store) is registered with the
//! registry of that server; what a process does once (controllers, clients of other
//! servers) with [`process`]. No other crate knows the library behind this one.
//!
//! Invariants: a handle is resolved once and kept; counting is a few atomic
//! additions without a lock. What somebody else counts already is read when it is
//! asked for ([`Registry::read`]) and costs nothing until then. Label values come
//! from what is known (kinds, verbs, clusters), never from a request's text.
//!
//! Entry points: [`Registry`], [`process`], [`Family`], [`Outcomes`], [`text`].

mod family;
mod outcomes;
mod read;
mod registry;

pub use family::{Family, Series};
pub use outcomes::Outcomes;
pub use prometheus::{Gauge as Amount, Histogram, IntCounter as Counter, IntGauge as Gauge};
pub use read::{Figure, Readings, Shape};
pub use registry::{Registry, exponential, process, text};
