//! The aggregated server: Flotilla behind another API server, the *host*. The host
//! authenticates and authorizes, stores namespaces, secrets and events, and proxies
//! requests for Flotilla's groups to this process, which registers APIServices there.
//!
//! host ──► certificate, trust, namespaces ──► listener ──► ready ──► [`api_services`]
//!
//! Until the server has read everything that it needs, and whenever the store cannot be
//! reached, it answers 503 instead of 404, so that the host's garbage collector deletes
//! nothing by mistake.

mod agent_restriction;
mod api_services;
mod deletion_protection;
mod etcd_certificates;
mod group_versions;
mod host_admission;
mod host_crds;
mod host_delegation;
mod host_namespaces;
mod host_objects;
mod host_policies;
mod host_requests;
mod host_secret;
mod server;
mod serving_certificate;

pub(crate) use group_versions::MetricsApiServicePolicy;
pub(crate) use host_objects::ApiServiceTarget;
pub(crate) use server::{AggregatedServer, AggregatedServerOptions};
