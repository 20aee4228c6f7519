//! The informer factory: one informer per server and selector, shared by all who ask for
//! it (client-go's `SharedInformerFactory`).

use std::sync::Arc;

use ahash::AHashMap;
use machinery::Object;
use parking_lot::Mutex;

use super::{Informer, Transform};
use crate::api::Api;
use crate::reflect::{Select, reflect};
use crate::tasks::Tasks;

/// The informers on one server.
struct Server {
    /// Keeps the allocation alive, so that its address, the map's key, is not reused.
    _api: Arc<dyn Api>,
    tasks: Tasks,
    informers: AHashMap<Select, Running>,
}

struct Running {
    informer: Informer,
    tasks: Tasks,
}

struct Shared {
    tasks: Tasks,
    servers: Mutex<AHashMap<usize, Server>>,
}

/// Starts informers on first use and shares them. Clones are the same factory.
#[derive(Clone)]
pub struct Informers(Arc<Shared>);

impl Informers {
    /// `tasks` owns the informers' tasks.
    pub fn new(tasks: &Tasks) -> Self {
        Self(Arc::new(Shared {
            tasks: tasks.child(),
            servers: Mutex::default(),
        }))
    }

    /// The informer of a selector, started if there is none yet.
    pub fn get(&self, api: &Arc<dyn Api>, select: &Select) -> Informer {
        self.start(api, select, None)
    }

    /// As [`InformerFactory::get`]. The call that starts the informer decides by
    /// `transform` what is kept of an object (client-go's `TransformFunc`).
    pub fn get_with(
        &self,
        api: &Arc<dyn Api>,
        select: &Select,
        transform: impl Fn(Object) -> Object + Send + Sync + 'static,
    ) -> Informer {
        self.start(api, select, Some(Box::new(transform)))
    }

    fn start(&self, api: &Arc<dyn Api>, select: &Select, transform: Option<Transform>) -> Informer {
        let mut servers = self.0.servers.lock();
        let server = servers.entry(address(api)).or_insert_with(|| Server {
            _api: Arc::clone(api),
            tasks: self.0.tasks.child(),
            informers: AHashMap::new(),
        });
        if let Some(running) = server.informers.get(select) {
            return running.informer.clone();
        }
        let informer = Informer::new(select.clone(), transform);
        let mut sink = informer.sink();
        let tasks = server.tasks.child();
        let shutdown = tasks.shutdown().clone();
        let (api, select, shared) = (Arc::clone(api), select.clone(), informer.clone());
        let key = select.clone();
        tasks.spawn(async move {
            reflect(&*api, &select, &mut sink, &shutdown).await;
        });
        server.informers.insert(key, Running { informer, tasks });
        shared
    }

    /// The informer of a selector, if it was started.
    pub fn running(&self, api: &Arc<dyn Api>, select: &Select) -> Option<Informer> {
        let servers = self.0.servers.lock();
        let running = servers.get(&address(api))?.informers.get(select)?;
        Some(running.informer.clone())
    }

    /// Stops and joins the informer of a selector, for all who share it, because its
    /// resource is no longer served. Its copy stays readable.
    pub async fn forget(&self, api: &Arc<dyn Api>, select: &Select) {
        if let Some(tasks) = self.release(api, select) {
            tasks.join().await;
        }
    }

    /// As [`InformerFactory::stop_informer`], but returns the tasks instead of joining
    /// them. From now on [`InformerFactory::get`] starts another informer.
    pub fn release(&self, api: &Arc<dyn Api>, select: &Select) -> Option<Tasks> {
        let mut servers = self.0.servers.lock();
        let running = servers.get_mut(&address(api))?.informers.remove(select)?;
        running.tasks.shutdown().trigger();
        Some(running.tasks)
    }

    /// Stops and joins the informers of one server. Their copies stay readable.
    pub async fn stop(&self, api: &Arc<dyn Api>) {
        let server = self.0.servers.lock().remove(&address(api));
        if let Some(server) = server {
            server.tasks.stop().await;
        }
    }

    /// The informers whose first list is incomplete: resource and last error.
    pub fn unsynced(&self) -> Vec<String> {
        let all = self.all();
        let waiting = all.iter().filter(|i| !i.is_synced());
        waiting
            .map(|i| {
                let why = i.last_error().unwrap_or_else(|| "not listed yet".into());
                format!("{}: {why}", i.resource())
            })
            .collect()
    }

    /// Waits for the first list of every informer started so far.
    pub async fn wait_synced(&self) {
        for informer in self.all() {
            informer.wait_synced().await;
        }
    }

    fn all(&self) -> Vec<Informer> {
        let servers = self.0.servers.lock();
        servers
            .values()
            .flat_map(|s| s.informers.values().map(|r| r.informer.clone()))
            .collect()
    }
}

fn address(api: &Arc<dyn Api>) -> usize {
    Arc::as_ptr(api).cast::<()>() as usize
}
