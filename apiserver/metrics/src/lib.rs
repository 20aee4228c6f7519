//! Prometheus metrics for all crates; no other crate uses the prometheus crate directly.
//!
//! crate ──name, labels──► [`MetricsRegistry`] ──handle──► crate; `/metrics` ──► [`encode_text`]
//!
//! Metrics of one server (its requests, its store) are registered with the registry of
//! that server; metrics that a process has once (controllers, clients of other servers)
//! with [`process_registry`].
//!
//! Invariants: a handle is resolved once and kept; an update is a few atomic operations
//! without a lock. Numbers that other code counts already are collected at each scrape
//! ([`MetricsRegistry::register_callback`]) and cost nothing until then. Label values are
//! from bounded sets (kinds, verbs, clusters), never from the text of a request.
//!
//! Entry points: [`MetricsRegistry`], [`process_registry`], [`MetricVec`],
//! [`ResultHistograms`], [`encode_text`].

mod callback;
mod metric_vec;
mod registry;
mod result_histograms;

pub use callback::{CallbackMetricDesc, CallbackMetricType, CallbackMetricWriter};
pub use metric_vec::{MetricVec, MetricVecElement};
pub use prometheus::{Gauge as FloatGauge, Histogram, IntCounter as Counter, IntGauge as Gauge};
pub use registry::{MetricsRegistry, encode_text, exponential_buckets, process_registry};
pub use result_histograms::ResultHistograms;
