//! The cluster status controller: reacts to Clusters and connections, probes members, and
//! writes a Cluster's status if it differs.
//!
//! A slow member holds one of many workers, and each request has a timeout.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use client::{Api, At, Result, WriteOptions};
use jiff::Timestamp;
use machinery::Object;
use machinery::time::{Clock, rfc3339_seconds};
use members::{Member, Members};
use openapi::karmada::labels::CLUSTER_FINALIZER;
use openapi::karmada::resources::CLUSTERS;
use openapi::karmada::{Cluster, Gate};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Informer, Queue, Select, run_workers};
use tokio::time::Instant;

use super::collect::{self, Findings, Resources};
use super::damping::Thresholds;
use super::figures;
use super::probe;
use super::track::{Track, Wake};
use crate::condition::Verdict;
use crate::start::{Deps, Options};

/// A worker mostly waits for a member.
const WORKERS: usize = 64;
/// How long a Cluster may lack a connection before this is reported: its secret may be
/// created after it.
const CONNECTING: Duration = Duration::from_secs(2);
/// CRDs are often created in batches.
const GATHER: Duration = Duration::from_millis(200);

pub(super) struct Controller {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    members: Members,
    options: Options,
    clusters: Informer,
    queue: Queue<String>,
    wakes: Mutex<AHashMap<String, Wake>>,
    /// The state of each cluster; a worker takes it out while it works on the cluster.
    tracks: Mutex<AHashMap<String, Track>>,
}

