//! The Kubernetes API over HTTPS: listener, filters, routing, negotiation,
//! discovery and streaming.
//!
//! TLS ──► [`server`](Server) ──► layers ──► filters (app) ──► requestinfo ──► resource | documents | health ──► registry ──► reply | watch ──► [`Body`]
//!
//! Invariants: no kind is known by name; what is served comes from the resource
//! table. No reply is built in one buffer when it can be spliced from shared
//! bytes. Every connection is a task that is joined. Bodies, headers, requests in
//! flight and time are bounded.
//!
//! Entry points: [`Server`], [`Options`], [`creators()`], [`Connect`],
//! [`ClusterProxy`], [`Check`].

mod app;
mod body;
mod connect;
mod creators;
mod decode;
mod discovery;
mod documents;
mod ending;
mod health;
mod layers;
mod metrics;
mod negotiation;
mod options;
mod proxy;
mod reply;
mod requestinfo;
mod resource;
mod review;
mod server;
mod table;
mod version;
mod watch;

#[cfg(test)]
mod tests;

pub use body::Body;
pub use connect::{Connect, Connection, Connectors, Tell, Tellers};
pub use creators::creators;
pub use health::{Check, Probe};
pub use options::{Options, Server};
pub use proxy::{CLUSTER_PROXY, ClusterProxy};
pub use review::{Webhook, Webhooks};
pub use version::Version;
