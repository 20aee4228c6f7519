//! The objects that may be propagated, followed as long as their kinds are served.
//!
//! Enters: the kinds of the control plane, its objects. Leaves: objects by kind and
//! name, and their changes. Asks discovery again when a CustomResourceDefinition
//! changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Error};
use machinery::{Gvr, Object};
use openapi::karmada::labels::{CLUSTER_POLICY_ID, POLICY_ID};
use parking_lot::Mutex;
use runtime::{Action, Change, Informer, Informers, Queue, Select, Tasks, run_workers};

use crate::kinds::{Kinds, Scope, Served};

static DEFINITIONS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// A kind that cannot be listed must not hold up the others for longer.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Kinds also come without a definition here: from aggregated APIs.
pub(crate) const REFRESH: Duration = Duration::from_secs(30);
const BY_CLAIM: &str = "claim";

/// A template's resource and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) gvr: Gvr,
    pub(crate) name: String,
}

type Handler = Arc<dyn Fn(&Arc<Served>, &Change<'_>) + Send + Sync>;

pub(crate) struct Templates {
    api: Arc<dyn Api>,
    informers: Informers,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) scope: Scope,
    handler: Mutex<Option<Handler>>,
    followed: Mutex<HashMap<Gvr, (Arc<Served>, Informer)>>,
}

impl Templates {
    pub(crate) fn new(
        api: Arc<dyn Api>,
        informers: Informers,
        kinds: Arc<Kinds>,
        scope: Scope,
    ) -> Arc<Self> {
        Arc::new(Self {
            api,
            informers,
            kinds,
            scope,
            handler: Mutex::default(),
            followed: Mutex::default(),
        })
    }

    /// Who is told of changes; before [`Self::follow`].
    pub(crate) fn on_change(
        &self,
        handler: impl Fn(&Arc<Served>, &Change<'_>) + Send + Sync + 'static,
    ) {
        *self.handler.lock() = Some(Arc::new(handler));
    }

    /// Follows every kind of template, now and when new ones are defined. Returns
    /// when all that are known have been listed once.
    pub(crate) async fn follow(self: &Arc<Self>, tasks: &Tasks) {
        let queue: Queue<()> = Queue::new();
        let definitions = self.informers.get(&self.api, &Select::all(&DEFINITIONS));
        let again = queue.clone();
        definitions.on_change(move |change| {
            if !change.initial {
                again.add(());
            }
        });
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the kinds of the control plane cannot be read");
            queue.add_backoff(());
        } else {
            queue.add_after((), REFRESH);
        }
        let it = Arc::clone(self);
        run_workers(tasks, "kinds", &queue, 1, move |()| {
            let it = Arc::clone(&it);
            async move { it.refresh().await.map(|()| Action::After(REFRESH)) }
        });
        let known: Vec<Informer> = {
            let followed = self.followed.lock();
            followed.values().map(|(_, i)| i.clone()).collect()
        };
        let all = async {
            for informer in known {
                informer.wait_synced().await;
            }
        };
        if tokio::time::timeout(FIRST_LIST, all).await.is_err() {
            let missing = self.informers.unsynced();
            tracing::warn!(?missing, "going on without templates that cannot be listed");
        }
    }

    async fn refresh(&self) -> Result<(), Error> {
        self.kinds.refresh(&*self.api).await?;
        for served in self.kinds.templates() {
            let known = self.followed.lock().contains_key(&served.gvr);
            if !known {
                self.start(served);
            }
        }
        Ok(())
    }

    fn start(&self, served: Arc<Served>) {
        let informer = self.informers.get(&self.api, &Select::all(&served.gvr));
        informer.add_index(BY_CLAIM, claims);
        let entry = (Arc::clone(&served), informer.clone());
        self.followed.lock().insert(served.gvr.clone(), entry);
        if let Some(handler) = self.handler.lock().clone() {
            let scope = self.scope.clone();
            informer.on_change(move |change| {
                if scope.takes(change.object().namespace()) {
                    handler(&served, change);
                }
            });
        }
    }

    /// A template as it was seen last.
    pub(crate) fn get(&self, key: &Key) -> Option<(Arc<Served>, Object)> {
        let followed = self.followed.lock();
        let (served, informer) = followed.get(&key.gvr)?;
        let object = informer.get_key(&key.name)?;
        Some((Arc::clone(served), object))
    }

    /// A template, at least as new as `revision`.
    pub(crate) async fn at_least(
        &self,
        served: &Served,
        namespace: &str,
        name: &str,
        revision: u64,
    ) -> Result<Option<Object>, Error> {
        let informer = {
            let followed = self.followed.lock();
            followed.get(&served.gvr).map(|(_, i)| i.clone())
        };
        if let Some(found) = informer.and_then(|i| i.get(namespace, name))
            && found.revision() >= revision
        {
            return Ok(Some(found));
        }
        match self.api.get(At::one(&served.gvr, namespace, name)).await {
            Ok(object) => Ok(Some(object)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All templates that a policy has claimed.
    pub(crate) fn claimed(&self, id: &str) -> Vec<(Arc<Served>, Object)> {
        let followed = self.followed.lock();
        let mut all = Vec::new();
        for (served, informer) in followed.values() {
            let found = informer.by_index(BY_CLAIM, id);
            all.extend(found.into_iter().map(|o| (Arc::clone(served), o)));
        }
        all
    }
}

/// The ids of the policies that have claimed an object.
pub(crate) fn claims(object: &Object) -> Vec<String> {
    [POLICY_ID, CLUSTER_POLICY_ID]
        .iter()
        .filter_map(|label| object.head().label(label))
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}
