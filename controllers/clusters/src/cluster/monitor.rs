//! The health monitor: sets Ready to Unknown on Clusters in pull mode whose agent stops
//! renewing its lease and status. It costs nothing if no cluster is in pull mode.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerFactory, ListWatchSelector, Result};
use flotilla_runtime::{ControllerContext, ReconcileAction, StatusWriter, Workqueue, run_workers};
use jiff::Timestamp;
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::AGENT_TUNNEL_CONDITION;
use machinery::time::{self, Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use serde::Deserialize;

use super::health::{ClusterHealth, ClusterObservation, GracePeriods};
use crate::condition::ConditionUpdate;
use crate::options::ClusterControllersOptions;

pub(super) static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
/// The namespace of the agents' leases.
pub(super) const LEASE_NAMESPACE: &str = "karmada-cluster";
const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Retry while the leases are not listed yet.
const UNSYNCED_RETRY_DELAY: Duration = Duration::from_millis(200);

pub(super) struct ClusterMonitor {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    informers: InformerFactory,
    clusters: Informer,
    health: Mutex<HashMap<String, ClusterHealth>>,
    grace_periods: GracePeriods,
    period: Duration,
}

#[derive(Deserialize)]
struct AgentLeaseWithRenewTime {
    #[serde(default)]
    spec: AgentLeaseSpecRenewTime,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentLeaseSpecRenewTime {
    renew_time: Option<String>,
}

impl ClusterMonitor {
    pub(super) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
        let monitor = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            informers: context.informers.clone(),
            clusters: context.informer(&CLUSTERS),
            health: Mutex::default(),
            grace_periods: GracePeriods {
                monitor: options.settings.monitor_grace_period,
                startup: options.settings.startup_grace_period,
            },
            period: options.settings.monitor_period,
        });
        let queue: Workqueue<String> = Workqueue::new();
        let wake = queue.clone();
        monitor.clusters.add_event_handler(move |change| {
            let pulls = |c: &Object| {
                c.decode::<Cluster>()
                    .is_ok_and(|c| c.spec.sync_mode == "Pull")
            };
            if [change.old, change.new].into_iter().flatten().any(pulls) {
                wake.add_low(change.key());
            }
        });
        run_workers(
            &context.tasks,
            "cluster-monitor",
            &queue,
            1,
            move |name: String| {
                let monitor = Arc::clone(&monitor);
                async move { monitor.check_health(&name).await }
            },
        );
    }

    async fn check_health(&self, name: &str) -> Result<ReconcileAction> {
        let cached = self.clusters.get("", name);
        let Some(object) = cached else {
            self.health.lock().remove(name);
            return Ok(ReconcileAction::Done);
        };
        let cluster = object.decode::<Cluster>()?;
        if cluster.spec.sync_mode != "Pull" {
            self.health.lock().remove(name);
            return Ok(ReconcileAction::Done);
        }
        let select = ListWatchSelector::all(&LEASES).namespace(LEASE_NAMESPACE);
        let leases = self.informers.get(&self.api, &select);
        if !leases.has_synced() {
            return Ok(ReconcileAction::RequeueAfter(UNSYNCED_RETRY_DELAY));
        }
        let ready = cluster.condition("Ready");
        let observation = ClusterObservation {
            ready: ready.map(|c| (c.status.as_str(), c.last_transition_time.as_str())),
            created: match ready {
                Some(_) => Timestamp::UNIX_EPOCH,
                None => object.creation_timestamp().unwrap_or_default(),
            },
            lease_renewed: leases
                .get(LEASE_NAMESPACE, name)
                .and_then(|l| renew_time(&l)),
        };
        let now = self.clock.now();
        let verdict = {
            let mut health = self.health.lock();
            let health = health
                .entry(name.to_owned())
                .or_insert_with(|| ClusterHealth::new(&observation, now));
            health.observe(&observation, now, self.grace_periods)
        };
        let Some(verdict) = verdict else {
            return Ok(ReconcileAction::RequeueAfter(self.period));
        };
        match self.update_ready_condition(&object, &verdict, now).await {
            Err(e) if e.is_conflict() => Ok(ReconcileAction::RequeueAfter(CONFLICT_RETRY_DELAY)),
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) => Err(e),
            Ok(()) => Ok(ReconcileAction::RequeueAfter(self.period)),
        }
    }

    /// With Ready, what the silent agent of a cluster last reported of its tunnels is unknown.
    async fn update_ready_condition(
        &self,
        object: &Object,
        verdict: &ConditionUpdate,
        now: Timestamp,
    ) -> Result<()> {
        let mut status = object.value()?["status"].take();
        let conditions = &mut status["conditions"];
        let now = rfc3339_seconds(now);
        verdict.set_in(conditions, "Ready", &now);
        let cluster = object.decode::<Cluster>()?;
        if cluster.condition(AGENT_TUNNEL_CONDITION).is_some() {
            let message = "the agent stopped posting the status of its cluster";
            ConditionUpdate::new("Unknown", "AgentTunnelUnknown", message).set_in(
                conditions,
                AGENT_TUNNEL_CONDITION,
                &now,
            );
        }
        let writer = StatusWriter::new(&*self.api, "cluster");
        let written = writer.update(&CLUSTERS, object, Some(status));
        written.await.map(drop)
    }
}

fn renew_time(lease: &Object) -> Option<Timestamp> {
    let view = lease.decode::<AgentLeaseWithRenewTime>().ok()?;
    time::parse(view.spec.renew_time.as_deref()?).ok()
}
