//! Reports the conditions of all Nodes of a member as one condition of its Cluster, in the leader
//! of its detectors.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerFactory, ListWatchSelector, Result, TaskGroup};
use flotilla_runtime::{ReconcileAction, StatusWriter, Workqueue, run_workers_after};
use jiff::Timestamp;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::SERVICE_NAME_RESOLUTION_CONDITION;
use machinery::Object;
use machinery::time::{Clock, rfc3339_seconds};
use serde::Deserialize;

use super::options::{FAILED, NODES, NameResolutionOptions, READY};
use crate::condition::ConditionUpdate;

const WORKERS: usize = 1;
/// Changes of many nodes within this time are judged together.
const BATCH_PERIOD: Duration = Duration::from_secs(1);

/// The parts that the reporter works with.
pub struct ClusterNameResolutionReporter {
    /// The API of the control plane.
    pub control: Arc<dyn Api>,
    /// The API of the member.
    pub member: Arc<dyn Api>,
    pub cluster: String,
    pub options: NameResolutionOptions,
    pub clock: Arc<dyn Clock>,
}

struct RunningReporter {
    reporter: ClusterNameResolutionReporter,
    nodes: Informer,
    clusters: Informer,
    _informers: InformerFactory,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeView {
    status: NodeStatusView,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatusView {
    conditions: Option<Vec<NodeConditionView>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeConditionView {
    r#type: String,
    status: String,
    #[serde(default)]
    last_heartbeat_time: Option<Timestamp>,
}

impl ClusterNameResolutionReporter {
    /// Reports until the tasks stop.
    pub fn run(self, tasks: &TaskGroup) {
        let informers = InformerFactory::new(tasks);
        // An agent may read no other Cluster.
        let own = format!("metadata.name={}", self.cluster);
        let own = ListWatchSelector::all(&CLUSTERS).fields(own);
        let reporter = Arc::new(RunningReporter {
            nodes: informers.get(&self.member, &ListWatchSelector::all(&NODES)),
            clusters: informers.get(&self.control, &own),
            reporter: self,
            _informers: informers,
        });
        let queue: Workqueue<()> = Workqueue::new();
        for informer in [&reporter.nodes, &reporter.clusters] {
            let queue = queue.clone();
            informer.add_event_handler(move |_| queue.add_after((), BATCH_PERIOD));
        }
        let (nodes, clusters) = (reporter.nodes.clone(), reporter.clusters.clone());
        let synced = async move {
            nodes.wait_for_cache_sync().await;
            clusters.wait_for_cache_sync().await;
        };
        run_workers_after(
            tasks,
            synced,
            "service-name-resolution",
            &queue,
            WORKERS,
            move |()| {
                let reporter = Arc::clone(&reporter);
                async move { reporter.reconcile().await }
            },
        );
    }
}

impl RunningReporter {
    async fn reconcile(&self) -> Result<ReconcileAction> {
        let ClusterNameResolutionReporter {
            control,
            cluster,
            options,
            clock,
            ..
        } = &self.reporter;
        let now = clock.now();
        let verdict = cluster_verdict(&self.nodes.list(), now, options.stale_threshold);
        let (Some(ready), Some(object)) = (verdict, self.clusters.get("", cluster)) else {
            return Ok(ReconcileAction::Done);
        };
        let desired = cluster_condition(ready);
        if object.meta().deleting {
            return Ok(ReconcileAction::Done);
        }
        let mut status = object.value()?["status"].take();
        let conditions = &mut status["conditions"];
        let now = rfc3339_seconds(now);
        desired.set_in(conditions, SERVICE_NAME_RESOLUTION_CONDITION, &now);
        // By an update, since agents may not patch the status of their Cluster.
        let writer = StatusWriter::new(&**control, "service-name-resolution");
        let written = writer.update(&CLUSTERS, &object, Some(status)).await;
        ReconcileAction::after_write(written, ReconcileAction::Done)
    }
}

/// Whether names are resolved in a cluster: not if they are on none of its Ready nodes. `None` if
/// there is none, or one has not reported lately.
pub(super) fn cluster_verdict(
    nodes: &[Object],
    now: Timestamp,
    stale_threshold: Duration,
) -> Option<bool> {
    let mut all_failed = true;
    let mut any = false;
    for node in nodes {
        let view = node.decode::<NodeView>().ok()?;
        let find = |kind: &str| {
            let mut conditions = view.status.conditions.iter().flatten();
            conditions.find(|condition| condition.r#type == kind)
        };
        if find("Ready").is_none_or(|ready| ready.status != "True") {
            continue;
        }
        let reported = find(SERVICE_NAME_RESOLUTION_CONDITION)?;
        let age = now.duration_since(reported.last_heartbeat_time?);
        if Duration::try_from(age).is_ok_and(|age| age > stale_threshold) {
            return None;
        }
        any = true;
        match reported.status.as_str() {
            "Unknown" => return None,
            "False" => {}
            _ => all_failed = false,
        }
    }
    any.then_some(!all_failed)
}

fn cluster_condition(ready: bool) -> ConditionUpdate {
    match ready {
        true => ConditionUpdate::new("True", READY, "service domain name resolution is ready"),
        false => ConditionUpdate::new("False", FAILED, "service domain name resolution is unready"),
    }
}
