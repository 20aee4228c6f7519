//! Runs an informer for every kind whose objects may be propagated, and for every kind that a
//! template refers to, as long as the control plane serves it.
//!
//! Repeats discovery when a CustomResourceDefinition or an APIService changes, and periodically
//! only where neither of them reports what may change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{
    Api, ApiResource, Error, Informer, InformerEvent, InformerFactory, ListWatchSelector,
    ResourcePath, TaskGroup, ignore_not_found,
};
use flotilla_runtime::{ReconcileAction, RestMapper, RestMapping, Workqueue, run_workers};
use karmada_api::binding::Condition;
use karmada_api::well_known_keys::{CLUSTER_POLICY_ID, POLICY_ID};
use machinery::backoff::exponential_delay;
use machinery::{Gvk, Gvr, Object};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::template_filter::NamespaceFilter;
use crate::type_configs::{TypeConfigTarget, TypeConfigs};

static CUSTOM_RESOURCE_DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const API_SERVICES: (&str, &str) = ("apiregistration.k8s.io", "apiservices");
/// A kind whose list hangs must not delay the start of the others for longer.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// CustomResourceDefinitions that change together trigger one discovery.
const DISCOVERY_BATCH_DELAY: Duration = Duration::from_millis(50);
/// A CustomResourceDefinition is reported before discovery serves its kind.
const MIN_DISCOVERY_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Kinds of aggregated APIs come and go without an event; Karmada uses the same interval.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
const BY_CLAIM: &str = "claim";

/// The resource and the `namespace/name` of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TemplateKey {
    pub gvr: Gvr,
    pub name: String,
}

