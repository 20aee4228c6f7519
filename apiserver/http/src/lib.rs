//! Serves the Kubernetes API over HTTPS: listener, filters, routing, content
//! negotiation, discovery, streaming and the cluster proxy.
//!
//! TLS ──► secure_serving ──► response_headers ──► handler (filters) ──► requestinfo ──► resource_handlers | documents | health ──► registry ──► response_writers | watch ──► [`ServerResponseBody`]
//!
//! Invariants: no code knows a kind by name; the resource table decides what is served.
//! No response is copied into one buffer when it can be spliced from shared bytes.
//! Every connection is a task that is joined. Bodies, headers, requests in flight and
//! time are bounded.
//!
//! Entry points: [`ApiServer`], [`Options`], [`creators()`], [`SubresourceConnector`],
//! [`ClusterProxy`], [`HealthCheck`].

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
