//! The condition AgentTunnel, by which an agent reports whether users reach its member through it.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, InvolvedObject, ResourcePath, TaskGroup};
use flotilla_runtime::{EventRecorder, StatusWriter};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::AGENT_TUNNEL_CONDITION;
use machinery::time::{Clock, rfc3339_seconds};
use members::AgentTunnelState;
use tokio::sync::watch;

use crate::condition::ConditionUpdate;

/// A tunnel that is lost and opened again within this time is not reported.
const LOSS_TOLERANCE: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const CONFLICT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Reports the tunnels of an agent in the status of its Cluster.
pub struct AgentTunnelReporter {
    pub control: Arc<dyn Api>,
    pub cluster: String,
    pub recorder: EventRecorder,
    pub clock: Arc<dyn Clock>,
}

impl AgentTunnelReporter {
    /// Reports each change of `state` until `tasks` stop; without one, that the agent opens no
    /// tunnels.
    pub fn run(self, state: Option<watch::Receiver<AgentTunnelState>>, tasks: &TaskGroup) {
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let report = async {
                match state {
                    Some(state) => self.follow(state).await,
                    None => self.write_until_done(&disabled()).await,
                }
            };
            shutdown.run_until_triggered(report).await;
        });
    }

    async fn follow(&self, mut state: watch::Receiver<AgentTunnelState>) {
        loop {
            let open = state.wait_for(|state| state.replicas > 0);
            if let Ok(Err(_)) = tokio::time::timeout(LOSS_TOLERANCE, open).await {
                return;
            }
            let condition = tunnel_condition(&state.borrow_and_update());
            tokio::select! {
                () = self.write_until_done(&condition) => {}
                Ok(()) = state.changed() => continue,
            }
            // Errors of further attempts change the state, but not the condition.
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    async fn write_until_done(&self, condition: &ConditionUpdate) {
        while let Err(error) = self.write(condition).await {
            tracing::debug!(%error, "the condition of tunnels was not written");
            // At its start the agent writes the status of its Cluster, too.
            let delay = match error.is_conflict() {
                true => CONFLICT_RETRY_INTERVAL,
                false => RETRY_INTERVAL,
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// By an update, since agents may not patch the status of their Cluster.
    async fn write(&self, condition: &ConditionUpdate) -> Result<(), Error> {
        let at = ResourcePath::object(&CLUSTERS, "", &self.cluster);
        let object = self.control.get(at).await?;
        let view = object.decode::<Cluster>()?;
        let current = view.condition(AGENT_TUNNEL_CONDITION);
        let status = current.map(|c| &*c.status);
        // The errors of failed attempts vary: the first one stays.
        let changed = current.is_none_or(|c| {
            (&*c.status, &*c.reason) != (condition.status, condition.reason)
                || condition.is_true() && c.message != condition.message
        });
        let mut updated = object.value()?["status"].take();
        let now = rfc3339_seconds(self.clock.now());
        condition.set_in(&mut updated["conditions"], AGENT_TUNNEL_CONDITION, &now);
        let writer = StatusWriter::new(&*self.control, "agent-tunnels");
        let updated = changed.then_some(updated);
        let written = writer.update(&CLUSTERS, &object, updated).await?;
        if written.is_some() && status != Some(condition.status) {
            let about = InvolvedObject::from_object(&object);
            let (reason, message) = (condition.reason, condition.message.clone());
            match condition.is_true() {
                true => self.recorder.normal(&about, reason, message),
                false => self.recorder.warning(&about, reason, message),
            }
        }
        Ok(())
    }
}

fn disabled() -> ConditionUpdate {
    let message = "the agent opens no tunnels: --enable-tunnel=false";
    ConditionUpdate::new("False", "AgentTunnelDisabled", message)
}

fn tunnel_condition(state: &AgentTunnelState) -> ConditionUpdate {
    match (state.replicas, &*state.error) {
        (0, "") => {
            let message = "the agent has no tunnel to the control plane";
            ConditionUpdate::new("False", "NoAgentTunnel", message)
        }
        (0, error) => {
            let message = format!("the agent has no tunnel to the control plane: {error}");
            ConditionUpdate::new("False", "NoAgentTunnel", message)
        }
        (replicas, _) => {
            let plural = if replicas == 1 { "" } else { "s" };
            let message = format!("the agent has tunnels to {replicas} replica{plural}");
            ConditionUpdate::new("True", "AgentTunnelOpen", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_count_replicas_and_name_the_error() {
        let condition = |replicas, error: &str| {
            let error = error.to_owned();
            let update = tunnel_condition(&AgentTunnelState { replicas, error });
            format!("{} {}: {}", update.status, update.reason, update.message)
        };
        assert_eq!(
            condition(2, ""),
            "True AgentTunnelOpen: the agent has tunnels to 2 replicas"
        );
        assert_eq!(
            condition(0, "404"),
            "False NoAgentTunnel: the agent has no tunnel to the control plane: 404"
        );
    }
}
