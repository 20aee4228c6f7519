//! All members: who is there, connected how, kept in step with the Clusters and
//! their Secrets.
//!
//! Enters: changes of Clusters and Secrets on the host. Leaves: [`Member`]s and
//! callbacks. One task reconnects; it never waits for a member.

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

/// Clusters to look at.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// The last turn that is over.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Waiting {
    names: BTreeSet<String>,
    /// Turns begun.
    turns: u64,
}

impl Inbox {
    fn add(&self, name: &str) {
        self.add_all(std::iter::once(name.to_owned()));
    }

    /// Gives the turn in which these are looked at.
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
    /// Held while members come and go, so that a late callback misses none.
    on_connect: Mutex<Vec<OnConnect>>,
    handlers: Handlers,
}

impl Shared {
    fn secrets(&self, namespace: &str) -> Informer {
        let select = Select::all(&SECRETS).namespace(namespace);
        self.informers.get(&self.host, &select)
    }
}

/// The members. Clones are the same.
#[derive(Clone)]
pub struct Members(Arc<Shared>);

impl Members {
    /// Follows the Clusters in push mode on `host` and their secrets. `informers`
    /// are the host's.
    pub fn start(
        host: Arc<dyn Api>,
        informers: &Informers,
        connector: Arc<dyn Connector>,
        tasks: &Tasks,
    ) -> Self {
        Self::telling(Detail::default(), host, informers, connector, tasks)
    }

    /// The same, of members that tell more.
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

    /// A member, or why there is no connection to it.
    pub fn get(&self, cluster: &str) -> Result<Arc<Member>, String> {
        match self.0.state.read().get(cluster) {
            Some(found) => found.clone(),
            None => Err(format!("cluster {cluster:?} is not known")),
        }
    }

    /// The clusters with a connection.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.state.read();
        let connected = state.iter().filter(|(_, m)| m.is_ok());
        connected.map(|(name, _)| name.clone()).collect()
    }

    /// Waits until the Clusters and their secrets were listed and connections were
    /// made of them, so that [`Self::get`] speaks of what there is.
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
        // Without its tasks there is nothing to wait for.
        let _ = shared.tasks.shutdown().unless(over).await;
    }

    /// Calls `callback` with a cluster's name and `true` when it has a (new)
    /// connection, `false` when it has none any longer; also for those there now.
    /// It must not block, nor add callbacks.
    pub fn on_connect(&self, callback: impl Fn(&str, bool) + Send + Sync + 'static) {
        let mut callbacks = self.0.on_connect.lock();
        for name in self.names() {
            callback(&name, true);
        }
        callbacks.push(Box::new(callback));
    }

    /// Calls `handler` for every change of every managed object that is followed,
    /// now and later. It must not block, nor start to follow anything,
    /// nor add callbacks.
    pub fn on_object(&self, handler: impl Fn(&str, &Gvr, &Change<'_>) + Send + Sync + 'static) {
        let _nobody_comes_or_goes = self.0.on_connect.lock();
        let state = self.0.state.read();
        let members: Vec<_> = state.values().flatten().cloned().collect();
        drop(state);
        self.0.handlers.add(Arc::new(handler), &members);
    }

    /// Ends and joins everything.
    pub async fn close(&self) {
        self.0.tasks.stop().await;
        let members = std::mem::take(&mut *self.0.state.write());
        for member in members.into_values().flatten() {
            member.close().await;
        }
    }
}

/// Who reconnects.
struct Keeper {
    shared: Arc<Shared>,
    /// Namespace → its secrets and the clusters that use one.
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
            // Who followed the old connection follows the new one.
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

    /// The secrets of a namespace; `name` is looked at again when its own changes.
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
            // A secret that is missing is known to be so only after the list.
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

    /// The callbacks' lock is held by the caller.
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
            // Not here: what it is waiting for must not delay the others.
            self.shared.tasks.spawn(async move { closed.close().await });
        }
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
