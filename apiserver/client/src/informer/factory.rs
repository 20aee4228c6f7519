//! The informer factory: one informer per server and selector, shared by all who ask for
//! it (client-go's `SharedInformerFactory`).

use std::borrow::Cow;
use std::sync::Arc;

use ahash::AHashMap;
use machinery::Object;
use parking_lot::Mutex;

use super::{Informer, TransformFunc};
use crate::api::Api;
use crate::reflector::{ListWatchSelector, run_reflector};
use crate::tasks::TaskGroup;

/// The informers on one server.
struct ServerInformers {
    /// Keeps the allocation alive, so that its address, the map's key, is not reused.
    _api: Arc<dyn Api>,
    tasks: TaskGroup,
    informers: AHashMap<ListWatchSelector, RunningInformer>,
}

struct RunningInformer {
    informer: Informer,
    tasks: TaskGroup,
}

/// Restricts a selector to what the client may read.
type SelectorScope = Box<dyn Fn(&ListWatchSelector) -> ListWatchSelector + Send + Sync>;

struct InformerFactoryInner {
    tasks: TaskGroup,
    scope: Option<SelectorScope>,
    /// Whose running informers are shared.
    parent: Option<InformerFactory>,
    servers: Mutex<AHashMap<usize, ServerInformers>>,
}

/// Starts informers on first use and shares them. Clones are the same factory.
#[derive(Clone)]
pub struct InformerFactory(Arc<InformerFactoryInner>);

impl InformerFactory {
    /// `tasks` owns the informers' tasks.
    pub fn new(tasks: &TaskGroup) -> Self {
        Self::with_scope_and_parent(tasks, None, None)
    }

    /// A factory for a part that can be stopped on its own with `tasks`: it shares the informers
    /// that run in this factory, and starts others for itself. Until `tasks` stop, these run even
    /// without a handle of the child; then the handlers that were added through it are removed
    /// from the shared ones as well.
    pub fn child(&self, tasks: &TaskGroup) -> Self {
        let child = Self::with_scope_and_parent(tasks, None, Some(self.clone()));
        let (kept, shutdown) = (child.clone(), tasks.shutdown().clone());
        tasks.spawn(async move {
            shutdown.wait().await;
            drop(kept);
        });
        child
    }

    /// As [`InformerFactory::new`], for a client that may not read everything: `scope`
    /// restricts each selector before its informer starts.
    pub fn with_scope(
        tasks: &TaskGroup,
        scope: impl Fn(&ListWatchSelector) -> ListWatchSelector + Send + Sync + 'static,
    ) -> Self {
        Self::with_scope_and_parent(tasks, Some(Box::new(scope)), None)
    }

    fn with_scope_and_parent(
        tasks: &TaskGroup,
        scope: Option<SelectorScope>,
        parent: Option<Self>,
    ) -> Self {
        Self(Arc::new(InformerFactoryInner {
            tasks: tasks.child(),
            scope,
            parent,
            servers: Mutex::default(),
        }))
    }

    /// The informer of a selector, started if there is none yet.
    pub fn get(&self, api: &Arc<dyn Api>, select: &ListWatchSelector) -> Informer {
        self.start(api, select, None)
    }

    /// As [`InformerFactory::get`]. The call that starts the informer decides by
    /// `transform` what is kept of an object (client-go's `TransformFunc`).
    pub fn get_with_transform(
        &self,
        api: &Arc<dyn Api>,
        select: &ListWatchSelector,
        transform: impl Fn(Object) -> Object + Send + Sync + 'static,
    ) -> Informer {
        self.start(api, select, Some(Box::new(transform)))
    }

