//! Registers clusters in pull mode, and unregisters them.
//!
//! Karmada: `pkg/karmadactl/{register,unregister}`. A holder of a bootstrap token obtains the
//! certificate of the user who creates the roles of agents, creates those of this agent, and
//! obtains the agent's own certificate, which goes into the member.

mod agent_certificate;
mod agent_kubeconfig;
mod certificate_rotation;
mod control_plane_objects;
mod member_objects;
mod register_cluster;
mod register_spec;
mod unregister_cluster;

pub use agent_certificate::{CertifiedKey, delete_certificate_request, request_certificate};
pub use agent_kubeconfig::{AgentKubeconfig, agent_kubeconfig};
pub use certificate_rotation::{CertificateRotationOptions, run_certificate_rotation};
pub use openapi::karmada::names::agent_user;
pub use register_cluster::{
    create_agent_roles, create_member_objects, delete_agent_roles, preflight, refuse_registered,
};
pub use register_spec::{AgentDeployment, RegisterSpec};
pub use unregister_cluster::{UnregisterReport, UnregisterSpec, unregister};

/// The user who creates the roles of agents.
pub const RBAC_GENERATOR: &str = "system:karmada:agent:rbac-generator";
/// The Deployment of the agent.
pub const AGENT_NAME: &str = member_objects::AGENT;
/// The namespace of the agent in the member.
pub const AGENT_NAMESPACE: &str = "karmada-system";
