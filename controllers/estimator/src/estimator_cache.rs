//! Caches the connections to the estimators of clusters.
//!
//! Follows Clusters, the Services of estimators and failed calls. Source of the rules:
//! Karmada's `reconcileEstimatorConnection` (`pkg/scheduler/scheduler.go`). There a
//! cluster without an estimator cannot be estimated; here its nodes are counted instead.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::{Informer, ListWatchSelector, TaskGroup};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers_after};
use futures_util::future::join_all;
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::{FailureLogLimiter, Gvr};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::grpc_client::{CONNECT_TIMEOUT, EstimatorClient};
use crate::options::EstimatorOptions;
use crate::service_address::{EstimatorAddress, addresses};

static SERVICES: Gvr = Gvr::from_static("", "v1", "services");

/// Each worker only waits for one estimator.
const CONNECT_WORKERS: usize = 16;
const CONNECT_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// An estimator outside the watched namespace may be deployed at any time.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// Connecting tries two addresses.
const READY_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(3);

/// The connection to the estimator of a cluster.
#[derive(Clone, Debug)]
pub(crate) enum EstimatorConnection {
    Connected(EstimatorClient),
    /// The cluster should have an estimator, but connecting failed for this reason.
    Broken(String),
}

#[derive(Debug)]
struct EstimatorCacheEntry {
    addresses: Vec<EstimatorAddress>,
    connection: EstimatorConnection,
    /// A call was not answered.
    unanswered: bool,
}

/// Keeps the connections to the estimators of the clusters.
pub struct EstimatorCache {
    options: EstimatorOptions,
    clusters: Informer,
    services: Informer,
    entries: RwLock<HashMap<String, EstimatorCacheEntry>>,
    queue: Workqueue<String>,
    ready: watch::Sender<bool>,
    failures: FailureLogLimiter,
    tasks: TaskGroup,
}

impl EstimatorCache {
    /// Starts to discover estimators through their Services in the control plane.
    pub fn start(context: &ControllerContext, options: EstimatorOptions) -> Arc<Self> {
        let services = ListWatchSelector::all(&SERVICES).namespace(options.namespace.as_str());
        let this = Arc::new(Self {
            clusters: context.informer(&CLUSTERS),
            services: context.select(&services),
            options,
            entries: RwLock::default(),
            queue: Workqueue::with_backoff(CONNECT_BACKOFF.0, CONNECT_BACKOFF.1),
            ready: watch::Sender::new(false),
            failures: FailureLogLimiter::new(),
            tasks: context.tasks.clone(),
        });
        this.add_event_handlers();
        let (cache, connecting) = (Arc::clone(&this), Arc::clone(&this));
        let shutdown = context.tasks.shutdown().clone();
        run_workers_after(
            &context.tasks,
            async move { connecting.connect_all().await },
            "scheduler-estimator",
            &this.queue,
            CONNECT_WORKERS,
            move |cluster: String| {
                let (this, shutdown) = (Arc::clone(&cache), shutdown.clone());
                // A silent estimator must not delay the shutdown.
                async move {
                    let done = shutdown.run_until_triggered(this.reconcile(&cluster)).await;
                    done.unwrap_or(Ok(ReconcileAction::Done))
                }
            },
        );
        this
    }

    pub(crate) fn options(&self) -> &EstimatorOptions {
        &self.options
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        self.clusters.add_event_handler(move |change| {
            let generation = |o: &machinery::Object| o.meta().generation;
            let moved = change.old.map(generation) != change.new.map(generation);
            if let Some(this) = this.upgrade().filter(|_| moved) {
                this.queue.add(change.object().name().to_owned());
            }
        });
        let this = Arc::downgrade(self);
        self.services.add_event_handler(move |change| {
            if let Some(this) = this.upgrade()
                && let Some(cluster) = this.options.cluster_of_service(change.object().name())
            {
                this.queue.add(cluster.to_owned());
            }
        });
    }