impl Controller {
    pub(super) fn start(deps: &Deps) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            clock: Arc::clone(&deps.clock),
            members: deps.members.clone(),
            options: deps.options.clone(),
            clusters: deps.informers.get(&deps.control, &Select::all(&CLUSTERS)),
            queue: Queue::new(),
            wakes: Mutex::default(),
            tracks: Mutex::default(),
        });
        it.listen();
        figures::show(&it.clusters, deps.tasks.shutdown());
        let tasks = deps.tasks.clone();
        let shutdown = deps.tasks.shutdown().clone();
        deps.tasks.spawn(async move {
            if shutdown.unless(it.members.wait_synced()).await.is_none() {
                return;
            }
            let queue = it.queue.clone();
            let ends = tasks.shutdown().clone();
            run_workers(
                &tasks,
                "cluster-status",
                &queue,
                WORKERS,
                move |name: String| {
                    let (it, ends) = (Arc::clone(&it), ends.clone());
                    // A silent member must not delay the shutdown.
                    async move {
                        let done = ends.unless(it.reconcile(&name)).await;
                        done.unwrap_or(Ok(Action::Done))
                    }
                },
            );
        });
    }

    fn listen(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.clusters.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.cluster_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.members.on_connect(move |name, _| {
            if let Some(it) = it.upgrade() {
                it.wake(name, true, true);
                it.queue.add(name.to_owned());
            }
        });
        let it = Arc::downgrade(self);
        self.members.on_object(move |name, resource, _| {
            if resource.resource == "customresourcedefinitions"
                && let Some(it) = it.upgrade()
            {
                it.wake(name, false, true);
                it.queue.add_after(name.to_owned(), GATHER);
            }
        });
    }

    fn wake(&self, name: &str, probe: bool, discover: bool) {
        let mut wakes = self.wakes.lock();
        let wake = wakes.entry(name.to_owned()).or_default();
        wake.probe |= probe;
        wake.discover |= discover;
    }

    fn cluster_changed(&self, change: &Change<'_>) {
        let same = |old: &Object, new: &Object| {
            old.head().generation == new.head().generation && is_kept(old) == is_kept(new)
        };
        match (change.old, change.new) {
            (Some(old), Some(new)) if same(old, new) => return,
            (_, Some(_)) => self.wake(change.object().name(), true, false),
            (_, None) => {}
        }
        self.queue.add_lane(change.key(), change.initial);
    }

    async fn reconcile(&self, name: &str) -> Result<Action> {
        let wake = self.wakes.lock().remove(name).unwrap_or_default();
        let found = self.clusters.get("", name);
        let Some(object) = found.filter(is_reached) else {
            self.tracks.lock().remove(name);
            figures::forget(name);
            return Ok(Action::Done);
        };
        // Wait until the cluster controller has added its finalizer, which is a change of
        // the Cluster.
        if !is_kept(&object) {
            return Ok(Action::Done);
        }
        let mut track = self.tracks.lock().remove(name).unwrap_or_default();
        let began = Instant::now();
        let done = self.look(&object, &mut track, wake).await;
        figures::synced(name, began.elapsed());
        self.tracks.lock().insert(name.to_owned(), track);
        match done {
            Err(e) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            other => other,
        }
    }

    async fn look(&self, object: &Object, track: &mut Track, wake: Wake) -> Result<Action> {
        let cluster = object.view::<Cluster>()?;
        let now = self.clock.now();
        let period = self.options.status_period;
        let shown = cluster.condition("Ready").map(|c| c.status.as_str());
        match self.members.get(object.name()) {
            Ok(member) => {
                track.unconnected = None;
                self.ask(&member, &cluster, track, wake, now).await;
            }
            Err(why) => {
                let since = *track.unconnected.get_or_insert(now);
                let waited = now.duration_since(since).unsigned_abs();
                if waited < CONNECTING {
                    return Ok(Action::After(CONNECTING - waited));
                }
                self.unconnected(track, shown, &why, now);
            }
        }
        let findings = Findings {
            ready: track.ready.as_ref(),
            facts: track.facts.as_ref().filter(|_| track.well),
            resources: track.resources.as_ref().filter(|_| track.well),
        };
        self.write(object, &findings, now).await?;
        Ok(Action::After(track.next(now, period)))
    }

    async fn ask(
        &self,
        member: &Member,
        cluster: &Cluster,
        track: &mut Track,
        wake: Wake,
        now: Timestamp,
    ) {
        let period = self.options.status_period;
        let probed = track.probe_due(wake, now);
        if probed {
            let verdict = probe::health(&**member.api()).await;
            track.probed(now, period);
            let shown = cluster.condition("Ready").map(|c| c.status.as_str());
            let shows = track
                .damper
                .shows(verdict.is_true(), shown, now, self.thresholds());
            track.well = shows && verdict.is_true();
            track.ready = Some(verdict).filter(|_| shows);
        }
        if !track.well {
            return;
        }
        // Discovery runs with every probe: a member does not announce new APIs.
        if probed || wake.discover {
            track.facts = Some(probe::facts(&**member.api()).await);
        }
        if self.options.resource_modeling && track.sums_due(probed) {
            track.summed(self.resources(member, cluster));
        }
    }

    fn resources(&self, member: &Member, cluster: &Cluster) -> Option<Resources> {
        let of = &cluster.spec.resource_models;
        let summary = member.summary()?;
        let gates = self.options.gates;
        let graded = gates.is_on(Gate::CustomizedClusterResourceModeling);
        let modelings = match graded && !of.is_empty() {
            true => collect::grades(of, &member.modelings(&collect::models(of))?),
            false => Vec::new(),
        };
        Some(Resources { summary, modelings })
    }

    /// Before the first probe a missing connection is not an observation, so that the
    /// first response counts at once.
    fn unconnected(&self, track: &mut Track, shown: Option<&str>, why: &str, now: Timestamp) {
        track.probed(now, self.options.status_period);
        let shows =
            track.damper.is_fresh() || track.damper.shows(false, shown, now, self.thresholds());
        let text = format!("failed to create a ClusterClient: {why}");
        let verdict = Verdict::new("False", "StatusCollectionFailed", text);
        track.well = false;
        track.ready = Some(verdict).filter(|_| shows);
    }

    fn thresholds(&self) -> Thresholds {
        Thresholds {
            success: self.options.success_threshold,
            failure: self.options.failure_threshold,
        }
    }

    async fn write(&self, object: &Object, findings: &Findings<'_>, now: Timestamp) -> Result<()> {
        let mut value = object.value()?;
        let now = rfc3339_seconds(now);
        let Some(status) = collect::status(&value["status"], findings, &now) else {
            return Ok(());
        };
        value["status"] = status;
        let at = At::of(&CLUSTERS, object).sub("status");
        self.api
            .update(at, value, &WriteOptions::default())
            .await
            .map(drop)
    }
}

/// Whether this controller collects the status of the cluster. A Cluster in push mode
/// without a secret is reported by someone else.
fn is_reached(cluster: &Object) -> bool {
    cluster
        .view::<Cluster>()
        .is_ok_and(|c| c.spec.sync_mode != "Pull" && c.spec.secret_ref.is_some())
}

fn is_kept(cluster: &Object) -> bool {
    cluster.view::<Cluster>().is_ok_and(|c| {
        let finalizers = &c.metadata.finalizers;
        finalizers.iter().any(|f| f == CLUSTER_FINALIZER)
    })
}
