//! Keeps the connections to all member clusters in sync with the Clusters and their
//! Secrets.
//!
//! One task reconnects; it never waits for a member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Informer, InformerEvent, InformerFactory, ListWatchSelector, TaskGroup};
use karmada_api::Cluster;
use karmada_api::cluster::LocalSecretReference;
use karmada_api::resources::CLUSTERS;
use machinery::{Gvr, Object};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::endpoint::{MemberConnector, MemberEndpoint};
use crate::member::{ManagedObjectHandlers, MemberCluster, MemberTrackingOptions};

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

type ConnectionCallback = Box<dyn Fn(&str, bool) + Send + Sync>;
type MemberOrErrorByCluster = BTreeMap<String, Result<Arc<MemberCluster>, String>>;

/// The clusters to reconcile.
#[derive(Default)]
struct ReconnectQueue {
    pending: Mutex<ReconnectQueueInner>,
    notify: Notify,
    /// The last completed pass.
    completed_pass: watch::Sender<u64>,
}

#[derive(Default)]
struct ReconnectQueueInner {
    names: BTreeSet<String>,
    /// The number of passes started.
    passes_started: u64,
}

impl ReconnectQueue {
    fn add(&self, name: &str) {
        self.add_all(std::iter::once(name.to_owned()));
    }

    /// Returns the pass in which these names will be reconciled.
    fn add_all(&self, names: impl Iterator<Item = String>) -> u64 {
        let mut pending = self.pending.lock();
        pending.names.extend(names);
        self.notify.notify_one();
        pending.passes_started + 1
    }

    fn take_pending(&self) -> (BTreeSet<String>, u64) {
        let mut pending = self.pending.lock();
        pending.passes_started += 1;
        (std::mem::take(&mut pending.names), pending.passes_started)
    }
}

struct MemberClusterManagerInner {
    host: Arc<dyn Api>,
    informers: InformerFactory,
    connector: Arc<dyn MemberConnector>,
    /// Changed while the callbacks are locked, so that every member has the last one.
    tracking: Mutex<MemberTrackingOptions>,
    /// The cluster beside which this process runs as an agent; no other is connected.
    agent_cluster: Option<String>,
    tasks: TaskGroup,
    clusters: Informer,
    members: RwLock<MemberOrErrorByCluster>,
    queue: Arc<ReconnectQueue>,
    /// Held while members connect and disconnect, so that a callback added later misses
    /// none.
    connection_callbacks: Mutex<Vec<ConnectionCallback>>,
    handlers: ManagedObjectHandlers,
}

impl MemberClusterManagerInner {
    fn secret_informer(&self, namespace: &str) -> Informer {
        let select = ListWatchSelector::all(&SECRETS).namespace(namespace);
        self.informers.get(&self.host, &select)
    }
}

/// The connected members. Clones are the same.
#[derive(Clone)]
pub struct MemberClusterManager(Arc<MemberClusterManagerInner>);

impl MemberClusterManager {
    /// Watches the Clusters on `host` that the connector reaches, and their secrets. `informers` are the
    /// host's.
    pub fn start(
        host: Arc<dyn Api>,
        informers: &InformerFactory,
        connector: Arc<dyn MemberConnector>,
        tasks: &TaskGroup,
    ) -> Self {
        Self::start_with_tracking(
            MemberTrackingOptions::default(),
            host,
            informers,
            connector,
            tasks,
        )
    }

    /// As [`Self::start`], with more tracked in each member.
    pub fn start_with_tracking(
        detail: MemberTrackingOptions,
        host: Arc<dyn Api>,
        informers: &InformerFactory,
        connector: Arc<dyn MemberConnector>,
        tasks: &TaskGroup,
    ) -> Self {
        Self::start_scoped(None, detail, host, informers, connector, tasks)
    }

    /// The manager of an agent: only `cluster` is connected, whatever its mode and without
    /// its Secrets.
    pub fn start_for_agent(
        cluster: &str,
        host: Arc<dyn Api>,
        informers: &InformerFactory,
        connector: Arc<dyn MemberConnector>,
        tasks: &TaskGroup,
    ) -> Self {
        let (agent_cluster, detail) = (Some(cluster.to_owned()), MemberTrackingOptions::default());
        Self::start_scoped(agent_cluster, detail, host, informers, connector, tasks)
    }

