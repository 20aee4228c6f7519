//! Controllers of kube-controller-manager for a control plane that runs no workloads:
//! garbage collection, namespace deletion, service accounts and their tokens, the authorities
//! that extension API servers trust, aggregated
//! ClusterRoles, certificate requests, the usage of ResourceQuotas, the status of
//! PodDisruptionBudgets and ValidatingAdmissionPolicies, conditions of
//! CustomResourceDefinitions, the deletion of finished Jobs.
//!
//! informers ──► decision (pure) ──► writes through `client::Api`
//!
//! Invariants: nothing is collected before every kind has been listed, and never without
//! reading the owner from the server. Resources that discovery does not report are ignored.
//!
//! Entry points: [`start`]; [`kubernetes_service`], which every server runs, as kube-apiserver does.

mod certificate_signing_requests;
mod cluster_info;
mod cluster_role_aggregation;
mod custom_resource_definitions;
mod definition_index;
mod deletable_resources;
mod disruption;
mod extension_authentication;
mod garbage_collector;
pub mod kubernetes_service;
mod namespace_deletion;
mod owner_graph;
mod resource_quotas;
mod service_account_tokens;
mod service_accounts;
mod shutdown_waits;
mod start;
mod token_cleaner;
mod ttl_after_finished;
mod validating_policy_status;

#[cfg(test)]
mod tests;

pub use certificate_signing_requests::{CertificateSigner, CertificateToSign};
pub use service_account_tokens::TokenIssuer;
pub use start::{KubeControllersOptions, start};
pub use validating_policy_status::PolicyTypeChecker;
