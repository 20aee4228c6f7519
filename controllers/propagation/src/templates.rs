//! The objects that may be propagated, followed as long as their kinds are served.
//!
//! Enters: the kinds of the control plane, its objects. Leaves: objects by kind and
//! name, and their changes. Asks discovery again when a CustomResourceDefinition or an
//! APIService changes, and by the clock only where neither tells of what may change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Api, At, Error};
use machinery::{Gvk, Gvr, Object};
use openapi::karmada::binding::Condition;
use openapi::karmada::labels::{CLUSTER_POLICY_ID, POLICY_ID};
use parking_lot::Mutex;
use runtime::{Action, Change, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kinds::{Kinds, Scope, Served};

static DEFINITIONS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const SERVICES: (&str, &str) = ("apiregistration.k8s.io", "apiservices");
/// A kind that cannot be listed must not hold up the others for longer.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Definitions that come together are asked about together.
const GATHER: Duration = Duration::from_millis(50);
/// A definition is told before discovery knows its kind.
const SOON: Duration = Duration::from_millis(200);
/// Kinds of aggregated APIs come and go without a word, as Karmada's interval.
const REFRESH: Duration = Duration::from_secs(30);
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
    /// When discovery is asked.
    queue: Queue<()>,
    /// Turns in a row in which discovery did not know all definitions.
    behind: AtomicU32,
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
            queue: Queue::with_backoff(SOON, REFRESH),
            behind: AtomicU32::new(0),
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
        let definitions = self.informers.get(&self.api, &Select::all(&DEFINITIONS));
        self.ask_again_with(&definitions);
        let first = self.refresh().await;
        match first {
            Ok(Action::After(pause)) => self.queue.add_after((), pause),
            Ok(Action::Done) => {}
            Err(error) => {
                tracing::warn!(%error, "the kinds of the control plane cannot be read");
                self.queue.add_backoff(());
            }
        }
        let it = Arc::clone(self);
        run_workers(tasks, "kinds", &self.queue, 1, move |()| {
            let it = Arc::clone(&it);
            async move { it.refresh().await }
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

    /// Changes of what an informer follows are changes of the kinds.
    fn ask_again_with(&self, informer: &Informer) {
        let queue = self.queue.clone();
        informer.on_change(move |change| {
            if !change.initial {
                queue.add_after((), GATHER);
            }
        });
    }

    /// Brings what is followed in step with what is served, and says when to look
    /// again.
    async fn refresh(&self) -> Result<Action, Error> {
        let whole = self.kinds.refresh(&*self.api).await?;
        let served = self.kinds.templates();
        let gone: Vec<Arc<Served>> = {
            let followed = self.followed.lock();
            let all = followed.values().map(|(kind, _)| kind);
            all.filter(|kind| !served.contains(kind)).cloned().collect()
        };
        for kind in gone {
            self.stop(&kind).await;
        }
        for kind in served {
            let known = self.followed.lock().contains_key(&kind.gvr);
            if !known {
                self.start(kind);
            }
        }
        if self.is_behind() {
            let turns = self.behind.fetch_add(1, Ordering::Relaxed);
            let pause = SOON.saturating_mul(1 << turns.min(8));
            return Ok(Action::After(pause.min(REFRESH)));
        }
        self.behind.store(0, Ordering::Relaxed);
        Ok(if whole && !self.has_foreign_services() {
            Action::Done
        } else {
            Action::After(REFRESH)
        })
    }

    /// Whether a definition says that its kind is served, and discovery does not yet.
    fn is_behind(&self) -> bool {
        let informer = self
            .informers
            .running(&self.api, &Select::all(&DEFINITIONS));
        let definitions = informer.map(|i| i.list()).unwrap_or_default();
        definitions.iter().any(|definition| {
            let established = definition.view::<Definition>();
            established.is_ok_and(|d| !d.served().all(|kind| self.kinds.of(&kind).is_some()))
        })
    }

    /// Whether there are APIs of other servers behind the host.
    fn has_foreign_services(&self) -> bool {
        let followed = self.followed.lock();
        let services = followed.iter().find(|(gvr, _)| is_services(gvr));
        services.is_some_and(|(_, (_, informer))| {
            let all = informer.list();
            all.iter()
                .any(|o| o.view::<Service>().is_ok_and(|s| s.is_foreign()))
        })
    }

    fn start(&self, served: Arc<Served>) {
        let informer = self.informers.get(&self.api, &Select::all(&served.gvr));
        informer.add_index(BY_CLAIM, claims);
        if is_services(&served.gvr) {
            self.ask_again_with(&informer);
        }
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

    /// Lets go of a kind that is served no longer, or in another version now.
    async fn stop(&self, kind: &Arc<Served>) {
        let Some((served, informer)) = self.followed.lock().remove(&kind.gvr) else {
            return;
        };
        self.informers
            .forget(&self.api, &Select::all(&served.gvr))
            .await;
        let Some(handler) = self.handler.lock().clone() else {
            return;
        };
        for object in informer.list_where(|o| self.scope.takes(o.namespace())) {
            let change = Change {
                old: Some(&object),
                new: None,
                // Nobody has deleted it.
                initial: true,
            };
            handler(&served, &change);
        }
    }

    /// A template as it was seen last.
    pub(crate) fn get(&self, key: &Key) -> Option<(Arc<Served>, Object)> {
        let followed = self.followed.lock();
        let (served, informer) = followed.get(&key.gvr)?;
        let object = informer.get_key(&key.name)?;
        Some((Arc::clone(served), object))
    }

    /// The templates of some kinds.
    pub(crate) fn keys_of(&self, wanted: impl Fn(&Gvk) -> bool) -> Vec<Key> {
        let followed = self.followed.lock();
        let some = followed.values().filter(|(served, _)| wanted(&served.gvk));
        some.flat_map(|(served, informer)| {
            let objects = informer.list_where(|o| self.scope.takes(o.namespace()));
            let key = |o: Object| Key {
                gvr: served.gvr.clone(),
                name: o.head().key(),
            };
            objects.into_iter().map(key)
        })
        .collect()
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

/// In whichever version they are served.
fn is_services(resource: &Gvr) -> bool {
    (&*resource.group, &*resource.resource) == SERVICES
}

/// What a CustomResourceDefinition says is served.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionNames {
    kind: String,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionStatus {
    conditions: Vec<Condition>,
}

impl Definition {
    /// Nothing before it is established.
    fn served(&self) -> impl Iterator<Item = Gvk> {
        let conditions = &self.status.conditions;
        let established = conditions
            .iter()
            .any(|c| c.kind == "Established" && c.status == "True");
        let versions = self.spec.versions.iter();
        let served = versions.filter(move |v| established && v.served);
        served.map(|v| {
            let (group, kind) = (&self.spec.group, &self.spec.names.kind);
            Gvk::new(group.as_str(), v.name.as_str(), kind.as_str())
        })
    }
}

/// What an APIService says of who serves it.
#[derive(Deserialize)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Deserialize)]
struct ServiceSpec {
    #[serde(default)]
    group: String,
    service: Option<IgnoredAny>,
}

impl Service {
    /// Served behind the host, by another server than this one.
    fn is_foreign(&self) -> bool {
        self.spec.service.is_some() && !openapi::karmada::is_own_group(&self.spec.group)
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
