//! Flotilla behind another API server, the *host*: the host authenticates and authorizes, stores
//! namespaces, secrets and events, and proxies requests for Flotilla's groups to this process, which
//! registers APIServices there.
//!
//! host ──► certificate, trust, namespaces ──► listener ──► ready ──► [`ApiServiceController`]

pub mod agent_restriction;
mod api_service_body;
mod api_services;
pub mod deletion_protection;
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
mod serving_certificate;
mod takeover;
#[cfg(test)]
mod testing;

pub use api_services::ApiServiceController;
pub use etcd_certificates::EtcdCertificateSecretManager;
pub use group_versions::{MetricsApiServicePolicy, ServedGroupVersion, registered_versions};
pub use host_crds::AUTOMANAGED_LABEL;
pub use host_delegation::HostDelegation;
pub use host_namespaces::HostNamespaceLookup;
pub use host_objects::ApiServiceTarget;
pub use host_policies::HostPolicies;
pub use serving_certificate::ServingCertificateSecretManager;
pub use takeover::{
    MovedResource, RECORD_CONFIG_MAP, StandaloneStore, TakeoverFollower, TakeoverImporter,
    TakeoverPhase, TakeoverRecord, TakeoverReport, list_resource,
};