type TemplateHandlerFn = Arc<dyn Fn(&Arc<RestMapping>, &InformerEvent<'_>) + Send + Sync>;

/// A registered event handler.
#[derive(Clone)]
pub(crate) struct TemplateHandlerRegistration {
    pub(crate) handler: TemplateHandlerFn,
    /// Whether the handler gets only objects that may be propagated.
    pub(crate) templates_only: bool,
}

/// A kind with a running informer.
#[derive(Clone)]
pub(crate) struct KindInformer {
    pub(crate) mapping: Arc<RestMapping>,
    pub(crate) informer: Informer,
    /// Whether its objects may be propagated; other kinds are only referred to.
    pub(crate) are_templates: bool,
}

pub struct TemplateInformers {
    api: Arc<dyn Api>,
    informers: InformerFactory,
    pub rest_mapper: Arc<RestMapper>,
    pub type_configs: TypeConfigs,
    pub namespace_filter: NamespaceFilter,
    /// Locked while a kind starts or a handler registers, so that each handler sees each kind once.
    pub(crate) handlers: Mutex<Vec<TemplateHandlerRegistration>>,
    /// Triggers discovery.
    pub(crate) discovery_queue: Workqueue<()>,
    /// Consecutive discoveries that lacked a kind of an established CustomResourceDefinition.
    incomplete_discoveries: AtomicU32,
    pub(crate) kind_informers: Mutex<HashMap<Gvr, KindInformer>>,
    /// Kinds that templates refer to, served or not.
    required_kinds: Mutex<HashSet<Gvk>>,
    /// Kinds whose type configurations have changed.
    pub(crate) switched_kinds: Mutex<HashSet<TypeConfigTarget>>,
}

impl TemplateInformers {
    pub fn new(
        api: Arc<dyn Api>,
        informers: InformerFactory,
        rest_mapper: Arc<RestMapper>,
        type_configs: TypeConfigs,
        namespace_filter: NamespaceFilter,
    ) -> Arc<Self> {
        Arc::new(Self {
            api,
            informers,
            rest_mapper,
            type_configs,
            namespace_filter,
            handlers: Mutex::default(),
            discovery_queue: Workqueue::with_backoff(MIN_DISCOVERY_RETRY_DELAY, DISCOVERY_INTERVAL),
            incomplete_discoveries: AtomicU32::new(0),
            kind_informers: Mutex::default(),
            required_kinds: Mutex::default(),
            switched_kinds: Mutex::default(),
        })
    }

    /// Registers a handler for changes of objects that may be propagated.
    pub fn add_template_handler(
        &self,
        handler: impl Fn(&Arc<RestMapping>, &InformerEvent<'_>) + Send + Sync + 'static,
    ) {
        self.add_handler(TemplateHandlerRegistration {
            handler: Arc::new(handler),
            templates_only: true,
        });
    }

    /// Registers a handler for changes of every object with an informer, in any namespace.
    pub fn add_object_handler(
        &self,
        handler: impl Fn(&Arc<RestMapping>, &InformerEvent<'_>) + Send + Sync + 'static,
    ) {
        self.add_handler(TemplateHandlerRegistration {
            handler: Arc::new(handler),
            templates_only: false,
        });
    }

    fn add_handler(&self, watcher: TemplateHandlerRegistration) {
        let mut watchers = self.handlers.lock();
        let followed: Vec<KindInformer> = self.kind_informers.lock().values().cloned().collect();
        for kind in followed {
            self.register_handler(&kind, watcher.clone());
        }
        watchers.push(watcher);
    }

    pub(crate) fn register_handler(
        &self,
        kind: &KindInformer,
        watcher: TemplateHandlerRegistration,
    ) {
        if watcher.templates_only && !kind.are_templates {
            return;
        }
        let (served, scope) = (Arc::clone(&kind.mapping), self.namespace_filter.clone());
        let configs = self.type_configs.clone();
        kind.informer.add_event_handler(move |change| {
            let is_template =
                || scope.allows(change.object().namespace()) && configs.propagates(&served.gvk);
            if !watcher.templates_only || is_template() {
                (watcher.handler)(&served, change);
            }
        });
    }

    /// Starts the informer of a kind that a template refers to, at once or as soon as it is served.
    pub fn require_kind(&self, api_version: &str, kind: &str) -> Option<Arc<RestMapping>> {
        let kind = Gvk::from_api_version(api_version, kind);
        let served = self.rest_mapper.get(&kind);
        self.required_kinds.lock().insert(kind);
        let served = served?;
        if !self.kind_informers.lock().contains_key(&served.gvr) {
            let templates = self.template_mappings().contains(&served);
            self.start_informer(Arc::clone(&served), templates);
        }
        Some(served)
    }

    /// Starts the informers of all template kinds, now and when new kinds appear. Returns when the
    /// informers of all kinds that are known have synced.
    pub async fn run(self: &Arc<Self>, tasks: &TaskGroup) {
        self.type_configs.informer().wait_for_cache_sync().await;
        self.reconsider_switched_kinds();
        let definitions = self.informers.get(
            &self.api,
            &ListWatchSelector::all(&CUSTOM_RESOURCE_DEFINITIONS),
        );
        self.rediscover_on_change(&definitions);
        let first = self.refresh().await;
        match first {
            Ok(ReconcileAction::RequeueAfter(pause)) => self.discovery_queue.add_after((), pause),
            Ok(ReconcileAction::Done) => {}
            Err(error) => {
                tracing::warn!(%error, "API discovery of the control plane failed");
                self.discovery_queue.add_rate_limited(());
            }
        }
        let this = Arc::clone(self);
        run_workers(tasks, "kinds", &self.discovery_queue, 1, move |()| {
            let this = Arc::clone(&this);
            async move { this.refresh().await }
        });
        let informers: Vec<Informer> = {
            let followed = self.kind_informers.lock();
            followed
                .values()
                .map(|kind| kind.informer.clone())
                .collect()
        };
        let all = async {
            for informer in informers {
                informer.wait_for_cache_sync().await;
            }
        };
        if tokio::time::timeout(INITIAL_LIST_TIMEOUT, all)
            .await
            .is_err()
        {
            let missing = self.informers.unsynced();
            tracing::warn!(
                ?missing,
                "starting although the informers of some templates have not synced"
            );
        }
    }

    /// Repeats discovery when an object of the informer changes, and when the first are listed:
    /// discovery may have looked for them before.
    fn rediscover_on_change(&self, informer: &Informer) {
        let queue = self.discovery_queue.clone();
        informer.add_event_handler(move |_| queue.add_after((), DISCOVERY_BATCH_DELAY));
    }

    /// Starts and stops informers as the served kinds require, and returns when to repeat
    /// discovery.
    async fn refresh(&self) -> Result<ReconcileAction, Error> {
        self.redeliver_switched_kinds();
        let complete = self.rest_mapper.refresh().await?;
        let desired = self.desired_informers();
        self.promote_to_templates(desired.values());
        let obsolete: Vec<Gvr> = {
            let followed = self.kind_informers.lock();
            let obsolete = followed.values().filter(|kind| {
                desired.get(&kind.mapping.gvr)
                    != Some(&(Arc::clone(&kind.mapping), kind.are_templates))
            });
            obsolete.map(|kind| kind.mapping.gvr.clone()).collect()
        };
        for resource in obsolete {
            self.stop_informer(&resource).await;
        }
        for (served, templates) in desired.into_values() {
            self.start_informer(served, templates);
        }
        if self.is_discovery_behind() {
            let turns = self.incomplete_discoveries.fetch_add(1, Ordering::Relaxed);
            let delay = exponential_delay(MIN_DISCOVERY_RETRY_DELAY, DISCOVERY_INTERVAL, turns);
            return Ok(ReconcileAction::RequeueAfter(delay));
        }
        self.incomplete_discoveries.store(0, Ordering::Relaxed);
        Ok(if complete && !self.has_aggregated_apis() {
            ReconcileAction::Done
        } else {
            ReconcileAction::RequeueAfter(DISCOVERY_INTERVAL)
        })
    }

    /// The kinds whose objects may be propagated.
    fn template_mappings(&self) -> Vec<Arc<RestMapping>> {
        // The informer of a kind that is switched off goes on: others may share it.
        let is_followed = |r: &ApiResource| {
            let followed = self.kind_informers.lock();
            followed
                .get(&r.resource)
                .is_some_and(|kind| kind.are_templates)
        };
        let configs = &self.type_configs;
        let is_template = |r: &ApiResource| configs.may_hold_templates(r, is_followed(r));
        let resources = self.rest_mapper.preferred(is_template);
        resources.iter().map(|r| Arc::clone(&r.mapping)).collect()
    }

    /// The kinds that need an informer, and whether their objects may be propagated.
    fn desired_informers(&self) -> HashMap<Gvr, (Arc<RestMapping>, bool)> {
        let needed = self.required_kinds.lock();
        let needed = needed.iter().filter_map(|kind| self.rest_mapper.get(kind));
        let needed = needed.map(|served| (served, false));
        let templates = self.template_mappings().into_iter();
        needed
            .chain(templates.map(|served| (served, true)))
            .map(|(served, templates)| (served.gvr.clone(), (served, templates)))
            .collect()
    }

    /// Whether an established CustomResourceDefinition has a kind that discovery does not serve
    /// yet.
    fn is_discovery_behind(&self) -> bool {
        let informer = self.informers.find(
            &self.api,
            &ListWatchSelector::all(&CUSTOM_RESOURCE_DEFINITIONS),
        );
        let definitions = informer.map(|i| i.list()).unwrap_or_default();
        definitions.iter().any(|definition| {
            let established = definition.decode::<CrdFields>();
            established.is_ok_and(|d| {
                !d.served_kinds()
                    .all(|kind| self.rest_mapper.get(&kind).is_some())
            })
        })
    }

    /// Whether an APIService of another server exists.
    fn has_aggregated_apis(&self) -> bool {
        let followed = self.kind_informers.lock();
        let mut kinds = followed.values();
        let services = kinds.find(|kind| is_api_services(&kind.mapping.gvr));
        services.is_some_and(|services| {
            let all = services.informer.list();
            all.iter().any(|o| {
                o.decode::<ApiServiceFields>()
                    .is_ok_and(|s| s.is_aggregated())
            })
        })
    }

    /// Whether another server serves the resource through an APIService.
    pub fn is_aggregated(&self, resource: &Gvr) -> bool {
        let followed = self.kind_informers.lock();
        let mut kinds = followed.values();
        let services = kinds.find(|kind| is_api_services(&kind.mapping.gvr));
        let name = format!("{}.{}", resource.version, resource.group);
        let service = services.and_then(|services| services.informer.get_by_key(&name));
        service.is_some_and(|o| {
            o.decode::<ApiServiceFields>()
                .is_ok_and(|s| s.is_aggregated())
        })
    }

    fn start_informer(&self, served: Arc<RestMapping>, templates: bool) {
        let watchers = self.handlers.lock();
        if self.kind_informers.lock().contains_key(&served.gvr) {
            return;
        }
        let informer = self
            .informers
            .get(&self.api, &ListWatchSelector::all(&served.gvr));
        informer.add_index(BY_CLAIM, claiming_policy_ids);
        if is_api_services(&served.gvr) {
            self.rediscover_on_change(&informer);
        }
        let kind = KindInformer {
            mapping: served,
            informer,
            are_templates: templates,
        };
        let mut followed = self.kind_informers.lock();
        followed.insert(kind.mapping.gvr.clone(), kind.clone());
        drop(followed);
        for watcher in &*watchers {
            self.register_handler(&kind, watcher.clone());
        }
    }

    /// Stops the informer of a kind that is no longer served, or is now served in another version.
    async fn stop_informer(&self, resource: &Gvr) {
        let Some(kind) = self.kind_informers.lock().remove(resource) else {
            return;
        };
        self.informers
            .stop_informer(&self.api, &ListWatchSelector::all(resource))
            .await;
        let watchers = self.handlers.lock().clone();
        for watcher in watchers {
            if watcher.templates_only && !kind.are_templates {
                continue;
            }
            let matches_handler =
                |o: &Object| !watcher.templates_only || self.namespace_filter.allows(o.namespace());
            for object in kind.informer.list_where(matches_handler) {
                let change = InformerEvent {
                    old: Some(&object),
                    new: None,
                    // The objects still exist, so this is not a deletion.
                    in_initial_list: true,
                };
                (watcher.handler)(&kind.mapping, &change);
            }
        }
    }

    /// The template from the informer's cache.
    pub fn get(&self, key: &TemplateKey) -> Option<(Arc<RestMapping>, Object)> {
        let followed = self.kind_informers.lock();
        let kind = followed.get(&key.gvr)?;
        if kind.are_templates && !self.type_configs.propagates(&kind.mapping.gvk) {
            return None;
        }
        let object = kind.informer.get_by_key(&key.name)?;
        Some((Arc::clone(&kind.mapping), object))
    }

    /// The keys of all templates of some kinds.
    pub fn list_keys(&self, matches: impl Fn(&Gvk) -> bool) -> Vec<TemplateKey> {
        self.list_keys_where(matches, |_| true)
    }

    /// The keys of all templates in a namespace.
    pub fn list_keys_in_namespace(&self, namespace: &str) -> Vec<TemplateKey> {
        self.list_keys_where(|_| true, |object| object.namespace() == namespace)
    }

    fn list_keys_where(
        &self,
        matches: impl Fn(&Gvk) -> bool,
        condition: impl Fn(&Object) -> bool,
    ) -> Vec<TemplateKey> {
        let followed = self.kind_informers.lock();
        let some = followed
            .values()
            .filter(|kind| kind.are_templates && matches(&kind.mapping.gvk))
            .filter(|kind| self.type_configs.propagates(&kind.mapping.gvk));
        some.flat_map(|kind| {
            let objects = kind
                .informer
                .list_where(|o| self.namespace_filter.allows(o.namespace()) && condition(o));
            let key = |o: Object| TemplateKey {
                gvr: kind.mapping.gvr.clone(),
                name: o.meta().key(),
            };
            objects.into_iter().map(key)
        })
        .collect()
    }

    /// Returns a template that is at least as new as `revision`.
    pub async fn get_at_least(
        &self,
        served: &RestMapping,
        namespace: &str,
        name: &str,
        revision: u64,
    ) -> Result<Option<Object>, Error> {
        let informer = self.informer(served);
        if let Some(cached) = informer.and_then(|i| i.get(namespace, name))
            && cached.revision() >= revision
        {
            return Ok(Some(cached));
        }
        let at = ResourcePath::object(&served.gvr, namespace, name);
        ignore_not_found(self.api.get(at).await)
    }

    fn informer(&self, served: &RestMapping) -> Option<Informer> {
        let followed = self.kind_informers.lock();
        followed.get(&served.gvr).map(|kind| kind.informer.clone())
    }

    /// Lists the objects of a kind in a namespace (in all namespaces if it is empty) that meet a
    /// condition; `None` until the informer has synced.
    pub fn list_matching(
        &self,
        served: &RestMapping,
        namespace: &str,
        condition: impl Fn(&Object) -> bool,
    ) -> Option<Vec<Object>> {
        let informer = self.informer(served).filter(Informer::has_synced)?;
        let in_namespace = |o: &Object| namespace.is_empty() || o.namespace() == namespace;
        Some(informer.list_where(|o| in_namespace(o) && condition(o)))
    }

    /// Lists all templates that a policy has claimed.
    pub fn list_claimed(&self, id: &str) -> Vec<(Arc<RestMapping>, Object)> {
        let followed = self.kind_informers.lock();
        let mut all = Vec::new();
        for kind in followed.values() {
            let claimed = kind.informer.by_index(BY_CLAIM, id);
            all.extend(claimed.into_iter().map(|o| (Arc::clone(&kind.mapping), o)));
        }
        all
    }
}

/// Matches the resource in any served version.
fn is_api_services(resource: &Gvr) -> bool {
    (&*resource.group, &*resource.resource) == API_SERVICES
}

/// The typed view of a CustomResourceDefinition: the kinds that it serves.
#[derive(Deserialize)]
struct CrdFields {
    spec: CrdSpecFields,
    #[serde(default)]
    status: CrdStatusConditions,
}

#[derive(Deserialize)]
struct CrdSpecFields {
    group: String,
    names: CrdNamesKind,
    #[serde(default)]
    versions: Vec<CrdVersion>,
}

#[derive(Deserialize)]
struct CrdNamesKind {
    kind: String,
}

#[derive(Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CrdStatusConditions {
    conditions: Vec<Condition>,
}

impl CrdFields {
    /// The served kinds; none before the definition is established.
    fn served_kinds(&self) -> impl Iterator<Item = Gvk> {
        let conditions = &self.status.conditions;
        let established = conditions
            .iter()
            .any(|c| c.condition_type == "Established" && c.status == "True");
        let versions = self.spec.versions.iter();
        let served = versions.filter(move |v| established && v.served);
        served.map(|v| {
            let (group, kind) = (&self.spec.group, &self.spec.names.kind);
            Gvk::new(group.as_str(), v.name.as_str(), kind.as_str())
        })
    }
}

/// Groups that no template is of, whoever serves them.
const METRICS_GROUPS: [&str; 3] = [
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
];

/// The typed view of an APIService: which server serves its group.
#[derive(Deserialize)]
struct ApiServiceFields {
    spec: ApiServiceSpecFields,
}

#[derive(Deserialize)]
struct ApiServiceSpecFields {
    #[serde(default)]
    group: String,
    service: Option<IgnoredAny>,
}

impl ApiServiceFields {
    /// Whether a server other than this one serves the group, and it may have templates.
    fn is_aggregated(&self) -> bool {
        let group = &*self.spec.group;
        let has_templates =
            !karmada_api::is_karmada_group(group) && !METRICS_GROUPS.contains(&group);
        self.spec.service.is_some() && has_templates
    }
}

/// The ids of the policies that have claimed an object.
pub fn claiming_policy_ids(object: &Object) -> Vec<String> {
    [POLICY_ID, CLUSTER_POLICY_ID]
        .iter()
        .filter_map(|label| object.meta().label(label))
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}
