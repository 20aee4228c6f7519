//! An in-memory API server for tests. It accepts, refuses and streams what a real server
//! does, as far as controllers can observe.
//!
//! A test seeds objects, injects errors and reads back objects and the log of writes. Not
//! implemented: schemas, defaulting, admission, strategic merge keys (such a patch is
//! merged as a JSON merge patch), garbage collection and the namespace lifecycle. The scale of an
//! object is the object itself, of which a write changes only `spec.replicas`.

mod api;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use client::{ApiResource, Error};
use store::FakeStore;

/// A call as the call hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct FakeCall<'a> {
    /// `get list watch create update patch delete deletecollection discover raw`.
    pub verb: &'a str,
    /// `None` for `discover` and `raw`.
    pub resource: Option<&'a Gvr>,
    pub namespace: &'a str,
    /// The path for `raw`.
    pub name: &'a str,
    pub subresource: &'a str,
}

/// A write that reached the server; dry runs and calls with an injected error are not
/// recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedWrite {
    /// `create update patch delete deletecollection`.
    pub verb: &'static str,
    pub resource: Gvr,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    /// The body or the patch; null for deletes.
    pub body: Value,
}

type FakeCallHook = Arc<dyn Fn(&FakeCall<'_>) -> Option<Error> + Send + Sync>;
type FakeWriteHook = Arc<dyn Fn(&FakeCall<'_>) + Send + Sync>;
type FakeCreateResponder = Arc<dyn Fn(Value) -> Value + Send + Sync>;

struct FakeApiState {
    store: Mutex<FakeStore>,
    /// Incremented with every event, to wake the watches.
    event_counter: watch::Sender<u64>,
}

/// A fake API server. One per test.
pub struct FakeApi {
    server: Arc<FakeApiState>,
    writes: Mutex<Vec<RecordedWrite>>,
    call_hook: Mutex<Option<FakeCallHook>>,
    write_hook: Mutex<Option<FakeWriteHook>>,
    create_delays: Mutex<HashMap<Gvr, Duration>>,
    resources: Mutex<Vec<ApiResource>>,
    raw_bodies: Mutex<HashMap<String, Bytes>>,
    create_responders: Mutex<HashMap<Gvr, FakeCreateResponder>>,
}

impl FakeApi {
    /// An empty server. Its clock stands at 2026-01-01T00:00:00Z.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            server: Arc::new(FakeApiState {
                store: Mutex::new(FakeStore::new()),
                event_counter: watch::Sender::new(0),
            }),
            writes: Mutex::default(),
            call_hook: Mutex::default(),
            write_hook: Mutex::default(),
            create_delays: Mutex::default(),
            resources: Mutex::default(),
            raw_bodies: Mutex::default(),
            create_responders: Mutex::default(),
        })
    }

    /// Stores an object as given (status, uid and generation kept; missing ones are set),
    /// replacing one of the same name. Watches see it; it is not recorded as a write.
    #[expect(
        clippy::panic,
        reason = "a fixture that is no object must stop its test"
    )]
    pub fn seed(&self, resource: &Gvr, value: Value) -> Object {
        let kind = self.kind_of(resource);
        let seeded = self.mutate(|s| s.seed(resource, kind.as_deref(), value));
        seeded.unwrap_or_else(|e| panic!("seed of {resource}: {e}"))
    }

    /// Removes an object regardless of finalizers. Watches see it; it is not recorded as
    /// a write.
    pub fn remove(&self, resource: &Gvr, namespace: &str, name: &str) {
        self.mutate(|s| s.remove(resource, namespace, name));
    }

    /// The current state of an object.
    pub fn get_object(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        let state = self.server.store.lock();
        state.find(resource, namespace, name)?.value().ok()
    }

    /// All objects of a resource, by namespace and name.
    pub fn list_objects(&self, resource: &Gvr) -> Vec<Value> {
        let state = self.server.store.lock();
        state
            .list(resource)
            .filter_map(|o| o.value().ok())
            .collect()
    }

    /// The recorded writes, in order.
    pub fn writes(&self) -> Vec<RecordedWrite> {
        self.writes.lock().clone()
    }

    pub fn clear_writes(&self) {
        self.writes.lock().clear();
    }

    /// Runs `callback` before every call; the call returns the error that the callback returns.
    pub fn on_call(
        &self,
        callback: impl Fn(&FakeCall<'_>) -> Option<Error> + Send + Sync + 'static,
    ) {
        *self.call_hook.lock() = Some(Arc::new(callback));
    }

    /// Runs `callback` after every successful write, before the call returns.
    pub fn on_write(&self, callback: impl Fn(&FakeCall<'_>) + Send + Sync + 'static) {
        *self.write_hook.lock() = Some(Arc::new(callback));
    }

    /// Delays creates of a resource.
    pub fn delay_create(&self, resource: &Gvr, delay: Duration) {
        let mut delays = self.create_delays.lock();
        delays.insert(resource.clone(), delay);
    }

    /// Sets the response to creates of a resource that is not stored, such as a review.
    pub fn respond_to_create(
        &self,
        resource: &Gvr,
        respond: impl Fn(Value) -> Value + Send + Sync + 'static,
    ) {
        let mut responders = self.create_responders.lock();
        responders.insert(resource.clone(), Arc::new(respond));
    }

    /// Sets the clock of creation and deletion timestamps.
    pub fn set_now(&self, now: Timestamp) {
        self.server.store.lock().now = now;
    }

    /// Adds a resource to discovery; objects without a kind get this resource's kind.
    pub fn add_resource(&self, resource: ApiResource) {
        self.resources.lock().push(resource);
    }

    /// Removes a resource from discovery.
    pub fn remove_resource(&self, resource: &Gvr) {
        self.resources.lock().retain(|r| r.resource != *resource);
    }

    /// Sets the response to a GET of `path`.
    pub fn set_raw_body(&self, path: &str, body: impl Into<Bytes>) {
        self.raw_bodies.lock().insert(path.to_owned(), body.into());
    }

    /// Compacts the history: a watch from an earlier revision gets 410.
    pub fn compact(&self) {
        self.mutate(FakeStore::compact);
    }

    /// Pauses the watches of a resource until [`Self::resume_watches`]: readers of the
    /// watch lag behind while writes go on.
    pub fn pause_watches(&self, resource: &Gvr) {
        self.mutate(|s| s.paused_watches.insert(resource.clone()));
    }

    /// Resumes the watches of a resource and delivers the events held back.
    pub fn resume_watches(&self, resource: &Gvr) {
        self.mutate(|s| s.paused_watches.remove(resource));
    }

    /// Ends all open watches without an error.
    pub fn end_watches(&self) {
        self.mutate(|s| s.watch_generation += 1);
    }

    /// Sends a bookmark to every open watch that requested bookmarks.
    pub fn send_bookmark(&self) {
        self.mutate(FakeStore::bookmark);
    }

    pub fn revision(&self) -> u64 {
        self.server.store.lock().revision
    }

    fn mutate<T>(&self, act: impl FnOnce(&mut FakeStore) -> T) -> T {
        let result = act(&mut self.server.store.lock());
        self.server.event_counter.send_modify(|n| *n += 1);
        result
    }

    fn kind_of(&self, resource: &Gvr) -> Option<String> {
        let served = self.resources.lock();
        let row = served.iter().find(|r| r.resource == *resource)?;
        Some(row.kind.clone())
    }
}