    fn start_scoped(
        agent_cluster: Option<String>,
        detail: MemberTrackingOptions,
        host: Arc<dyn Api>,
        informers: &InformerFactory,
        connector: Arc<dyn MemberConnector>,
        tasks: &TaskGroup,
    ) -> Self {
        let clusters = informers.get(&host, &ListWatchSelector::all(&CLUSTERS));
        let inbox = Arc::new(ReconnectQueue::default());
        let workqueue = Arc::clone(&inbox);
        clusters.add_event_handler(move |change| workqueue.add(change.object().name()));
        let shared = Arc::new(MemberClusterManagerInner {
            host,
            informers: informers.clone(),
            connector,
            tracking: Mutex::new(detail),
            agent_cluster,
            tasks: tasks.child(),
            clusters,
            members: RwLock::default(),
            queue: inbox,
            connection_callbacks: Mutex::default(),
            handlers: ManagedObjectHandlers::default(),
        });
        let keeper = MemberConnectionController {
            shared: Arc::clone(&shared),
            secrets: AHashMap::new(),
        };
        shared.tasks.spawn(keeper.run());
        Self(shared)
    }

    /// A member, or the reason why it is not connected.
    pub fn get(&self, cluster: &str) -> Result<Arc<MemberCluster>, String> {
        match self.0.members.read().get(cluster) {
            Some(member) => member.clone(),
            None => Err(format!("cluster {cluster:?} not found")),
        }
    }

    /// Changes what is tracked in every member, now and later.
    pub fn set_tracking(&self, tracking: MemberTrackingOptions) {
        let _nobody_comes_or_goes = self.0.connection_callbacks.lock();
        *self.0.tracking.lock() = tracking;
        for member in self.0.members.read().values().flatten() {
            member.set_tracking(tracking);
        }
    }

    /// The names of the connected clusters.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.members.read();
        let connected = state.iter().filter(|(_, m)| m.is_ok());
        connected.map(|(name, _)| name.clone()).collect()
    }

    /// Waits until the Clusters and their secrets were listed and reconciled once, so
    /// that [`Self::get`] is accurate.
    pub async fn wait_for_cache_sync(&self) {
        let shared = &self.0;
        shared.clusters.wait_for_cache_sync().await;
        let clusters = shared.clusters.list();
        for cluster in &clusters {
            let view = cluster.decode::<Cluster>().ok();
            let secret = view.as_ref().and_then(|c| c.spec.secret_ref.as_ref());
            let secret = secret.filter(|_| shared.agent_cluster.is_none());
            if let Some(reference) = secret {
                shared
                    .secret_informer(&reference.namespace)
                    .wait_for_cache_sync()
                    .await;
            }
        }
        let names = clusters.iter().map(|c| c.name().to_owned());
        let pass = shared.queue.add_all(names);
        let mut done = shared.queue.completed_pass.subscribe();
        let synced = done.wait_for(|synced| *synced >= pass);
        // After shutdown there is nothing to wait for.
        let _ = shared.tasks.shutdown().run_until_triggered(synced).await;
    }

    /// Calls `callback` with a cluster's name and `true` when it gets a (new) connection,
    /// `false` when it loses it; at once for those connected now. The callback must not
    /// block or add callbacks.
    pub fn on_connection_change(&self, callback: impl Fn(&str, bool) + Send + Sync + 'static) {
        let mut callbacks = self.0.connection_callbacks.lock();
        for name in self.names() {
            callback(&name, true);
        }
        callbacks.push(Box::new(callback));
    }

    /// Calls `handler` for every change of every managed object with an informer, now and
    /// later. The handler must not block, start informers or add callbacks.
    pub fn on_managed_object(
        &self,
        handler: impl Fn(&str, &Gvr, &InformerEvent<'_>) + Send + Sync + 'static,
    ) {
        let _nobody_comes_or_goes = self.0.connection_callbacks.lock();
        let state = self.0.members.read();
        let members: Vec<_> = state.values().flatten().cloned().collect();
        drop(state);
        self.0.handlers.add(Arc::new(handler), &members);
    }

    /// Stops and joins everything.
    pub async fn close(&self) {
        self.0.tasks.stop().await;
        let members = std::mem::take(&mut *self.0.members.write());
        for member in members.into_values().flatten() {
            member.close().await;
        }
    }
}

/// Reconnects members when their Cluster or Secret changes.
struct MemberConnectionController {
    shared: Arc<MemberClusterManagerInner>,
    /// Namespace → its secrets, and the clusters that use each of them.
    secrets: AHashMap<String, (Informer, ClustersBySecret)>,
}

type ClustersBySecret = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

impl MemberConnectionController {
    async fn run(mut self) {
        let (inbox, tasks) = (Arc::clone(&self.shared.queue), self.shared.tasks.clone());
        while tasks
            .shutdown()
            .run_until_triggered(inbox.notify.notified())
            .await
            .is_some()
        {
            let (names, pass) = inbox.take_pending();
            for name in names {
                self.reconcile(&name);
            }
            inbox.completed_pass.send_replace(pass);
        }
    }

