//! The watch caches of the selected resources, one for each member and resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Api, ShutdownToken};
use machinery::{Gvk, Gvr};
use members::CONTROL_PLANE;
use parking_lot::RwLock;
use storage::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use watchcache::{Cacher, CacherOptions, SimilarityGrouping, WatchCaches};

use crate::cache_budget::CacheBudget;
use crate::member_resource::{CachedForm, MemberResource, NamespaceScope};
use crate::member_store::MemberStore;
use crate::selected_resources::{SelectedResource, SelectedResources};

/// The client of a cluster, or the reason why there is none.
pub(crate) type MemberApiLookup<'a> = &'a (dyn Fn(&str) -> Result<Arc<dyn Api>, String> + Sync);

/// The watch cache of a resource of one member.
pub(crate) struct MemberCacher {
    pub(crate) cacher: Arc<Cacher>,
    pub(crate) store: Arc<MemberStore>,
    /// Its name among all watch caches of the process.
    id: String,
    api: Arc<dyn Api>,
    scope: NamespaceScope,
    pub(crate) started: Instant,
}

impl MemberCacher {
    fn is_of(&self, api: &Arc<dyn Api>, scope: &NamespaceScope) -> bool {
        Arc::ptr_eq(&self.api, api) && self.scope == *scope
    }
}

/// The watch caches of one resource.
pub(crate) struct ResourceCaches {
    pub(crate) kind: Gvk,
    pub(crate) members: BTreeMap<String, Arc<MemberCacher>>,
    /// The selected members without a connection, and why they have none.
    pub(crate) unreachable: BTreeMap<String, String>,
    /// Triggered when other caches replace these, which ends the watches.
    pub(crate) replaced: ShutdownToken,
    /// Bounds the watches of a reader of some of the members.
    pub(crate) reader: Option<ReaderLimits>,
}

/// The bounds of the watches of one reader.
#[derive(Clone)]
pub(crate) struct ReaderLimits {
    pub(crate) max_watch_duration: Duration,
    /// Held as long as something is read, so that the caches are kept.
    pub(crate) usage: Arc<()>,
}

impl ResourceCaches {
    /// Why selected members are missing, for the response.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let unreachable = self.unreachable.iter();
        unreachable
            .map(|(cluster, reason)| format!("cluster({cluster}): {reason}"))
            .collect()
    }

    fn has_same_members(&self, other: &Self) -> bool {
        let same = |a: &Arc<MemberCacher>, b: &Arc<MemberCacher>| Arc::ptr_eq(a, b);
        let others = other.members.iter();
        self.kind == other.kind
            && self.members.len() == other.members.len()
            && others
                .zip(&self.members)
                .all(|((a_name, a), (b_name, b))| a_name == b_name && same(a, b))
    }
}

/// The caches of all selected resources.
pub(crate) struct SelectedResourceCaches {
    pub(crate) watch_caches: Arc<WatchCaches>,
    form: CachedForm,
    /// Bounds the caches.
    budget: Option<Arc<CacheBudget>>,
    by_resource: RwLock<BTreeMap<Gvr, Arc<ResourceCaches>>>,
    next_id: AtomicU64,
    /// Marked as changed when other caches replace some.
    changed: watch::Sender<()>,
}

impl SelectedResourceCaches {
    /// The member caches share the memory for events with the other watch caches of the process.
    pub(crate) fn new(
        watch_caches: Arc<WatchCaches>,
        form: CachedForm,
        budget: Option<Arc<CacheBudget>>,
    ) -> Self {
        Self {
            watch_caches,
            form,
            budget,
            by_resource: RwLock::default(),
            next_id: AtomicU64::new(0),
            changed: watch::Sender::default(),
        }
    }

    /// Notices when other caches replace some.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn find(&self, resource: &Gvr) -> Option<Arc<ResourceCaches>> {
        self.by_resource.read().get(resource).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ResourceCaches>> {
        self.by_resource.read().values().cloned().collect()
    }