    /// Connects to all estimators before the first request.
    async fn connect_all(&self) {
        self.clusters.wait_for_cache_sync().await;
        self.services.wait_for_cache_sync().await;
        let clusters = self.clusters.list();
        let all = clusters
            .iter()
            .map(|cluster| self.reconcile(cluster.name()));
        for (cluster, done) in clusters.iter().zip(join_all(all).await) {
            match done {
                Ok(ReconcileAction::RequeueAfter(pause)) => {
                    self.queue.add_after(cluster.name().to_owned(), pause)
                }
                Ok(ReconcileAction::Done) => {}
                Err(_) => drop(self.queue.add_rate_limited(cluster.name().to_owned())),
            }
        }
        self.ready.send_replace(true);
    }

    /// Waits until all connections were attempted, up to a timeout.
    pub(crate) async fn wait_ready(&self) {
        let mut ready = self.ready.subscribe();
        let first_ready = ready.wait_for(|ready| *ready);
        let late = tokio::time::timeout(READY_TIMEOUT, first_ready)
            .await
            .is_err();
        if late && self.failures.record_failure("ready", "late") {
            tracing::warn!("not all estimators of clusters are connected yet");
        }
    }

    /// The connection to a cluster's estimator; `None`: the cluster has none.
    pub(crate) fn get(&self, cluster: &str) -> Option<EstimatorConnection> {
        self.entries
            .read()
            .get(cluster)
            .map(|entry| entry.connection.clone())
    }

    /// Reconnects after an unanswered call: the estimator may have been removed.
    pub(crate) fn mark_unanswered(&self, cluster: &str) {
        if let Some(entry) = self.entries.write().get_mut(cluster) {
            entry.unanswered = true;
            self.queue.add(cluster.to_owned());
        }
    }

    async fn reconcile(&self, cluster: &str) -> Result<ReconcileAction, String> {
        if !self.needs_estimator(cluster) {
            self.entries.write().remove(cluster);
            return Ok(ReconcileAction::Done);
        }
        let name = self.options.service_name(cluster);
        let service = self.services.get(&self.options.namespace, &name);
        let to = addresses(service.as_ref(), cluster, &self.options);
        let to = match to {
            Ok(to) => to,
            Err(error) => {
                let reason = format!("service {}/{name}: {error}", self.options.namespace);
                self.insert(
                    cluster,
                    Vec::new(),
                    EstimatorConnection::Broken(reason.clone()),
                );
                return Err(reason);
            }
        };
        if self.is_connected(cluster, &to) {
            return Ok(ReconcileAction::Done);
        }
        let (tls, timeout) = (self.options.tls.as_ref(), self.options.timeout);
        match EstimatorClient::connect(&to, tls, timeout, &self.tasks).await {
            Ok(remote) => {
                self.insert(cluster, to, EstimatorConnection::Connected(remote));
                Ok(ReconcileAction::Done)
            }
            Err(reason) if service.is_some() => {
                self.insert(cluster, to, EstimatorConnection::Broken(reason.clone()));
                Err(reason)
            }
            Err(reason) => {
                tracing::debug!(cluster, reason, "no estimator was deployed for the cluster");
                self.entries.write().remove(cluster);
                Ok(ReconcileAction::RequeueAfter(REDISCOVERY_INTERVAL))
            }
        }
    }

    fn needs_estimator(&self, cluster: &str) -> bool {
        let cached = self.clusters.get("", cluster);
        let view = cached.and_then(|object| object.decode::<Cluster>().ok());
        view.is_some_and(|c| !self.options.skip_pull_clusters || c.spec.sync_mode != "Pull")
    }

    fn is_connected(&self, cluster: &str, to: &[EstimatorAddress]) -> bool {
        let state = self.entries.read();
        let entry = state.get(cluster);
        entry.is_some_and(|e| {
            !e.unanswered
                && e.addresses == to
                && matches!(e.connection, EstimatorConnection::Connected(_))
        })
    }

    fn insert(&self, cluster: &str, to: Vec<EstimatorAddress>, link: EstimatorConnection) {
        let entry = EstimatorCacheEntry {
            addresses: to,
            connection: link,
            unanswered: false,
        };
        self.entries.write().insert(cluster.to_owned(), entry);
    }
}

impl fmt::Debug for EstimatorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EstimatorCache")
    }
}
