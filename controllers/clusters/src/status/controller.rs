//! The cluster status controller: reacts to Clusters and connections, probes members, and
//! writes a Cluster's status if it differs.
//!
//! A slow member holds one of many workers, and each request has a timeout.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use client::{Api, Informer, InformerEvent, Result};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, StatusWriter, Workqueue, run_workers_after,
};
use jiff::Timestamp;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::CLUSTER_FINALIZER;
use karmada_api::{Cluster, KarmadaFeature};
use machinery::Object;
use machinery::time::{Clock, rfc3339_seconds};
use members::{MemberCluster, MemberClusterManager};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cluster_status::{self, ClusterStatusUpdate, MemberResources};
use super::ready_thresholds::ReadyThresholds;
use super::sync_state::{ClusterStatusSyncState, ClusterStatusTrigger};
use super::{metrics, probe};
use crate::condition::ConditionUpdate;
use crate::options::{ClusterControllersOptions, ClusterControllersSettings};

/// A worker mostly waits for a member.
const WORKERS: usize = 64;
/// How long a Cluster may lack a connection before this is reported: its secret may be
/// created after it.
const CONNECT_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// CRDs are often created in batches.
const CRD_BATCH_DELAY: Duration = Duration::from_millis(200);

pub(super) struct ClusterStatusController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    members: MemberClusterManager,
    settings: ClusterControllersSettings,
    clusters: Informer,
    queue: Workqueue<String>,
    pending_triggers: Mutex<AHashMap<String, ClusterStatusTrigger>>,
    /// The state of each cluster; a worker takes it out while it works on the cluster.
    sync_states: Mutex<AHashMap<String, ClusterStatusSyncState>>,
}

