//! An in-memory API server for tests. It accepts, refuses and streams what a real server
//! does, as far as controllers can observe.
//!
//! A test seeds objects, injects errors and reads back objects and the log of writes. Not
//! implemented: schemas, defaulting, admission, strategic merge keys (such a patch is
//! merged as a JSON merge patch), garbage collection and the namespace lifecycle.

mod serve;
mod state;
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

use crate::api::{ApiResource, Error};
use state::State;

/// A call as the call hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `get list watch create update patch delete deletecollection resources raw`.
    pub verb: &'a str,
    /// `None` for `resources` and `raw`.
    pub resource: Option<&'a Gvr>,
    pub namespace: &'a str,
    /// The path for `raw`.
    pub name: &'a str,
    pub subresource: &'a str,
}

/// A write that reached the server; dry runs and calls with an injected error are not
/// recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `create update patch delete deletecollection`.
    pub verb: &'static str,
    pub resource: Gvr,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    /// The body or the patch; null for deletes.
    pub body: Value,
}

type Hook = Arc<dyn Fn(&Call<'_>) -> Option<Error> + Send + Sync>;
type AnswerHook = Arc<dyn Fn(&Call<'_>) + Send + Sync>;
type Answer = Arc<dyn Fn(Value) -> Value + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    /// Incremented with every event, to wake the watches.
    moved: watch::Sender<u64>,
}

/// A fake API server. One per test.
pub struct FakeApi {
    shared: Arc<Shared>,
    writes: Mutex<Vec<Write>>,
    hook: Mutex<Option<Hook>>,
    answer_hook: Mutex<Option<AnswerHook>>,
    create_delays: Mutex<HashMap<Gvr, Duration>>,
    served: Mutex<Vec<ApiResource>>,
    raw: Mutex<HashMap<String, Bytes>>,
    answers: Mutex<HashMap<Gvr, Answer>>,
}

impl FakeApi {
    /// An empty server. Its clock stands at 2026-01-01T00:00:00Z.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new()),
                moved: watch::Sender::new(0),
            }),
            writes: Mutex::default(),
            hook: Mutex::default(),
            answer_hook: Mutex::default(),
            create_delays: Mutex::default(),
            served: Mutex::default(),
            raw: Mutex::default(),
            answers: Mutex::default(),
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
        let seeded = self.change(|s| s.seed(resource, kind.as_deref(), value));
        seeded.unwrap_or_else(|e| panic!("seed of {resource}: {e}"))
    }

    /// Removes an object regardless of finalizers. Watches see it; it is not recorded as
    /// a write.
    pub fn remove(&self, resource: &Gvr, namespace: &str, name: &str) {
        self.change(|s| s.remove(resource, namespace, name));
    }

    /// The current state of an object.
    pub fn object(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.state.lock();
        state.find(resource, namespace, name)?.value().ok()
    }

    /// All objects of a resource, by namespace and name.
    pub fn objects(&self, resource: &Gvr) -> Vec<Value> {
        let state = self.shared.state.lock();
        state.all(resource).filter_map(|o| o.value().ok()).collect()
    }

    /// The recorded writes, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().clone()
    }

    pub fn clear_writes(&self) {
        self.writes.lock().clear();
    }

    /// Runs `hook` before every call; the call returns the error that the hook returns.
    pub fn on_call(&self, hook: impl Fn(&Call<'_>) -> Option<Error> + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    /// Runs `hook` after every successful write, before the call returns.
    pub fn on_answer(&self, hook: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        *self.answer_hook.lock() = Some(Arc::new(hook));
    }

    /// Delays creates of a resource.
    pub fn delay_create(&self, resource: &Gvr, delay: Duration) {
        let mut delays = self.create_delays.lock();
        delays.insert(resource.clone(), delay);
    }

    /// Sets the response to creates of a resource that is not stored, such as a review.
    pub fn answer(&self, resource: &Gvr, answer: impl Fn(Value) -> Value + Send + Sync + 'static) {
        let mut answers = self.answers.lock();
        answers.insert(resource.clone(), Arc::new(answer));
    }

    /// Sets the clock of creation and deletion timestamps.
    pub fn set_now(&self, now: Timestamp) {
        self.shared.state.lock().now = now;
    }

    /// Adds a resource to discovery; objects without a kind get this resource's kind.
    pub fn serve(&self, resource: ApiResource) {
        self.served.lock().push(resource);
    }

    /// Removes a resource from discovery.
    pub fn unserve(&self, resource: &Gvr) {
        self.served.lock().retain(|r| r.resource != *resource);
    }

    /// Sets the response to a GET of `path`.
    pub fn serve_raw(&self, path: &str, body: impl Into<Bytes>) {
        self.raw.lock().insert(path.to_owned(), body.into());
    }

    /// Compacts the history: a watch from an earlier revision gets 410.
    pub fn expire(&self) {
        self.change(State::expire);
    }

    /// Pauses the watches of a resource until [`Self::resume_watches`]: readers of the
    /// watch lag behind while writes go on.
    pub fn hold(&self, resource: &Gvr) {
        self.change(|s| s.held.insert(resource.clone()));
    }

    /// Resumes the watches of a resource and delivers the events held back.
    pub fn release(&self, resource: &Gvr) {
        self.change(|s| s.held.remove(resource));
    }

    /// Ends all open watches without an error.
    pub fn end_watches(&self) {
        self.change(|s| s.generation += 1);
    }

    /// Sends a bookmark to every open watch that requested bookmarks.
    pub fn bookmark(&self) {
        self.change(State::bookmark);
    }

    pub fn revision(&self) -> u64 {
        self.shared.state.lock().revision
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = act(&mut self.shared.state.lock());
        self.shared.moved.send_modify(|n| *n += 1);
        result
    }

    fn kind_of(&self, resource: &Gvr) -> Option<String> {
        let served = self.served.lock();
        let row = served.iter().find(|r| r.resource == *resource)?;
        Some(row.kind.clone())
    }
}
