//! The lease by which an agent shows the control plane that it lives, and the Cluster that it
//! registers.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::{ReconcileAction, TaskGroup, Workqueue, run_workers};
use machinery::time::{Clock, rfc3339_micros};
use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::resources::CLUSTERS;
use serde_json::{Value, json};

use crate::join::cluster_id;

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
const LEASE_NAMESPACE: &str = "karmada-cluster";

/// The cluster of an agent, as the agent registers it.
#[derive(Clone, Debug, Default)]
pub struct AgentClusterSpec {
    pub name: String,
    /// Where the control plane reaches the member, if it can.
    pub api_endpoint: Option<String>,
    pub proxy_url: Option<String>,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
}

/// How often an agent renews its lease.
#[derive(Clone, Copy, Debug)]
pub struct AgentLeaseOptions {
    pub duration: Duration,
    pub renew_interval: Duration,
}

/// Creates the Cluster of an agent. One of the same name and member is used as it is; another
/// is an error.
pub async fn register_agent_cluster(
    control: &dyn Api,
    member: &dyn Api,
    spec: &AgentClusterSpec,
) -> Result<Object, Error> {
    let id = cluster_id(member).await;
    let id = id.map_err(|e| Error::Protocol(e.to_string()))?;
    let at = ResourcePath::object(&CLUSTERS, "", &spec.name);
    if let Some(object) = ignore_not_found(control.get(at).await)? {
        let registered = object.decode::<Cluster>()?;
        if registered.spec.id == id && registered.spec.sync_mode == "Pull" {
            return Ok(object);
        }
        return Err(Error::Protocol(format!(
            "the cluster name {:?} has been registered for another cluster or mode",
            spec.name
        )));
    }
    let at = ResourcePath::collection(&CLUSTERS, "");
    let options = WriteOptions::default();
    control
        .create(at, cluster(spec, &id).into(), &options)
        .await
}

fn cluster(spec: &AgentClusterSpec, id: &str) -> Value {
    let mut body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": spec.name},
        "spec": {"syncMode": "Pull", "id": id},
    });
    for (field, text) in [
        ("apiEndpoint", &spec.api_endpoint),
        ("proxyURL", &spec.proxy_url),
        ("provider", &spec.provider),
        ("region", &spec.region),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            body["spec"][field] = text.into();
        }
    }
    if !spec.zones.is_empty() {
        body["spec"]["zones"] = json!(spec.zones);
    }
    body
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
                "ownerReferences": [{"apiVersion": "cluster.karmada.io/v1alpha1",
                    "kind": "Cluster", "name": cluster.name(), "uid": cluster.uid()}]},
            "spec": {"holderIdentity": cluster.name(), "renewTime": renewed,
                "leaseDurationSeconds": self.options.duration.as_secs()},
        })
    }
}
