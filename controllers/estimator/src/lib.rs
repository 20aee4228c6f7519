//! Accurate estimators: how many replicas, or sets of components, fit on a cluster by its
//! nodes, where the scheduler otherwise knows only totals.
//!
//! request, clusters ──► [`AccurateEstimator`] ──► the cluster's own estimator (gRPC), if
//! one is deployed; else an estimate by its nodes and quotas ──► estimates
//!
//! binding with replicas that are not ready ──► [`Descheduler`] ──► replicas that the cluster's
//! scheduler cannot place are taken from the cluster
//!
//! request of a scheduler (gRPC) ──► [`EstimatorServer`] beside a member ──► the same local estimate
//!
//! Invariants: local estimates are pure. A slow cluster delays a caller no longer than the
//! timeout, and does not delay the estimates of other clusters. Connections exist before
//! the first request.
//!
//! Entry points: [`AccurateEstimator`], [`Descheduler`], [`EstimatorOptions`], [`EstimatorServer`].

mod accurate_estimator;
mod descheduler;
mod descheduling_result;
mod estimator_cache;
mod grpc_client;
mod local_estimate;
mod metrics;
mod node_claim;
mod node_resource;
mod options;
mod protobuf;
mod requirements_decoding;
mod resource_quota;
mod server;
mod server_tls;
mod service_address;
mod tls;
mod unschedulable_replica_estimator;
mod unschedulable_replicas;

#[cfg(test)]
mod tests;

pub use accurate_estimator::AccurateEstimator;
pub use descheduler::{Descheduler, DeschedulerOptions, DeschedulerSettings};
pub use estimator_cache::EstimatorCache;
pub use options::EstimatorOptions;
pub use server::{EstimatorServer, EstimatorServerOptions};
pub use server_tls::EstimatorTlsServerConfig;
pub use tls::EstimatorTlsClientConfig;

/// The estimate if nothing limits it.
const UNBOUNDED_REPLICAS: i64 = i32::MAX as i64;
