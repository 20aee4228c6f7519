//! Asks agents for tunnels to a replica of the control plane that has started.
//!
//! Agents look for new replicas ever less often, up to once a minute, and each watches its own
//! Cluster anyway: the replica writes its name there, once, if the agent has not come by itself.

use std::time::Duration;

use client::{Api, Informer, Patch, ResourcePath, WriteOptions};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::{AGENT_TUNNEL_CONDITION, TUNNEL_REQUESTED_BY};
use serde_json::json;

use crate::agent_tunnels::AgentTunnels;

/// The time in which agents come back that lost a tunnel when this replica was stopped.
const RETURN_TIME: Duration = Duration::from_secs(3);

/// Asks the agents that keep tunnels, and have none to this replica shortly after its start.
pub(crate) async fn request_tunnels(host: &dyn Api, clusters: &Informer, tunnels: &AgentTunnels) {
    clusters.wait_for_cache_sync().await;
    tokio::time::sleep(RETURN_TIME).await;
    let clusters_without_tunnel = clusters.list_where(|object| {
        let cluster = object.decode::<Cluster>();
        cluster.is_ok_and(|c| keeps_tunnels(&c)) && !tunnels.has_tunnel(object.name())
    });
    for cluster in clusters_without_tunnel {
        let path = ResourcePath::object(&CLUSTERS, "", cluster.name());
        let annotations = json!({TUNNEL_REQUESTED_BY: tunnels.replica()});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        if let Err(error) = host.patch(path, patch, &WriteOptions::default()).await {
            // The agent finds this replica later.
            tracing::debug!(cluster = cluster.name(), %error, "no tunnel requested");
        }
    }
}

fn keeps_tunnels(cluster: &Cluster) -> bool {
    let condition = cluster.condition(AGENT_TUNNEL_CONDITION);
    cluster.spec.sync_mode == "Pull" && condition.is_some_and(|c| c.status == "True")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client::{InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
    use client_fake::FakeApi;

    use super::*;

    // proves: TUN-new-replica
    #[tokio::test(start_paused = true)]
    async fn agents_that_keep_tunnels_are_asked_for_one() {
        let api = FakeApi::new();
        for (name, mode, tunnel) in [
            ("open", "Pull", Some("True")),
            ("lost", "Pull", Some("False")),
            ("karmada", "Pull", None),
            ("push", "Push", Some("True")),
        ] {
            let condition = tunnel.map(|t| json!({"type": AGENT_TUNNEL_CONDITION, "status": t}));
            let conditions: Vec<_> = condition.into_iter().collect();
            let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {"syncMode": mode},
                "status": {"conditions": conditions}});
            api.seed(&CLUSTERS, cluster);
        }
        let tasks = TaskGroup::new(ShutdownToken::new());
        let host: Arc<dyn Api> = api.clone();
        let informers = InformerFactory::new(&tasks);
        let clusters = informers.get(&host, &ListWatchSelector::all(&CLUSTERS));
        let tunnels = AgentTunnels::default();
        request_tunnels(&*host, &clusters, &tunnels).await;
        for name in ["open", "lost", "karmada", "push"] {
            let path = ResourcePath::object(&CLUSTERS, "", name);
            let cluster = host.get(path).await.unwrap().decode::<Cluster>().unwrap();
            let requested_by = cluster.metadata.annotations.get(TUNNEL_REQUESTED_BY);
            let expected = (name == "open").then_some(tunnels.replica());
            assert_eq!(requested_by.map(String::as_str), expected, "{name}");
        }
        tasks.stop().await;
    }
}