    /// Starts the caches that are missing, and ends those that are not selected any more.
    pub(crate) async fn update(&self, selected: &SelectedResources, api: MemberApiLookup<'_>) {
        let mut former = self.by_resource.read().clone();
        let mut next = BTreeMap::new();
        for (gvr, resource) in selected {
            let current = former.remove(gvr);
            let updated = self.updated(gvr, resource, current.as_deref(), api);
            let kept = current.filter(|current| current.has_same_members(&updated));
            let same_reasons = kept.filter(|kept| kept.unreachable == updated.unreachable);
            next.insert(
                gvr.clone(),
                same_reasons.unwrap_or_else(|| Arc::new(updated)),
            );
        }
        self.replace(next).await;
    }

    /// Ends all caches.
    pub(crate) async fn clear(&self) {
        self.replace(BTreeMap::new()).await;
    }

    fn updated(
        &self,
        gvr: &Gvr,
        selected: &SelectedResource,
        current: Option<&ResourceCaches>,
        api: MemberApiLookup<'_>,
    ) -> ResourceCaches {
        let mut updated = ResourceCaches {
            kind: selected.kind.clone(),
            members: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            replaced: ShutdownToken::new(),
            reader: None,
        };
        for (cluster, scope) in &selected.clusters {
            let api = match api(cluster) {
                Ok(api) => api,
                Err(reason) => {
                    updated.unreachable.insert(cluster.clone(), reason);
                    continue;
                }
            };
            let running = current.and_then(|current| current.members.get(cluster));
            let running = running.filter(|running| running.is_of(&api, scope));
            let cacher = match running {
                Some(running) => Arc::clone(running),
                None => self.start_cacher((gvr, &selected.kind), cluster, scope, api),
            };
            updated.members.insert(cluster.clone(), cacher);
        }
        updated
    }

    fn start_cacher(
        &self,
        (gvr, kind): (&Gvr, &Gvk),
        cluster: &str,
        scope: &NamespaceScope,
        api: Arc<dyn Api>,
    ) -> Arc<MemberCacher> {
        let root = self.form.prefix();
        let prefix = format!("/{root}/{cluster}/{}/{}/", gvr.group, gvr.resource);
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = format!("{prefix}{}/{number}", gvr.version);
        let resource = MemberResource {
            cluster: cluster.to_owned(),
            resource: gvr.clone(),
            kind: kind.clone(),
            form: self.form,
            scope: scope.clone(),
            api: Arc::clone(&api),
            prefix: prefix.clone(),
        };
        // Members cannot push out what the control plane has.
        let budget = self.budget.clone().filter(|_| cluster != CONTROL_PLANE);
        let store = Arc::new(MemberStore::new(resource, budget));
        let read_store: Arc<dyn Store> = store.clone();
        let options = CacherOptions {
            similarity: Some(SimilarityGrouping::Controller),
            limit: Some(store.clone()),
        };
        let caches = &self.watch_caches;
        let cacher = caches.cacher_of(&id, &prefix, &read_store, options);
        // The first question starts the list.
        cacher.ready();
        Arc::new(MemberCacher {
            cacher,
            store,
            id,
            api,
            scope: scope.clone(),
            started: Instant::now(),
        })
    }

    async fn replace(&self, next: BTreeMap<Gvr, Arc<ResourceCaches>>) {
        let former = std::mem::replace(&mut *self.by_resource.write(), next.clone());
        self.changed.send_replace(());
        for (gvr, caches) in former {
            let successor = next.get(&gvr);
            if successor.is_some_and(|successor| Arc::ptr_eq(successor, &caches)) {
                continue;
            }
            caches.replaced.trigger();
            for (cluster, member) in &caches.members {
                let kept = successor.and_then(|successor| successor.members.get(cluster));
                if !kept.is_some_and(|kept| Arc::ptr_eq(kept, member)) {
                    self.watch_caches.remove(&member.id).await;
                }
            }
        }
    }
}
