//! The cluster to register, and the way to register it.

/// The cluster to register in pull mode.
#[derive(Clone, Debug)]
pub struct RegisterSpec {
    pub name: String,
    /// The namespace of the cluster's Secrets in the control plane.
    pub cluster_namespace: String,
    /// The namespace of the agent in the member.
    pub agent_namespace: String,
    pub deployment: AgentDeployment,
}

/// The parts of the agent's Deployment.
#[derive(Clone, Debug)]
pub struct AgentDeployment {
    pub image: String,
    pub replicas: u8,
    /// Flags of the agent beside those of the registration.
    pub flags: Vec<String>,
}