    fn start(
        &self,
        api: &Arc<dyn Api>,
        select: &ListWatchSelector,
        transform: Option<TransformFunc>,
    ) -> Informer {
        if let Some(shared) = self.find_in_parent(api, select) {
            return shared;
        }
        let select = &*self.scoped(select);
        let mut servers = self.0.servers.lock();
        let server = servers
            .entry(api_address(api))
            .or_insert_with(|| ServerInformers {
                _api: Arc::clone(api),
                tasks: self.0.tasks.child(),
                informers: AHashMap::new(),
            });
        if let Some(running) = server.informers.get(select) {
            return running.informer.clone();
        }
        let informer = Informer::new(select.clone(), transform);
        let mut sink = informer.new_sink();
        let tasks = server.tasks.child();
        let shutdown = tasks.shutdown().clone();
        let (api, select, shared) = (Arc::clone(api), select.clone(), informer.clone());
        let key = select.clone();
        tasks.spawn(async move {
            run_reflector(&*api, &select, &mut sink, &shutdown).await;
        });
        server
            .informers
            .insert(key, RunningInformer { informer, tasks });
        shared
    }

    /// The informer of a selector, if it was started.
    pub fn find(&self, api: &Arc<dyn Api>, select: &ListWatchSelector) -> Option<Informer> {
        if let Some(shared) = self.find_in_parent(api, select) {
            return Some(shared);
        }
        let servers = self.0.servers.lock();
        let select = &*self.scoped(select);
        let running = servers.get(&api_address(api))?.informers.get(select)?;
        Some(running.informer.clone())
    }

    fn find_in_parent(&self, api: &Arc<dyn Api>, select: &ListWatchSelector) -> Option<Informer> {
        let shared = self.0.parent.as_ref()?.find(api, select)?;
        Some(shared.with_handlers_until(self.0.tasks.shutdown()))
    }

    /// Stops and joins the informer of a selector, for all who share it, because its
    /// resource is no longer served. Its copy stays readable.
    pub async fn stop_informer(&self, api: &Arc<dyn Api>, select: &ListWatchSelector) {
        if let Some(tasks) = self.begin_stop_informer(api, select) {
            tasks.join().await;
        }
    }

    /// As [`InformerFactory::stop_informer`], but returns the tasks instead of joining
    /// them. From now on [`InformerFactory::get`] starts another informer.
    pub fn begin_stop_informer(
        &self,
        api: &Arc<dyn Api>,
        select: &ListWatchSelector,
    ) -> Option<TaskGroup> {
        let mut servers = self.0.servers.lock();
        let running = servers
            .get_mut(&api_address(api))?
            .informers
            .remove(&*self.scoped(select))?;
        running.tasks.shutdown().trigger();
        Some(running.tasks)
    }

    /// Stops and joins the informers of one server. Their copies stay readable.
    pub async fn stop_server(&self, api: &Arc<dyn Api>) {
        let server = self.0.servers.lock().remove(&api_address(api));
        if let Some(server) = server {
            server.tasks.stop().await;
        }
    }

    /// The informers whose first list is incomplete: resource and last error.
    pub fn unsynced(&self) -> Vec<String> {
        let all = self.all_informers();
        let waiting = all.iter().filter(|i| !i.has_synced());
        waiting
            .map(|i| {
                let reason = i.last_error().unwrap_or_else(|| "not listed yet".into());
                format!("{}: {reason}", i.resource())
            })
            .collect()
    }

    /// Fails with the informers that have not synced yet.
    pub fn check_synced(&self) -> Result<(), String> {
        match self.unsynced().as_slice() {
            [] => Ok(()),
            missing => Err(missing.join("; ")),
        }
    }

    /// Waits for the first list of every informer started so far.
    pub async fn wait_for_cache_sync(&self) {
        for informer in self.all_informers() {
            informer.wait_for_cache_sync().await;
        }
    }

    fn scoped<'a>(&self, select: &'a ListWatchSelector) -> Cow<'a, ListWatchSelector> {
        match (&self.0.scope, &self.0.parent) {
            (Some(scope), _) => Cow::Owned(scope(select)),
            (None, Some(parent)) => parent.scoped(select),
            (None, None) => Cow::Borrowed(select),
        }
    }

    fn all_informers(&self) -> Vec<Informer> {
        let servers = self.0.servers.lock();
        servers
            .values()
            .flat_map(|s| s.informers.values().map(|r| r.informer.clone()))
            .collect()
    }
}

fn api_address(api: &Arc<dyn Api>) -> usize {
    let own = || Arc::as_ptr(api).cast::<()>() as usize;
    api.server_identity().unwrap_or_else(own)
}
