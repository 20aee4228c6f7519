//! What to register, and how.

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

/// What the agent's Deployment is made of.
#[derive(Clone, Debug)]
pub struct AgentDeployment {
    pub image: String,
    pub replicas: u8,
    /// Flags of the agent beside those of the registration.
    pub flags: Vec<String>,
}
