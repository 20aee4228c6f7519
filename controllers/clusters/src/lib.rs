//! The lifecycle of member clusters in the control plane: joining and unjoining,
//! execution spaces, taints, status, and the eviction of workloads when clusters or
//! workloads fail.
//!
//! Cluster + responses of the member ──► decision (pure) ──► Cluster status, taints, finalizer
//! Cluster, Remedy ──► decision (pure) ──► remedy actions in the Cluster's status
//! lookups of a name in a member ──► condition of its Nodes ──► condition of the Cluster
//! Cluster, binding, policy ──► decision (pure) ──► eviction tasks in the binding
//!
//! Invariants: a member that does not respond delays no other. What others own in a
//! Cluster (taints, conditions) is never touched. A Cluster is removed only
//! after its execution space and after every binding scheduled to it has left it. No
//! credential is printed.
//!
//! Entry points: [`start`], [`join`], [`unjoin`], [`rename_cluster`], [`replace_cluster`].

mod agent_certificates;
mod agent_cluster;
mod agent_lease;
mod agent_tunnel_condition;
mod bindings;
mod cluster;
mod cluster_api;
mod condition;
mod credential_expiry;
mod failover;
#[cfg(test)]
mod fixture;
mod join;
mod key_and_certificate_request;
mod name_resolution;
mod options;
pub mod register;
mod remedy;
mod rename;
mod start;
mod status;
mod taint_policy;

pub use agent_cluster::{AgentClusterSpec, register_agent_cluster};
pub use agent_lease::{AGENT_VERSION_ANNOTATION, AgentLeaseOptions, run_agent_lease};
pub use agent_tunnel_condition::AgentTunnelReporter;
pub use cluster_api::{ClusterApiOptions, MemberClientFactory, start_cluster_api};
pub use failover::{FailoverOptions, NoExecuteTaintEvictionPurgeMode};
pub use join::{
    JoinError, JoinSpec, JoinedCluster, PreflightCheck, PreflightFailure, PreflightReport,
    ProgressCallback, ReportedSecrets, UnjoinError, UnjoinReport, UnjoinSpec, check_cluster_name,
    find_other_managers, join, join_preflight, unjoin,
};
pub use key_and_certificate_request::CertificateEnrollment;
pub use name_resolution::{
    ClusterNameResolutionReporter, NameLookup, NameResolutionOptions, NodeNameResolutionDetector,
};
pub use options::{
    AgentCertificateValidity, AgentRegistrationMode, ClusterControllersOptions,
    ClusterControllersSettings,
};
pub use rename::{
    RenameError, RenameReport, RenameSpec, ReplaceSpec, rename_cluster, replace_cluster,
};
pub use start::{start, start_agent};

static NAMESPACES: machinery::Gvr = machinery::Gvr::from_static("", "v1", "namespaces");
