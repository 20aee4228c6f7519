//! The lease by which an agent shows the control plane that it lives.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, ResourcePath, TaskGroup, WriteOptions, ignore_not_found};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use machinery::time::{Clock, rfc3339_micros};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
const LEASE_NAMESPACE: &str = "karmada-cluster";
/// The annotation of a lease with the version of the agent that renews it.
pub const AGENT_VERSION_ANNOTATION: &str = "flotilla.io/agent-version";
const AGENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How often an agent renews its lease.
#[derive(Clone, Copy, Debug)]
pub struct AgentLeaseOptions {
    pub duration: Duration,
    pub renew_interval: Duration,
}

/// Renews the lease of a cluster until `tasks` stop.
pub fn run_agent_lease(
    control: &Arc<dyn Api>,
    cluster: &Object,
    options: AgentLeaseOptions,
    clock: &Arc<dyn Clock>,
    tasks: &TaskGroup,
) {
    let queue: Workqueue<()> = Workqueue::new();
    queue.add(());
    let lease = Arc::new(AgentLease {
        control: Arc::clone(control),
        cluster: cluster.clone(),
        options,
        clock: Arc::clone(clock),
    });
    run_workers(tasks, "cluster-lease", &queue, 1, move |()| {
        let lease = Arc::clone(&lease);
        async move {
            lease.renew().await?;
            Ok::<_, Error>(ReconcileAction::RequeueAfter(lease.options.renew_interval))
        }
    });
}

struct AgentLease {
    control: Arc<dyn Api>,
    cluster: Object,
    options: AgentLeaseOptions,
    clock: Arc<dyn Clock>,
}

impl AgentLease {
    async fn renew(&self) -> Result<(), Error> {
        let name = self.cluster.name();
        let at = ResourcePath::object(&LEASES, LEASE_NAMESPACE, name);
        let renewed = rfc3339_micros(self.clock.now());
        let options = WriteOptions::default();
        let Some(lease) = ignore_not_found(self.control.get(at).await)? else {
            let at = ResourcePath::collection(&LEASES, LEASE_NAMESPACE);
            let body = self.lease(&renewed);
            return self
                .control
                .create(at, body.into(), &options)
                .await
                .map(drop);
        };
        let mut value = lease.value()?;
        value["spec"]["renewTime"] = renewed.into();
        value["metadata"]["annotations"][AGENT_VERSION_ANNOTATION] = AGENT_VERSION.into();
        self.control
            .update(at, value.into(), &options)
            .await
            .map(drop)
    }

    fn lease(&self, renewed: &str) -> Value {
        let cluster = &self.cluster;
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": cluster.name(), "namespace": LEASE_NAMESPACE,
                "annotations": {AGENT_VERSION_ANNOTATION: AGENT_VERSION},
                "ownerReferences": [{"apiVersion": "cluster.karmada.io/v1alpha1",
                    "kind": "Cluster", "name": cluster.name(), "uid": cluster.uid()}]},
            "spec": {"holderIdentity": cluster.name(), "renewTime": renewed,
                "leaseDurationSeconds": self.options.duration.as_secs()},
        })
    }
}
