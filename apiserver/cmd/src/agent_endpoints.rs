//! The flags of the agent's metrics and health probes, as karmada-agent has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use client::TaskGroup;
use flotilla_http::{BindAddress, LOOPBACK_METRICS, ProbeEndpoint, serve_probes};

#[derive(Args)]
#[command(next_help_heading = "Metrics and health probe flags")]
pub(crate) struct AgentEndpointArgs {
    /// The TCP address that the agent should bind to for serving prometheus metrics (e.g.
    /// 127.0.0.1:8080, :8080). It can be set to "0" to disable the metrics serving. They are
    /// served without TLS to everyone who reaches the address.
    #[arg(long, value_name = "ADDRESS", default_value = LOOPBACK_METRICS, value_parser = BindAddress::parse)]
    metrics_bind_address: BindAddress,
    /// The TCP address that the agent should bind to for serving health probes (e.g.
    /// 127.0.0.1:10357, :10357). It can be set to "0" to disable serving the health probe.
    #[arg(long, value_name = "ADDRESS", default_value = ":10357", value_parser = BindAddress::parse)]
    health_probe_bind_address: BindAddress,
}

/// Whether the controllers of the agent run. Clones share one value.
#[derive(Clone, Default)]
pub(crate) struct AgentReadiness(Arc<AtomicBool>);

impl AgentReadiness {
    pub(crate) fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }
}

impl AgentEndpointArgs {
    /// Listens and serves until `tasks` are stopped.
    pub(crate) async fn serve(
        &self,
        readiness: &AgentReadiness,
        tasks: &TaskGroup,
    ) -> anyhow::Result<()> {
        let health = ProbeEndpoint::Health(Arc::clone(&readiness.0));
        for (address, endpoint) in [
            (self.metrics_bind_address, ProbeEndpoint::Metrics),
            (self.health_probe_bind_address, health),
        ] {
            if let Some(listener) = address.bind().await? {
                serve_probes(listener, endpoint, tasks);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct AgentCommand {
        #[command(flatten)]
        endpoints: AgentEndpointArgs,
    }

    #[test]
    fn metrics_are_served_on_loopback_unless_told() {
        let metrics = |flags: &[&str]| {
            let line = ["agent"].iter().chain(flags);
            AgentCommand::parse_from(line)
                .endpoints
                .metrics_bind_address
        };
        let loopback = BindAddress::Address(([127, 0, 0, 1], 8080).into());
        assert_eq!(metrics(&[]), loopback);
        let everywhere = BindAddress::Port(8080);
        assert_eq!(metrics(&["--metrics-bind-address=:8080"]), everywhere);
    }
}
