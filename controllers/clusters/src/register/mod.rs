//! Registers clusters in pull mode, and unregisters them.
//!
//! Karmada: `pkg/karmadactl/{register,unregister}`. A holder of a bootstrap token obtains the
//! certificate of the agent, which goes into the member. The control plane creates the roles of the
//! agent when it approves the certificate; Karmada gives the holder the right to create them.

mod agent_certificate;
mod agent_kubeconfig;
mod certificate_rotation;
mod member_objects;
mod register_cluster;
mod register_spec;
mod unregister_cluster;

pub use agent_certificate::{AgentCertificateSpec, CertifiedKey, request_certificate};
pub use agent_kubeconfig::{AgentKubeconfig, agent_kubeconfig};
pub use certificate_rotation::{CertificateRotationOptions, run_certificate_rotation};
pub use register_cluster::{
    agent_objects, complete_generated_roles, create_agent_roles, create_member_objects,
    delete_agent_roles, preflight, refuse_registered,
};
pub use register_spec::{AgentDeployment, RegisterSpec};
pub use unregister_cluster::{UnregisterSpec, unregister};

/// The Deployment of the agent.
pub const AGENT_NAME: &str = member_objects::AGENT;
/// The namespace of the agent in the member.
pub const AGENT_NAMESPACE: &str = "karmada-system";