    fn reconcile(&mut self, name: &str) {
        let Some(cluster) = self.shared.clusters.get("", name) else {
            let callbacks = self.shared.connection_callbacks.lock();
            self.replace_member(name, None, &callbacks);
            return;
        };
        let desired = match cluster.decode::<Cluster>() {
            Ok(view) => self.endpoint(&cluster, &view),
            Err(error) => Err(format!("cluster {name:?}: {error}")),
        };
        let current = self.shared.members.read().get(name).cloned();
        if let (Some(Ok(member)), Ok(desired)) = (&current, &desired)
            && member.endpoint() == desired
        {
            return;
        }
        let callbacks = self.shared.connection_callbacks.lock();
        let next = desired.and_then(|endpoint| {
            let shared = &self.shared;
            MemberCluster::connect(
                endpoint,
                &*shared.connector,
                &shared.handlers,
                *shared.tracking.lock(),
                &shared.tasks,
            )
        });
        if let (Some(Ok(old)), Ok(new)) = (&current, &next) {
            // Everything tracked over the old connection is tracked over the new one.
            for resource in old.managed_resources() {
                new.managed_informer(&resource);
            }
            if old.is_aggregating() {
                new.resource_summary();
            }
        }
        self.replace_member(name, Some(next), &callbacks);
    }

    fn endpoint(&mut self, object: &Object, cluster: &Cluster) -> Result<MemberEndpoint, String> {
        let name = object.name();
        if let Some(agent_cluster) = &self.shared.agent_cluster {
            return match agent_cluster == name {
                true => Ok(MemberEndpoint::beside_agent(name)),
                false => Err(format!("cluster {name:?} is not the agent's")),
            };
        }
        if cluster.spec.sync_mode == "Pull" {
            if self.shared.connector.reaches_pull_members() {
                return Ok(MemberEndpoint::through_tunnel(object));
            }
            return Err(format!("cluster {name:?} is in pull mode"));
        }
        let Some(reference) = &cluster.spec.secret_ref else {
            return Err(format!("cluster {name:?} has no secretRef"));
        };
        let secrets = self.watch_secrets(name, reference);
        let secret = secrets
            .get(&reference.namespace, &reference.name)
            .ok_or_else(|| {
                let key = format!("{}/{}", reference.namespace, reference.name);
                match secrets.has_synced() {
                    true => format!("the secret {key:?} of cluster {name:?} does not exist"),
                    false => format!("the secret {key:?} of cluster {name:?} is not read yet"),
                }
            })?;
        MemberEndpoint::new(name, cluster, &secret)
    }

    /// The secrets of a namespace; a change of the cluster's own secret enqueues `name`
    /// again.
    fn watch_secrets(&mut self, name: &str, reference: &LocalSecretReference) -> Informer {
        let shared = &self.shared;
        let (informer, users) = self
            .secrets
            .entry(reference.namespace.clone())
            .or_insert_with(|| {
                let informer = shared.secret_informer(&reference.namespace);
                let users = ClustersBySecret::default();
                let (clusters_by_secret, inbox) = (Arc::clone(&users), Arc::clone(&shared.queue));
                informer.add_event_handler(move |change| {
                    for cluster in clusters_by_secret
                        .lock()
                        .get(change.object().name())
                        .into_iter()
                        .flatten()
                    {
                        inbox.add(cluster);
                    }
                });
                // Only after the list is it certain that a secret is missing.
                let (listed, clusters_by_secret, inbox) = (
                    informer.clone(),
                    Arc::clone(&users),
                    Arc::clone(&shared.queue),
                );
                let shutdown = shared.tasks.shutdown().clone();
                shared.tasks.spawn(async move {
                    if shutdown
                        .run_until_triggered(listed.wait_for_cache_sync())
                        .await
                        .is_some()
                    {
                        for cluster in clusters_by_secret.lock().values().flatten() {
                            inbox.add(cluster);
                        }
                    }
                });
                (informer, users)
            });
        let mut users = users.lock();
        users
            .entry(reference.name.clone())
            .or_default()
            .insert(name.to_owned());
        informer.clone()
    }

    /// The caller holds the lock of the callbacks.
    fn replace_member(
        &self,
        name: &str,
        next: Option<Result<Arc<MemberCluster>, String>>,
        callbacks: &[ConnectionCallback],
    ) {
        let connected = matches!(next, Some(Ok(_)));
        if let Some(Err(error)) = &next {
            tracing::debug!(cluster = name, why = error, "not connected");
        }
        let old = {
            let mut state = self.shared.members.write();
            match next {
                Some(next) => state.insert(name.to_owned(), next),
                None => state.remove(name),
            }
        };
        let former = old.and_then(Result::ok);
        if connected || former.is_some() {
            for callback in callbacks {
                callback(name, connected);
            }
        }
        if let Some(former) = former {
            // In a task of its own, so that closing one member does not delay the others.
            self.shared.tasks.spawn(async move { former.close().await });
        }
    }
}

#[cfg(test)]
mod tests;
