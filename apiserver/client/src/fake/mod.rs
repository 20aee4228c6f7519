//! An API server in memory, for tests: what it accepts, refuses and streams is
//! what a real one does, as far as controllers can tell.
//!
//! Enters: seeds and the calls of the code under test. Leaves: objects, watch
//! events, a log of the writes, and errors where a test asks for them. Not here:
//! schemas, defaulting, admission, strategic merge keys (such a patch is merged),
//! garbage collection and the namespace life cycle.

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

/// A call as the error hook sees it.
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

/// A write that reached the server (dry runs and injected errors do not).
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `create update patch delete deletecollection`.
    pub verb: &'static str,
    pub resource: Gvr,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    /// The body or the patch; null for deletions.
    pub body: Value,
}

type Hook = Arc<dyn Fn(&Call<'_>) -> Option<Error> + Send + Sync>;
type AnswerHook = Arc<dyn Fn(&Call<'_>) + Send + Sync>;
type Answer = Arc<dyn Fn(Value) -> Value + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    /// Bumped with every event, so that watches look again.
    moved: watch::Sender<u64>,
}

/// The server. One per test.
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
    /// An empty server whose clock stands at 2026-01-01T00:00:00Z.
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

    /// Puts an object in as it is (status, uid and generation kept; those absent
    /// are made), replacing one of its name. Watches see it, the log does not.
    #[expect(
        clippy::panic,
        reason = "a fixture that is no object must stop its test"
    )]
    pub fn seed(&self, resource: &Gvr, value: Value) -> Object {
        let kind = self.kind_of(resource);
        let seeded = self.change(|s| s.seed(resource, kind.as_deref(), value));
        seeded.unwrap_or_else(|e| panic!("seed of {resource}: {e}"))
    }

    /// Takes an object out, finalizers or not. Watches see it, the log does not.
    pub fn remove(&self, resource: &Gvr, namespace: &str, name: &str) {
        self.change(|s| s.remove(resource, namespace, name));
    }

    /// An object's present state.
    pub fn object(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.state.lock();
        state.find(resource, namespace, name)?.value().ok()
    }

    /// All objects of a resource, by namespace and name.
    pub fn objects(&self, resource: &Gvr) -> Vec<Value> {
        let state = self.shared.state.lock();
        state.all(resource).filter_map(|o| o.value().ok()).collect()
    }

    /// The writes so far, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().clone()
    }

    pub fn clear_writes(&self) {
        self.writes.lock().clear();
    }

    /// Asks `hook` before every call; what it returns is the answer.
    pub fn on_call(&self, hook: impl Fn(&Call<'_>) -> Option<Error> + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    /// Runs `hook` after every write that succeeded, before its caller gets the answer.
    pub fn on_answer(&self, hook: impl Fn(&Call<'_>) + Send + Sync + 'static) {
        *self.answer_hook.lock() = Some(Arc::new(hook));
    }

    /// Lets creations of a resource take a while.
    pub fn delay_create(&self, resource: &Gvr, delay: Duration) {
        let mut delays = self.create_delays.lock();
        delays.insert(resource.clone(), delay);
    }

    /// Answers creations of a resource that stores nothing, such as a review.
    pub fn answer(&self, resource: &Gvr, answer: impl Fn(Value) -> Value + Send + Sync + 'static) {
        let mut answers = self.answers.lock();
        answers.insert(resource.clone(), Arc::new(answer));
    }

    /// Sets the clock of creation and deletion timestamps.
    pub fn set_now(&self, now: Timestamp) {
        self.shared.state.lock().now = now;
    }

    /// Adds a resource to discovery; objects without a kind get this one.
    pub fn serve(&self, resource: ApiResource) {
        self.served.lock().push(resource);
    }

    /// Takes a resource out of discovery.
    pub fn unserve(&self, resource: &Gvr) {
        self.served.lock().retain(|r| r.resource != *resource);
    }

    /// Sets the answer to a GET of `path`.
    pub fn serve_raw(&self, path: &str, body: impl Into<Bytes>) {
        self.raw.lock().insert(path.to_owned(), body.into());
    }

    /// Forgets the history: a watch from before now gets 410.
    pub fn expire(&self) {
        self.change(State::expire);
    }

    /// Watches of a resource tell nothing until [`Self::release`]: what is read there
    /// stays as it was, while writes go on.
    pub fn hold(&self, resource: &Gvr) {
        self.change(|s| s.held.insert(resource.clone()));
    }

    /// Watches of a resource tell what they kept back, and go on.
    pub fn release(&self, resource: &Gvr) {
        self.change(|s| s.held.remove(resource));
    }

    /// Ends all open watches without an error.
    pub fn end_watches(&self) {
        self.change(|s| s.generation += 1);
    }

    /// Sends a bookmark to every open watch that asked for them.
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
