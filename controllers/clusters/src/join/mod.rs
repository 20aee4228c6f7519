//! Joining clusters to the control plane, and unjoining them.
//!
//! Karmada: `pkg/karmadactl/{join,unjoin}`, `pkg/util/credential.go`. Progress is
//! reported in short sentences without credentials.

mod credentials;
mod identity;
mod join_cluster;
mod join_error;
mod join_spec;
pub(crate) mod objects;
mod preflight;
mod preflight_failure;
mod reported_secrets;
mod unjoin_cluster;
mod unjoin_report;
pub(crate) mod wait;

pub(crate) use credentials::{
    create_if_absent, obtain_member_credentials, set_secret_owners, write_credentials,
};
pub(crate) use identity::cluster_identity;
pub use join_cluster::{JoinedCluster, check_cluster_name, join};
pub use join_error::JoinError;
pub use join_spec::JoinSpec;
pub use preflight::{PreflightReport, find_other_managers, join_preflight};
pub(crate) use preflight::{agent_preflight, control_plane_id};
pub use preflight_failure::{PreflightCheck, PreflightFailure};
pub use reported_secrets::ReportedSecrets;
pub use unjoin_cluster::{UnjoinError, UnjoinSpec, unjoin};
pub(crate) use unjoin_cluster::{remove_blocking_finalizers, work_inventory};
pub use unjoin_report::UnjoinReport;

/// Called with a description of each step.
pub type ProgressCallback<'a> = &'a (dyn Fn(&str) + Sync);

#[cfg(test)]
mod tests;
