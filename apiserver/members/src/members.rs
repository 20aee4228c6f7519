//! Keeps the connections to all member clusters in sync with the Clusters and their
//! Secrets.
//!
//! One task reconnects; it never waits for a member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Change, Informer, Informers, Select, Tasks};
use machinery::Gvr;
use openapi::karmada::Cluster;
use openapi::karmada::cluster::SecretRef;
use openapi::karmada::resources::CLUSTERS;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::endpoint::{Connector, Endpoint};
use crate::member::{Detail, Handlers, Member};

static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");

type OnConnect = Box<dyn Fn(&str, bool) + Send + Sync>;
type State = BTreeMap<String, Result<Arc<Member>, String>>;

/// The clusters to reconcile.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// The last completed pass.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Waiting {
    names: BTreeSet<String>,
    /// The number of passes started.
    turns: u64,
}

impl Inbox {
    fn add(&self, name: &str) {
        self.add_all(std::iter::once(name.to_owned()));
    }

    /// Returns the pass in which these names will be reconciled.
    fn add_all(&self, names: impl Iterator<Item = String>) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.names.extend(names);
        self.wake.notify_one();
        waiting.turns + 1
    }

    fn take(&self) -> (BTreeSet<String>, u64) {
        let mut waiting = self.waiting.lock();
        waiting.turns += 1;
        (std::mem::take(&mut waiting.names), waiting.turns)
    }
}

struct Shared {
    host: Arc<dyn Api>,
    informers: Informers,
    connector: Arc<dyn Connector>,
    detail: Detail,
    tasks: Tasks,
    clusters: Informer,
    state: RwLock<State>,
    inbox: Arc<Inbox>,
    /// Held while members connect and disconnect, so that a callback added later misses
    /// none.
    on_connect: Mutex<Vec<OnConnect>>,
    handlers: Handlers,
}

impl Shared {
    fn secrets(&self, namespace: &str) -> Informer {
        let select = Select::all(&SECRETS).namespace(namespace);
        self.informers.get(&self.host, &select)
    }
}

/// The connected members. Clones are the same.
#[derive(Clone)]
pub struct Members(Arc<Shared>);

impl Members {
    /// Watches the Clusters in push mode on `host` and their secrets. `informers` are the
    /// host's.
    pub fn start(
        host: Arc<dyn Api>,
        informers: &Informers,
        connector: Arc<dyn Connector>,
        tasks: &Tasks,
    ) -> Self {
        Self::telling(Detail::default(), host, informers, connector, tasks)
    }

    /// As [`Self::start`], with more tracked in each member.
    pub fn telling(
        detail: Detail,
        host: Arc<dyn Api>,
        informers: &Informers,
        connector: Arc<dyn Connector>,
        tasks: &Tasks,
    ) -> Self {
        let clusters = informers.get(&host, &Select::all(&CLUSTERS));
        let inbox = Arc::new(Inbox::default());
        let told = Arc::clone(&inbox);
        clusters.on_change(move |change| told.add(change.object().name()));
        let shared = Arc::new(Shared {
            host,
            informers: informers.clone(),
            connector,
            detail,
            tasks: tasks.child(),
            clusters,
            state: RwLock::default(),
            inbox,
            on_connect: Mutex::default(),
            handlers: Handlers::default(),
        });
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            secrets: AHashMap::new(),
        };
        shared.tasks.spawn(keeper.run());
        Self(shared)
    }

    /// A member, or the reason why it is not connected.
    pub fn get(&self, cluster: &str) -> Result<Arc<Member>, String> {
        match self.0.state.read().get(cluster) {
            Some(found) => found.clone(),
            None => Err(format!("cluster {cluster:?} not found")),
        }
    }

    /// The names of the connected clusters.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.state.read();
        let connected = state.iter().filter(|(_, m)| m.is_ok());
        connected.map(|(name, _)| name.clone()).collect()
    }

    /// Waits until the Clusters and their secrets were listed and reconciled once, so
    /// that [`Self::get`] is accurate.
    pub async fn wait_synced(&self) {
        let shared = &self.0;
        shared.clusters.wait_synced().await;
        let clusters = shared.clusters.list();
        for cluster in &clusters {
            let view = cluster.view::<Cluster>().ok();
            let secret = view.as_ref().and_then(|c| c.spec.secret_ref.as_ref());
            if let Some(at) = secret {
                shared.secrets(&at.namespace).wait_synced().await;
            }
        }
        let names = clusters.iter().map(|c| c.name().to_owned());
        let turn = shared.inbox.add_all(names);
        let mut done = shared.inbox.done.subscribe();
        let over = done.wait_for(|over| *over >= turn);
        // After shutdown there is nothing to wait for.
        let _ = shared.tasks.shutdown().unless(over).await;
    }

    /// Calls `callback` with a cluster's name and `true` when it gets a (new) connection,
    /// `false` when it loses it; at once for those connected now. The callback must not
    /// block or add callbacks.
    pub fn on_connect(&self, callback: impl Fn(&str, bool) + Send + Sync + 'static) {
        let mut callbacks = self.0.on_connect.lock();
        for name in self.names() {
            callback(&name, true);
        }
        callbacks.push(Box::new(callback));
    }

    /// Calls `handler` for every change of every managed object with an informer, now and
    /// later. The handler must not block, start informers or add callbacks.
    pub fn on_object(&self, handler: impl Fn(&str, &Gvr, &Change<'_>) + Send + Sync + 'static) {
        let _nobody_comes_or_goes = self.0.on_connect.lock();
        let state = self.0.state.read();
        let members: Vec<_> = state.values().flatten().cloned().collect();
        drop(state);
        self.0.handlers.add(Arc::new(handler), &members);
    }

    /// Stops and joins everything.
    pub async fn close(&self) {
        self.0.tasks.stop().await;
        let members = std::mem::take(&mut *self.0.state.write());
        for member in members.into_values().flatten() {
            member.close().await;
        }
    }
}

