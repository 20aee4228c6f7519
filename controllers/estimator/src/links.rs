//! Caches the connections to the estimators of clusters.
//!
//! Follows Clusters, the Services of estimators and failed calls. Source of the rules:
//! Karmada's `reconcileEstimatorConnection` (`pkg/scheduler/scheduler.go`). There a
//! cluster without an estimator cannot be estimated; here its nodes are counted instead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Api;
use futures_util::future::join_all;
use machinery::{FailureLog, Gvr};
use openapi::karmada::Cluster;
use openapi::karmada::resources::CLUSTERS;
use parking_lot::RwLock;
use flotilla_runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};
use tokio::sync::watch;

use crate::address::{Address, addresses};
use crate::options::Options;
use crate::remote::{DIAL, Remote};

static SERVICES: Gvr = Gvr::constant("", "v1", "services");

/// Each worker only waits for one estimator.
const WORKERS: usize = 16;
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// An estimator outside the watched namespace may be deployed at any time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Connecting tries two addresses.
const PATIENCE: Duration = DIAL.saturating_mul(3);

/// The connection to the estimator of a cluster.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    To(Remote),
    /// The cluster should have an estimator, but connecting failed for this reason.
    Broken(String),
}

#[derive(Debug)]
struct Entry {
    to: Vec<Address>,
    link: Link,
    /// A call was not answered.
    doubted: bool,
}

pub(crate) struct Links {
    options: Options,
    clusters: Informer,
    services: Informer,
    state: RwLock<HashMap<String, Entry>>,
    queue: Queue<String>,
    ready: watch::Sender<bool>,
    failures: FailureLog,
    tasks: Tasks,
}

impl Links {
    pub(crate) fn start(
        api: &Arc<dyn Api>,
        informers: &Informers,
        options: Options,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let services = Select::all(&SERVICES).namespace(options.namespace.as_str());
        let it = Arc::new(Self {
            clusters: informers.get(api, &Select::all(&CLUSTERS)),
            services: informers.get(api, &services),
            options,
            state: RwLock::default(),
            queue: Queue::with_backoff(RETRY.0, RETRY.1),
            ready: watch::Sender::new(false),
            failures: FailureLog::new(),
            tasks: tasks.clone(),
        });
        it.listen();
        let cache = Arc::clone(&it);
        tasks.spawn(async move {
            let shutdown = cache.tasks.shutdown().clone();
            if shutdown.unless(cache.begin()).await.is_none() {
                return;
            }
            let (tasks, queue) = (cache.tasks.clone(), cache.queue.clone());
            run_workers(
                &tasks,
                "scheduler-estimator",
                &queue,
                WORKERS,
                move |cluster: String| {
                    let (it, ends) = (Arc::clone(&cache), shutdown.clone());
                    // A silent estimator must not delay the shutdown.
                    async move {
                        let done = ends.unless(it.refresh(&cluster)).await;
                        done.unwrap_or(Ok(Action::Done))
                    }
                },
            );
        });
        it
    }

    fn listen(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.clusters.on_change(move |change| {
            let generation = |o: &machinery::Object| o.head().generation;
            let moved = change.old.map(generation) != change.new.map(generation);
            if let Some(it) = it.upgrade().filter(|_| moved) {
                it.queue.add(change.object().name().to_owned());
            }
        });
        let it = Arc::downgrade(self);
        self.services.on_change(move |change| {
            if let Some(it) = it.upgrade()
                && let Some(cluster) = it.options.cluster(change.object().name())
            {
                it.queue.add(cluster.to_owned());
            }
        });
    }

    /// Connects to all estimators before the first request.
    async fn begin(&self) {
        self.clusters.wait_synced().await;
        self.services.wait_synced().await;
        let clusters = self.clusters.list();
        let all = clusters.iter().map(|cluster| self.refresh(cluster.name()));
        for (cluster, done) in clusters.iter().zip(join_all(all).await) {
            match done {
                Ok(Action::After(pause)) => self.queue.add_after(cluster.name().to_owned(), pause),
                Ok(Action::Done) => {}
                Err(_) => drop(self.queue.add_backoff(cluster.name().to_owned())),
            }
        }
        self.ready.send_replace(true);
    }

    /// Waits until all connections were attempted, up to a timeout.
    pub(crate) async fn ready(&self) {
        let mut ready = self.ready.subscribe();
        let known = ready.wait_for(|ready| *ready);
        let late = tokio::time::timeout(PATIENCE, known).await.is_err();
        if late && self.failures.record_failure("ready", "late") {
            tracing::warn!("not all estimators of clusters are connected yet");
        }
    }

    /// The connection to a cluster's estimator; `None`: the cluster has none.
    pub(crate) fn get(&self, cluster: &str) -> Option<Link> {
        self.state
            .read()
            .get(cluster)
            .map(|entry| entry.link.clone())
    }

    /// Reconnects after an unanswered call: the estimator may have been removed.
    pub(crate) fn doubt(&self, cluster: &str) {
        if let Some(entry) = self.state.write().get_mut(cluster) {
            entry.doubted = true;
            self.queue.add(cluster.to_owned());
        }
    }

    async fn refresh(&self, cluster: &str) -> Result<Action, String> {
        if !self.is_wanted(cluster) {
            self.state.write().remove(cluster);
            return Ok(Action::Done);
        }
        let name = self.options.service(cluster);
        let service = self.services.get(&self.options.namespace, &name);
        let to = addresses(service.as_ref(), cluster, &self.options);
        let to = match to {
            Ok(to) => to,
            Err(why) => {
                let why = format!("service {}/{name}: {why}", self.options.namespace);
                self.put(cluster, Vec::new(), Link::Broken(why.clone()));
                return Err(why);
            }
        };
        if self.is_linked(cluster, &to) {
            return Ok(Action::Done);
        }
        let (tls, timeout) = (self.options.tls.as_ref(), self.options.timeout);
        match Remote::connect(&to, tls, timeout, &self.tasks).await {
            Ok(remote) => {
                self.put(cluster, to, Link::To(remote));
                Ok(Action::Done)
            }
            Err(why) if service.is_some() => {
                self.put(cluster, to, Link::Broken(why.clone()));
                Err(why)
            }
            Err(why) => {
                tracing::debug!(cluster, why, "no estimator was deployed for the cluster");
                self.state.write().remove(cluster);
                Ok(Action::After(LOOK_AGAIN))
            }
        }
    }

    fn is_wanted(&self, cluster: &str) -> bool {
        let found = self.clusters.get("", cluster);
        let view = found.and_then(|object| object.view::<Cluster>().ok());
        view.is_some_and(|c| !self.options.not_in_pull_mode || c.spec.sync_mode != "Pull")
    }

    fn is_linked(&self, cluster: &str, to: &[Address]) -> bool {
        let state = self.state.read();
        let entry = state.get(cluster);
        entry.is_some_and(|e| !e.doubted && e.to == to && matches!(e.link, Link::To(_)))
    }

    fn put(&self, cluster: &str, to: Vec<Address>, link: Link) {
        let entry = Entry {
            to,
            link,
            doubted: false,
        };
        self.state.write().insert(cluster.to_owned(), entry);
    }
}
