//! An informer: an in-memory copy of a resource, kept in sync by the
//! [reflector](crate::reflector), with indexes and event handlers.
//!
//! It keeps the selected objects as encoded bytes, and their index keys.

mod factory;
mod indexer;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use machinery::{Gvr, Object};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::api::Error;
use crate::reflector::{ListWatchSelector, ReflectorSink};
use crate::tasks::ShutdownToken;
pub use factory::InformerFactory;
use indexer::Indexer;

/// A change of one object: an add, an update or a delete.
#[derive(Clone, Copy, Debug)]
pub struct InformerEvent<'a> {
    /// `None`: the object was added.
    pub old: Option<&'a Object>,
    /// `None`: the object was deleted.
    pub new: Option<&'a Object>,
    /// The addition came from the initial list, not from a write: low priority.
    pub in_initial_list: bool,
}

impl<'a> InformerEvent<'a> {
    /// The new state, or the last one of a deleted object.
    #[expect(clippy::expect_used, reason = "a change has a side by construction")]
    pub fn object(&self) -> &'a Object {
        self.new
            .or(self.old)
            .expect("an event has an old or a new object")
    }

    /// `namespace/name`, or `name` in cluster scope.
    pub fn key(&self) -> String {
        self.object().meta().key()
    }
}

type InformerEventHandlerFunc = Box<dyn Fn(&InformerEvent<'_>) + Send + Sync>;

/// An event handler, and for how long it is called.
struct RegisteredHandler {
    /// `None`: as long as the informer runs.
    until: Option<ShutdownToken>,
    handler: InformerEventHandlerFunc,
}

impl RegisteredHandler {
    fn is_removed(&self) -> bool {
        self.until.as_ref().is_some_and(ShutdownToken::is_triggered)
    }
}

type TransformFunc = Box<dyn Fn(Object) -> Object + Send + Sync>;

struct InformerInner {
    selector: ListWatchSelector,
    indexer: RwLock<Indexer>,
    /// Held while a change is stored and delivered, so that a handler added later misses
    /// none.
    handlers: Mutex<Vec<RegisteredHandler>>,
    synced: watch::Sender<bool>,
    last_error: Mutex<Option<String>>,
    transform: Option<TransformFunc>,
    full_scans_in_handlers: AtomicUsize,
}

thread_local! {
    /// Whether this thread is running an event handler.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// A handle; clones read the same copy.
#[derive(Clone)]
pub struct Informer {
    shared: Arc<InformerInner>,
    /// When the handlers that are added through this handle are removed.
    handlers_until: Option<ShutdownToken>,
}

impl Informer {
    fn new(select: ListWatchSelector, transform: Option<TransformFunc>) -> Self {
        let shared = Arc::new(InformerInner {
            selector: select,
            indexer: RwLock::default(),
            handlers: Mutex::default(),
            synced: watch::Sender::new(false),
            last_error: Mutex::default(),
            transform,
            full_scans_in_handlers: AtomicUsize::default(),
        });
        Self {
            shared,
            handlers_until: None,
        }
    }

    /// The sink that fills this copy. At most one may be in use.
    fn new_sink(&self) -> InformerSink {
        InformerSink {
            shared: Arc::clone(&self.shared),
        }
    }

    /// A handle whose handlers are removed when `until` is triggered.
    fn with_handlers_until(&self, until: &ShutdownToken) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            handlers_until: Some(until.clone()),
        }
    }

    pub fn resource(&self) -> &Gvr {
        &self.shared.selector.resource
    }

    /// Calls `handler` for every change, in order, after the copy was updated; first for
    /// the objects already present, as initial additions. Handlers run on the informer's
    /// task: they must be quick and must not call `add_event_handler`.
    pub fn add_event_handler(&self, handler: impl Fn(&InformerEvent<'_>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.lock();
        for object in self.list() {
            handler(&InformerEvent {
                old: None,
                new: Some(&object),
                in_initial_list: true,
            });
        }
        handlers.retain(|handler| !handler.is_removed());
        handlers.push(RegisteredHandler {
            until: self.handlers_until.clone(),
            handler: Box::new(handler),
        });
    }

    /// Adds an index and replaces one of the same name.
    pub fn add_index(
        &self,
        name: &'static str,
        keys: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static,
    ) {
        self.shared.indexer.write().add_index(name, Box::new(keys));
    }

    /// The objects under a key of an index; empty if there is no such index.
    pub fn by_index(&self, name: &str, key: &str) -> Vec<Object> {
        self.shared.indexer.read().by_index(name, key)
    }

    /// The keys of an index that satisfy `filter` and have objects.
    pub fn index_keys(&self, name: &str, filter: impl Fn(&str) -> bool) -> Vec<String> {
        self.shared.indexer.read().index_keys(name, filter)
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Object> {
        if namespace.is_empty() {
            return self.get_by_key(name);
        }
        self.get_by_key(&format!("{namespace}/{name}"))
    }

    /// By `namespace/name`, or `name` in cluster scope.
    pub fn get_by_key(&self, key: &str) -> Option<Object> {
        self.shared.indexer.read().get(key)
    }

    /// All objects, unordered.
    pub fn list(&self) -> Vec<Object> {
        self.list_where(|_| true)
    }

    pub fn list_namespace(&self, namespace: &str) -> Vec<Object> {
        self.list_where(|o| o.namespace() == namespace)
    }

    /// The objects that satisfy `condition`, which must not use this informer.
    pub fn list_where(&self, condition: impl Fn(&Object) -> bool) -> Vec<Object> {
        if IN_HANDLER.get() {
            let scans = &self.shared.full_scans_in_handlers;
            scans.fetch_add(1, Ordering::Relaxed);
        }
        let store = self.shared.indexer.read();
        store.iter().filter(|o| condition(o)).cloned().collect()
    }

    /// How often an event handler of any informer has scanned this whole copy. Such a scan
    /// delays the events that follow in the watch.
    pub fn full_scans_in_handlers(&self) -> usize {
        self.shared.full_scans_in_handlers.load(Ordering::Relaxed)
    }

    pub fn len(&self) -> usize {
        self.shared.indexer.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits for the first complete list, without a time limit.
    pub async fn wait_for_cache_sync(&self) {
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.shared.synced.subscribe().wait_for(|s| *s).await;
    }

    /// The last error of list or watch, while the copy is out of sync.
    pub fn last_error(&self) -> Option<String> {
        self.shared.last_error.lock().clone()
    }
}

struct InformerSink {
    shared: Arc<InformerInner>,
}

impl InformerSink {
    fn upsert_object(&self, object: Object, listed: bool) {
        let object = match &self.shared.transform {
            Some(transform) => transform(object),
            None => object,
        };
        let mut handlers = self.shared.handlers.lock();
        let (old, new) = {
            let mut store = self.shared.indexer.write();
            let old = store.upsert(object.clone());
            (old, object)
        };
        // A list after a broken watch repeats objects that are unchanged.
        if listed
            && old
                .as_ref()
                .is_some_and(|o| o.revision() == new.revision() && o.uid() == new.uid())
        {
            return;
        }
        // A later list adds only objects that came while there was no watch.
        let initial = listed && old.is_none() && !*self.shared.synced.borrow();
        notify_handlers(&mut handlers, old.as_ref(), Some(&new), initial);
    }
}

fn notify_handlers(
    handlers: &mut Vec<RegisteredHandler>,
    old: Option<&Object>,
    new: Option<&Object>,
    initial: bool,
) {
    let change = InformerEvent {
        old,
        new,
        in_initial_list: initial,
    };
    IN_HANDLER.set(true);
    handlers.retain(|handler| !handler.is_removed());
    for registered in handlers {
        (registered.handler)(&change);
    }
    IN_HANDLER.set(false);
}

/// Handlers often hold a handle of their informer; dropping them here breaks that cycle
/// once nothing more will be delivered.
impl Drop for InformerSink {
    fn drop(&mut self) {
        let handlers = std::mem::take(&mut *self.shared.handlers.lock());
        drop(handlers);
    }
}

impl ReflectorSink for InformerSink {
    fn begin_list(&mut self) {
        self.shared.indexer.write().begin_list();
    }

    fn list_item(&mut self, object: Object) {
        self.upsert_object(object, true);
    }

    fn end_list(&mut self) {
        let mut handlers = self.shared.handlers.lock();
        let gone = self.shared.indexer.write().remove_unlisted();
        for object in &gone {
            notify_handlers(&mut handlers, Some(object), None, false);
        }
        drop(handlers);
        self.shared.synced.send_replace(true);
    }

    fn upsert(&mut self, object: Object) {
        self.upsert_object(object, false);
    }

    fn delete(&mut self, object: Object) {
        let mut handlers = self.shared.handlers.lock();
        let removed = self.shared.indexer.write().remove(&object.meta().key());
        // Handlers get the state they saw last.
        if let Some(removed) = removed {
            notify_handlers(&mut handlers, Some(&removed), None, false);
        }
    }

    fn report_health(&mut self, error: Option<&Error>) {
        *self.shared.last_error.lock() = error.map(Error::to_string);
    }
}