/// Reconnects members when their Cluster or Secret changes.
struct Keeper {
    shared: Arc<Shared>,
    /// Namespace → its secrets, and the clusters that use each of them.
    secrets: AHashMap<String, (Informer, Users)>,
}

type Users = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

impl Keeper {
    async fn run(mut self) {
        let (inbox, tasks) = (Arc::clone(&self.shared.inbox), self.shared.tasks.clone());
        while tasks
            .shutdown()
            .unless(inbox.wake.notified())
            .await
            .is_some()
        {
            let (names, turn) = inbox.take();
            for name in names {
                self.refresh(&name);
            }
            inbox.done.send_replace(turn);
        }
    }

    fn refresh(&mut self, name: &str) {
        let Some(cluster) = self.shared.clusters.get("", name) else {
            let callbacks = self.shared.on_connect.lock();
            self.replace(name, None, &callbacks);
            return;
        };
        let wanted = match cluster.view::<Cluster>() {
            Ok(view) => self.endpoint(name, &view),
            Err(error) => Err(format!("cluster {name:?}: {error}")),
        };
        let current = self.shared.state.read().get(name).cloned();
        if let (Some(Ok(member)), Ok(wanted)) = (&current, &wanted)
            && member.endpoint() == wanted
        {
            return;
        }
        let callbacks = self.shared.on_connect.lock();
        let next = wanted.and_then(|endpoint| {
            let shared = &self.shared;
            Member::connect(
                endpoint,
                &*shared.connector,
                &shared.handlers,
                shared.detail,
                &shared.tasks,
            )
        });
        if let (Some(Ok(old)), Ok(new)) = (&current, &next) {
            // Everything tracked over the old connection is tracked over the new one.
            for resource in old.resources() {
                new.managed(&resource);
            }
            if old.is_folding() {
                new.summary();
            }
        }
        self.replace(name, Some(next), &callbacks);
    }

    fn endpoint(&mut self, name: &str, cluster: &Cluster) -> Result<Endpoint, String> {
        if cluster.spec.sync_mode == "Pull" {
            return Err(format!("cluster {name:?} is in pull mode"));
        }
        let Some(at) = &cluster.spec.secret_ref else {
            return Err(format!("cluster {name:?} has no secretRef"));
        };
        let secrets = self.secrets_of(name, at);
        let secret = secrets.get(&at.namespace, &at.name).ok_or_else(|| {
            let at = format!("{}/{}", at.namespace, at.name);
            match secrets.is_synced() {
                true => format!("the secret {at:?} of cluster {name:?} does not exist"),
                false => format!("the secret {at:?} of cluster {name:?} is not read yet"),
            }
        })?;
        Endpoint::new(name, &cluster.spec, &secret)
    }

    /// The secrets of a namespace; a change of the cluster's own secret enqueues `name`
    /// again.
    fn secrets_of(&mut self, name: &str, at: &SecretRef) -> Informer {
        let shared = &self.shared;
        let (informer, users) = self.secrets.entry(at.namespace.clone()).or_insert_with(|| {
            let informer = shared.secrets(&at.namespace);
            let users = Users::default();
            let (known, inbox) = (Arc::clone(&users), Arc::clone(&shared.inbox));
            informer.on_change(move |change| {
                for cluster in known
                    .lock()
                    .get(change.object().name())
                    .into_iter()
                    .flatten()
                {
                    inbox.add(cluster);
                }
            });
            // Only after the list is it certain that a secret is missing.
            let (listed, known, inbox) = (
                informer.clone(),
                Arc::clone(&users),
                Arc::clone(&shared.inbox),
            );
            let shutdown = shared.tasks.shutdown().clone();
            shared.tasks.spawn(async move {
                if shutdown.unless(listed.wait_synced()).await.is_some() {
                    for cluster in known.lock().values().flatten() {
                        inbox.add(cluster);
                    }
                }
            });
            (informer, users)
        });
        let mut users = users.lock();
        users
            .entry(at.name.clone())
            .or_default()
            .insert(name.to_owned());
        informer.clone()
    }

    /// The caller holds the lock of the callbacks.
    fn replace(
        &self,
        name: &str,
        next: Option<Result<Arc<Member>, String>>,
        callbacks: &[OnConnect],
    ) {
        let connected = matches!(next, Some(Ok(_)));
        if let Some(Err(why)) = &next {
            tracing::debug!(cluster = name, why, "not connected");
        }
        let old = {
            let mut state = self.shared.state.write();
            match next {
                Some(next) => state.insert(name.to_owned(), next),
                None => state.remove(name),
            }
        };
        let closed = old.and_then(Result::ok);
        if connected || closed.is_some() {
            for callback in callbacks {
                callback(name, connected);
            }
        }
        if let Some(closed) = closed {
            // In a task of its own, so that closing one member does not delay the others.
            self.shared.tasks.spawn(async move { closed.close().await });
        }
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
