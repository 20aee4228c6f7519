//! Runs an informer for every kind whose objects may be propagated, and for every kind that a
//! template refers to, as long as the control plane serves it.
//!
//! Repeats discovery when a CustomResourceDefinition or an APIService changes, and periodically
//! only where neither of them reports what may change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Api, At, Error};
use machinery::{Gvk, Gvr, Object};
use openapi::karmada::binding::Condition;
use openapi::karmada::labels::{CLUSTER_POLICY_ID, POLICY_ID};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kinds::{Kinds, Scope, Served};

static DEFINITIONS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const SERVICES: (&str, &str) = ("apiregistration.k8s.io", "apiservices");
/// A kind whose list hangs must not delay the start of the others for longer.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// CustomResourceDefinitions that change together trigger one discovery.
const GATHER: Duration = Duration::from_millis(50);
/// A CustomResourceDefinition is reported before discovery serves its kind.
const SOON: Duration = Duration::from_millis(200);
/// Kinds of aggregated APIs come and go without an event; Karmada uses the same interval.
const REFRESH: Duration = Duration::from_secs(30);
const BY_CLAIM: &str = "claim";

/// The resource and the `namespace/name` of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) gvr: Gvr,
    pub(crate) name: String,
}

type Handler = Arc<dyn Fn(&Arc<Served>, &Change<'_>) + Send + Sync>;

/// A registered event handler.
#[derive(Clone)]
struct Watcher {
    handler: Handler,
    /// Whether the handler gets only objects that may be propagated.
    templates: bool,
}

/// A kind with a running informer.
#[derive(Clone)]
struct Followed {
    served: Arc<Served>,
    informer: Informer,
    /// Whether its objects may be propagated; other kinds are only referred to.
    templates: bool,
}

pub(crate) struct Templates {
    api: Arc<dyn Api>,
    informers: Informers,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) scope: Scope,
    /// Locked while a kind starts or a handler registers, so that each handler sees each kind once.
    watchers: Mutex<Vec<Watcher>>,
    /// Triggers discovery.
    queue: Queue<()>,
    /// Consecutive discoveries that lacked a kind of an established CustomResourceDefinition.
    behind: AtomicU32,
    followed: Mutex<HashMap<Gvr, Followed>>,
    /// Kinds that templates refer to, served or not.
    needed: Mutex<HashSet<Gvk>>,
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
            watchers: Mutex::default(),
            queue: Queue::with_backoff(SOON, REFRESH),
            behind: AtomicU32::new(0),
            followed: Mutex::default(),
            needed: Mutex::default(),
        })
    }

    /// Registers a handler for changes of objects that may be propagated.
    pub(crate) fn on_change(
        &self,
        handler: impl Fn(&Arc<Served>, &Change<'_>) + Send + Sync + 'static,
    ) {
        self.watch(Watcher {
            handler: Arc::new(handler),
            templates: true,
        });
    }

    /// Registers a handler for changes of every object with an informer, in any namespace.
    pub(crate) fn on_any_change(
        &self,
        handler: impl Fn(&Arc<Served>, &Change<'_>) + Send + Sync + 'static,
    ) {
        self.watch(Watcher {
            handler: Arc::new(handler),
            templates: false,
        });
    }

    fn watch(&self, watcher: Watcher) {
        let mut watchers = self.watchers.lock();
        let followed: Vec<Followed> = self.followed.lock().values().cloned().collect();
        for kind in followed {
            self.introduce(&kind, watcher.clone());
        }
        watchers.push(watcher);
    }

    fn introduce(&self, kind: &Followed, watcher: Watcher) {
        if watcher.templates && !kind.templates {
            return;
        }
        let (served, scope) = (Arc::clone(&kind.served), self.scope.clone());
        kind.informer.on_change(move |change| {
            if !watcher.templates || scope.takes(change.object().namespace()) {
                (watcher.handler)(&served, change);
            }
        });
    }

    /// Starts the informer of a kind that a template refers to, at once or as soon as it is served.
    pub(crate) fn need(&self, api_version: &str, kind: &str) -> Option<Arc<Served>> {
        let kind = Gvk::from_api_version(api_version, kind);
        let served = self.kinds.of(&kind);
        self.needed.lock().insert(kind);
        let served = served?;
        if !self.followed.lock().contains_key(&served.gvr) {
            let templates = self.kinds.templates().contains(&served);
            self.start(Arc::clone(&served), templates);
        }
        Some(served)
    }

    /// Starts the informers of all template kinds, now and when new kinds appear. Returns when the
    /// informers of all kinds that are known have synced.
    pub(crate) async fn follow(self: &Arc<Self>, tasks: &Tasks) {
        let definitions = self.informers.get(&self.api, &Select::all(&DEFINITIONS));
        self.ask_again_with(&definitions);
        let first = self.refresh().await;
        match first {
            Ok(Action::After(pause)) => self.queue.add_after((), pause),
            Ok(Action::Done) => {}
            Err(error) => {
                tracing::warn!(%error, "API discovery of the control plane failed");
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
            followed
                .values()
                .map(|kind| kind.informer.clone())
                .collect()
        };
        let all = async {
            for informer in known {
                informer.wait_synced().await;
            }
        };
        if tokio::time::timeout(FIRST_LIST, all).await.is_err() {
            let missing = self.informers.unsynced();
            tracing::warn!(
                ?missing,
                "starting although the informers of some templates have not synced"
            );
        }
    }

    /// Repeats discovery when an object of the informer changes.
    fn ask_again_with(&self, informer: &Informer) {
        let queue = self.queue.clone();
        informer.on_change(move |change| {
            if !change.initial {
                queue.add_after((), GATHER);
            }
        });
    }

    /// Starts and stops informers as the served kinds require, and returns when to repeat
    /// discovery.
    async fn refresh(&self) -> Result<Action, Error> {
        let complete = self.kinds.refresh(&*self.api).await?;
        let desired = self.wanted();
        let obsolete: Vec<Gvr> = {
            let followed = self.followed.lock();
            let obsolete = followed.values().filter(|kind| {
                desired.get(&kind.served.gvr) != Some(&(Arc::clone(&kind.served), kind.templates))
            });
            obsolete.map(|kind| kind.served.gvr.clone()).collect()
        };
        for resource in obsolete {
            self.stop(&resource).await;
        }
        for (served, templates) in desired.into_values() {
            self.start(served, templates);
        }
        if self.is_behind() {
            let turns = self.behind.fetch_add(1, Ordering::Relaxed);
            let pause = SOON.saturating_mul(1 << turns.min(8));
            return Ok(Action::After(pause.min(REFRESH)));
        }
        self.behind.store(0, Ordering::Relaxed);
        Ok(if complete && !self.has_foreign_services() {
            Action::Done
        } else {
            Action::After(REFRESH)
        })
    }

    /// The kinds that need an informer, and whether their objects may be propagated.
    fn wanted(&self) -> HashMap<Gvr, (Arc<Served>, bool)> {
        let needed = self.needed.lock();
        let needed = needed.iter().filter_map(|kind| self.kinds.of(kind));
        let needed = needed.map(|served| (served, false));
        let templates = self.kinds.templates().into_iter();
        needed
            .chain(templates.map(|served| (served, true)))
            .map(|(served, templates)| (served.gvr.clone(), (served, templates)))
            .collect()
    }

    /// Whether an established CustomResourceDefinition has a kind that discovery does not serve
    /// yet.
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

    /// Whether an APIService of another server exists.
    fn has_foreign_services(&self) -> bool {
        let followed = self.followed.lock();
        let mut kinds = followed.values();
        let services = kinds.find(|kind| is_services(&kind.served.gvr));
        services.is_some_and(|services| {
            let all = services.informer.list();
            all.iter()
                .any(|o| o.view::<Service>().is_ok_and(|s| s.is_foreign()))
        })
    }

    fn start(&self, served: Arc<Served>, templates: bool) {
        let watchers = self.watchers.lock();
        if self.followed.lock().contains_key(&served.gvr) {
            return;
        }
        let informer = self.informers.get(&self.api, &Select::all(&served.gvr));
        informer.add_index(BY_CLAIM, claims);
        if is_services(&served.gvr) {
            self.ask_again_with(&informer);
        }
        let kind = Followed {
            served,
            informer,
            templates,
        };
        let mut followed = self.followed.lock();
        followed.insert(kind.served.gvr.clone(), kind.clone());
        drop(followed);
        for watcher in &*watchers {
            self.introduce(&kind, watcher.clone());
        }
    }

    /// Stops the informer of a kind that is no longer served, or is now served in another version.
    async fn stop(&self, resource: &Gvr) {
        let Some(kind) = self.followed.lock().remove(resource) else {
            return;
        };
        self.informers
            .forget(&self.api, &Select::all(resource))
            .await;
        let watchers = self.watchers.lock().clone();
        for watcher in watchers {
            if watcher.templates && !kind.templates {
                continue;
            }
            let matches_handler =
                |o: &Object| !watcher.templates || self.scope.takes(o.namespace());
            for object in kind.informer.list_where(matches_handler) {
                let change = Change {
                    old: Some(&object),
                    new: None,
                    // The objects still exist, so this is not a deletion.
                    initial: true,
                };
                (watcher.handler)(&kind.served, &change);
            }
        }
    }

    /// The template from the informer's cache.
    pub(crate) fn get(&self, key: &Key) -> Option<(Arc<Served>, Object)> {
        let followed = self.followed.lock();
        let kind = followed.get(&key.gvr)?;
        let object = kind.informer.get_key(&key.name)?;
        Some((Arc::clone(&kind.served), object))
    }

    /// The keys of all templates of some kinds.
    pub(crate) fn keys_of(&self, matches: impl Fn(&Gvk) -> bool) -> Vec<Key> {
        let followed = self.followed.lock();
        let some = followed
            .values()
            .filter(|kind| kind.templates && matches(&kind.served.gvk));
        some.flat_map(|kind| {
            let objects = kind
                .informer
                .list_where(|o| self.scope.takes(o.namespace()));
            let key = |o: Object| Key {
                gvr: kind.served.gvr.clone(),
                name: o.head().key(),
            };
            objects.into_iter().map(key)
        })
        .collect()
    }

    /// Returns a template that is at least as new as `revision`.
    pub(crate) async fn at_least(
        &self,
        served: &Served,
        namespace: &str,
        name: &str,
        revision: u64,
    ) -> Result<Option<Object>, Error> {
        let informer = self.informer(served);
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

    fn informer(&self, served: &Served) -> Option<Informer> {
        let followed = self.followed.lock();
        followed.get(&served.gvr).map(|kind| kind.informer.clone())
    }

    /// Lists the objects of a kind in a namespace (in all namespaces if it is empty) that meet a
    /// condition; `None` until the informer has synced.
    pub(crate) fn some(
        &self,
        served: &Served,
        namespace: &str,
        condition: impl Fn(&Object) -> bool,
    ) -> Option<Vec<Object>> {
        let informer = self.informer(served).filter(Informer::is_synced)?;
        let in_namespace = |o: &Object| namespace.is_empty() || o.namespace() == namespace;
        Some(informer.list_where(|o| in_namespace(o) && condition(o)))
    }

    /// Lists all templates that a policy has claimed.
    pub(crate) fn claimed(&self, id: &str) -> Vec<(Arc<Served>, Object)> {
        let followed = self.followed.lock();
        let mut all = Vec::new();
        for kind in followed.values() {
            let found = kind.informer.by_index(BY_CLAIM, id);
            all.extend(found.into_iter().map(|o| (Arc::clone(&kind.served), o)));
        }
        all
    }
}

/// Matches the resource in any served version.
fn is_services(resource: &Gvr) -> bool {
    (&*resource.group, &*resource.resource) == SERVICES
}

/// The typed view of a CustomResourceDefinition: the kinds that it serves.
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
    /// The served kinds; none before the definition is established.
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

/// The typed view of an APIService: which server serves its group.
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
    /// Whether a server other than this one serves the group.
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