impl ClusterStatusController {
    pub(super) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            members: options.members.clone(),
            settings: options.settings.clone(),
            clusters: context.informer(&CLUSTERS),
            queue: Workqueue::new(),
            pending_triggers: Mutex::default(),
            sync_states: Mutex::default(),
        });
        controller.add_event_handlers();
        metrics::report_clusters(&controller.clusters, context.tasks.shutdown());
        let (waiting, queue) = (Arc::clone(&controller), controller.queue.clone());
        let shutdown = context.tasks.shutdown().clone();
        run_workers_after(
            &context.tasks,
            async move { waiting.members.wait_for_cache_sync().await },
            "cluster-status",
            &queue,
            WORKERS,
            move |name: String| {
                let (controller, shutdown) = (Arc::clone(&controller), shutdown.clone());
                // A silent member must not delay the shutdown.
                async move {
                    let done = shutdown
                        .run_until_triggered(controller.reconcile(&name))
                        .await;
                    done.unwrap_or(Ok(ReconcileAction::Done))
                }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let controller = Arc::downgrade(self);
        self.clusters.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.cluster_changed(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.members.on_connection_change(move |name, _| {
            if let Some(controller) = controller.upgrade() {
                controller.add_trigger(name, true, true);
                controller.queue.add(name.to_owned());
            }
        });
        let controller = Arc::downgrade(self);
        self.members.on_managed_object(move |name, resource, _| {
            if resource.resource == "customresourcedefinitions"
                && let Some(controller) = controller.upgrade()
            {
                controller.add_trigger(name, false, true);
                controller.queue.add_after(name.to_owned(), CRD_BATCH_DELAY);
            }
        });
    }

    fn add_trigger(&self, name: &str, probe: bool, discover: bool) {
        let mut wakes = self.pending_triggers.lock();
        let wake = wakes.entry(name.to_owned()).or_default();
        wake.probe |= probe;
        wake.discover |= discover;
    }

    fn cluster_changed(&self, change: &InformerEvent<'_>) {
        let same = |old: &Object, new: &Object| {
            old.meta().generation == new.meta().generation
                && has_cluster_finalizer(old) == has_cluster_finalizer(new)
        };
        match (change.old, change.new) {
            (Some(old), Some(new)) if same(old, new) => return,
            (_, Some(_)) => self.add_trigger(change.object().name(), true, false),
            (_, None) => {}
        }
        self.queue.add_event(change.key(), change);
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction> {
        let wake = self
            .pending_triggers
            .lock()
            .remove(name)
            .unwrap_or_default();
        let cached = self.clusters.get("", name);
        let Some(object) = cached.filter(|cluster| self.is_collected_here(cluster)) else {
            self.sync_states.lock().remove(name);
            metrics::forget_cluster(name);
            return Ok(ReconcileAction::Done);
        };
        // Wait until the cluster controller has added its finalizer, which is a change of
        // the Cluster.
        if !has_cluster_finalizer(&object) {
            return Ok(ReconcileAction::Done);
        }
        let mut track = self.sync_states.lock().remove(name).unwrap_or_default();
        let began = Instant::now();
        let done = self.sync_status(&object, &mut track, wake).await;
        metrics::observe_sync(name, began.elapsed());
        self.sync_states.lock().insert(name.to_owned(), track);
        match done {
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            other => other,
        }
    }

    async fn sync_status(
        &self,
        object: &Object,
        track: &mut ClusterStatusSyncState,
        wake: ClusterStatusTrigger,
    ) -> Result<ReconcileAction> {
        let cluster = object.decode::<Cluster>()?;
        let now = self.clock.now();
        let period = self.settings.status_update_period;
        let shown = cluster.condition("Ready").map(|c| c.status.as_str());
        match self.members.get(object.name()) {
            Ok(member) => {
                track.unconnected_since = None;
                self.probe_and_collect(&member, &cluster, track, wake, now)
                    .await;
            }
            Err(reason) => {
                let since = *track.unconnected_since.get_or_insert(now);
                let waited = now.duration_since(since).unsigned_abs();
                if waited < CONNECT_GRACE_PERIOD {
                    return Ok(ReconcileAction::RequeueAfter(CONNECT_GRACE_PERIOD - waited));
                }
                self.observe_unconnected(track, shown, &reason, now);
            }
        }
        let findings = ClusterStatusUpdate {
            ready_condition: track.ready_condition.as_ref(),
            api_info: track.api_info.as_ref().filter(|_| track.is_ready),
            resources: track.resources.as_ref().filter(|_| track.is_ready),
        };
        self.update_status(object, &findings, now).await?;
        Ok(ReconcileAction::RequeueAfter(track.next_delay(now, period)))
    }

    async fn probe_and_collect(
        &self,
        member: &MemberCluster,
        cluster: &Cluster,
        track: &mut ClusterStatusSyncState,
        wake: ClusterStatusTrigger,
        now: Timestamp,
    ) {
        let period = self.settings.status_update_period;
        let probed = track.is_probe_due(wake, now);
        if probed {
            let verdict = probe::probe_health(&**member.api()).await;
            track.record_probe(now, period);
            let shown = cluster.condition("Ready").map(|c| c.status.as_str());
            let shows = track.last_ready_observation.should_report(
                verdict.is_true(),
                shown,
                now,
                self.thresholds(),
            );
            track.is_ready = shows && verdict.is_true();
            track.ready_condition = Some(verdict).filter(|_| shows);
        }
        if !track.is_ready {
            return;
        }
        // Discovery runs with every probe: a member does not announce new APIs.
        if probed || wake.discover {
            track.api_info = Some(probe::collect_api_info(&**member.api()).await);
        }
        if self.settings.resource_modeling && track.is_summary_due(probed) {
            track.record_summary(self.collect_resources(member, cluster));
        }
    }

    fn collect_resources(
        &self,
        member: &MemberCluster,
        cluster: &Cluster,
    ) -> Option<MemberResources> {
        let of = &cluster.spec.resource_models;
        let summary = member.resource_summary()?;
        let gates = self.settings.gates;
        let graded = gates.enabled(KarmadaFeature::CustomizedClusterResourceModeling);
        let modelings = match graded && !of.is_empty() {
            true => cluster_status::grade_counts(
                of,
                &member.allocatable_modelings(&cluster_status::model_grades(of))?,
            ),
            false => Vec::new(),
        };
        Some(MemberResources { summary, modelings })
    }

    /// Before the first probe a missing connection is not an observation, so that the
    /// first response counts at once.
    fn observe_unconnected(
        &self,
        track: &mut ClusterStatusSyncState,
        shown: Option<&str>,
        reason: &str,
        now: Timestamp,
    ) {
        track.record_probe(now, self.settings.status_update_period);
        let shows = track.last_ready_observation.is_empty()
            || track
                .last_ready_observation
                .should_report(false, shown, now, self.thresholds());
        let text = format!("failed to create a ClusterClient: {reason}");
        let verdict = ConditionUpdate::new("False", "StatusCollectionFailed", text);
        track.is_ready = false;
        track.ready_condition = Some(verdict).filter(|_| shows);
    }

    /// Whether this controller collects the status of the cluster. One in pull mode is
    /// reported by its agent, and one in push mode without a secret by someone else.
    fn is_collected_here(&self, cluster: &Object) -> bool {
        match &self.settings.agent_cluster {
            Some(own) => cluster.name() == own,
            None => cluster
                .decode::<Cluster>()
                .is_ok_and(|c| c.spec.sync_mode != "Pull" && c.spec.secret_ref.is_some()),
        }
    }

    fn thresholds(&self) -> ReadyThresholds {
        ReadyThresholds {
            success: self.settings.success_threshold,
            failure: self.settings.failure_threshold,
        }
    }

    async fn update_status(
        &self,
        object: &Object,
        findings: &ClusterStatusUpdate<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let status = object.value()?["status"].take();
        let status = cluster_status::updated_status(&status, findings, &rfc3339_seconds(now));
        let writer = StatusWriter::new(&*self.api, "cluster-status");
        writer.update(&CLUSTERS, object, status).await.map(drop)
    }
}

fn has_cluster_finalizer(cluster: &Object) -> bool {
    cluster.decode::<Cluster>().is_ok_and(|c| {
        let finalizers = &c.metadata.finalizers;
        finalizers.iter().any(|f| f == CLUSTER_FINALIZER)
    })
}
