//! Admission: mutates and validates objects before they are stored. One file per kind,
//! or per few kinds with shared rules. What Karmada does in webhooks happens here, in
//! process.
//!
//! write ──► [`AdmissionChain::mutate`] ──► schema, [`metadata`], [`rules`] ──► [`AdmissionChain::validate`] ──► [`AdmissionChain::charge_quota`] ──► store
//!              └ [`webhooks`] of a host                                              └ [`webhooks`]
//!
//! Invariants: rules are functions from JSON values to field errors; only the chain and
//! webhooks are asynchronous and read other objects. Mutations are idempotent. No rule
//! panics, whatever the object.
//!
//! Entry points: [`AdmissionChain`], [`DynamicAdmission`] with [`webhooks`] and [`policies`],
//! [`AdmissionAttributes`], [`metadata`], [`rules`].

pub mod agent_restriction;
mod attributes;
mod audit_annotations;
mod binding;
mod builtin;
mod certificate_approval;
mod chain;
mod cluster;
mod cluster_affinity;
mod cluster_profile;
mod cluster_taint_policy;
mod default_classes;
pub mod deletion_protection;
mod dynamic_admission;
mod equivalent_versions;
mod expressions;
mod federated_quota;
mod federated_resources;
mod federated_type_config;
mod interpreter_configuration;
mod job_gate_access;
mod limit_range;
mod list_objects;
pub mod metadata;
mod namespace_lookup;
mod override_policy;
mod placement;
pub mod policies;
mod propagation_policy;
mod replica_preference;
mod resource_access;
mod resource_list;
mod resource_quota;
mod resource_registry;
mod rollout_gates;
mod rollout_policy;
mod rollout_replicas;
mod rollout_requests;
mod secret_access;
mod taints;
mod unstructured;
mod url;
mod webhook_fields;
pub mod webhooks;

pub use attributes::{
    AdmissionAttributes, AdmissionOperation, OperationOptions, RequestedWriteOptions,
};
pub use audit_annotations::AuditAnnotations;
pub use builtin::{
    flow_control_bootstrap_objects, replaces_schema_error, validate_builtin as rules,
};
pub use certificate_approval::SignerAuthorizer;
pub use chain::{AdmissionChain, AdmissionChainOptions, QuotaCharges};
pub use dynamic_admission::DynamicAdmission;
pub use expressions::ExpressionAuthorizer;
pub use interpreter_configuration::CustomizationScriptValidator;
pub use resource_access::{AccessedResource, ResourceAuthorizer};
