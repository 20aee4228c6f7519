//! Leader election between the agents of a cluster: one executes its Works and keeps its tunnels,
//! the others wait.
//!
//! The lease is in the control plane, because agents that do not reach it can do nothing.

use clap::Args;
use flotilla_runtime::LeaderElector;

use crate::leader_election::{LeaseTimesArgs, leader_elector};

/// The leader election flags of karmada-agent.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election flags")]
pub(crate) struct AgentLeaderElectionArgs {
    /// Start a leader election client and gain leadership before executing the main loop. Enable
    /// this when running more than one agent for a cluster.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// The namespace of resource object in the control plane that is used for locking during
    /// leader election.
    #[arg(long, value_name = "NAMESPACE", default_value = "karmada-system")]
    leader_elect_resource_namespace: String,
    #[command(flatten)]
    times: LeaseTimesArgs,
}

impl AgentLeaderElectionArgs {
    /// The election between the agents of a cluster; `None` without it.
    pub(crate) fn election(&self, cluster: &str) -> anyhow::Result<Option<LeaderElector>> {
        if !self.leader_elect {
            return Ok(None);
        }
        let name = format!("karmada-agent-{cluster}");
        leader_elector(&self.times, &self.leader_elect_resource_namespace, &name).map(Some)
    }
}
