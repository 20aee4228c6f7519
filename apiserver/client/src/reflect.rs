//! The reflector: lists a resource, then watches it from that revision, and resumes for
//! ever (client-go's `Reflector`).
//!
//! It calls a [`ReflectorSink`] in order, one object at a time, so a sink can aggregate
//! objects and keep none. It holds at most one list page in memory.

use std::time::Duration;

use futures_util::StreamExt;
use machinery::{Gvr, Object};
use rand::Rng;
use tokio::time::Instant;

use crate::api::{Api, At, Error, ListOptions, Result, WatchEvent, WatchOptions};
use crate::tasks::Shutdown;

/// Objects per page of a list, as in client-go's pager.
const PAGE: u64 = 500;
/// The backoff of client-go's reflector: 800 ms to 30 s, doubling, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The range of `timeoutSeconds`. The server ends a watch after five to ten minutes, so
/// that the connections of many clients spread over its replicas again.
const WATCH_SECONDS: std::ops::Range<u32> = 300..600;
/// A watch that ends sooner without an event counts as a failure.
const SHORT: Duration = Duration::from_secs(1);

/// The objects to list and watch. Equal selectors share an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Select {
    pub resource: Gvr,
    /// Empty: all namespaces, or cluster scope.
    pub namespace: String,
    /// In query syntax; empty: all.
    pub labels: String,
    /// In query syntax; empty: all.
    pub fields: String,
}

impl Select {
    /// All objects of a resource.
    pub fn all(resource: &Gvr) -> Self {
        Self {
            resource: resource.clone(),
            namespace: String::new(),
            labels: String::new(),
            fields: String::new(),
        }
    }

    /// Restricts to one namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Restricts by label selector.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Restricts by field selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = selector.into();
        self
    }

    fn at(&self) -> At<'_> {
        At::all(&self.resource, &self.namespace)
    }
}

/// The receiver of a reflector's objects. Called from one task; must not block.
pub trait Sink: Send {
    /// A list begins. Objects that are not in it by [`ReflectorSink::end_list`] were
    /// deleted.
    fn restart(&mut self);
    /// An object of the list.
    fn item(&mut self, object: Object);
    /// The list is complete.
    fn listed(&mut self);
    /// An object was added or modified.
    fn changed(&mut self, object: Object);
    /// An object was deleted or no longer matches; `object` is its last state.
    fn deleted(&mut self, object: Object);
    /// A call failed and will be retried; `None`: list and watch work (again).
    fn health(&mut self, error: Option<&Error>);
}

/// Keeps `sink` in sync with the server until `shutdown`.
pub async fn reflect(api: &dyn Api, select: &Select, sink: &mut dyn Sink, shutdown: &Shutdown) {
    let mut pause = Pause::new();
    // 0: not listed yet, or the resource version has expired.
    let mut revision = 0;
    while !shutdown.is_triggered() {
        let step = async {
            if revision == 0 {
                revision = list(api, select, sink).await?;
                sink.health(None);
            }
            let watched = Watched::run(api, select, sink, &mut revision, &mut pause).await;
            watched.map(|()| pause.reset())
        };
        let outcome = match shutdown.unless(step).await {
            None => return,
            Some(outcome) => outcome,
        };
        let Err(error) = outcome else { continue };
        if error.is_expired() || is_from_the_future(&error) {
            revision = 0;
        }
        sink.health(Some(&error));
        tracing::debug!(resource = %select.resource, %error, "list or watch failed");
        if shutdown.unless(pause.wait()).await.is_none() {
            return;
        }
    }
}

/// The server's store is older than the revision we have: it was restored from a backup.
fn is_from_the_future(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|s| s.has_cause("ResourceVersionTooLarge"))
}

async fn list(api: &dyn Api, select: &Select, sink: &mut dyn Sink) -> Result<u64> {
    let mut options = ListOptions {
        label_selector: select.labels.clone(),
        field_selector: select.fields.clone(),
        limit: PAGE,
        ..ListOptions::default()
    };
    sink.restart();
    loop {
        let page = api.list(select.at(), &options).await?;
        for object in page.items {
            sink.item(object);
        }
        if page.continue_token.is_empty() {
            sink.listed();
            return Ok(page.revision);
        }
        options.continue_token = page.continue_token;
    }
}

struct Watched;

impl Watched {
    /// Runs one watch to its end. `Ok`: reconnect without backoff.
    async fn run(
        api: &dyn Api,
        select: &Select,
        sink: &mut dyn Sink,
        revision: &mut u64,
        pause: &mut Pause,
    ) -> Result<()> {
        let options = WatchOptions {
            label_selector: select.labels.clone(),
            field_selector: select.fields.clone(),
            resource_version: revision.to_string(),
            bookmarks: true,
            timeout_seconds: rand::rng().random_range(WATCH_SECONDS),
            ..WatchOptions::default()
        };
        let opened = Instant::now();
        let mut events = api.watch(select.at(), &options).await?;
        sink.health(None);
        let mut any = false;
        while let Some(event) = events.next().await {
            let seen = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let at = object.revision();
                    sink.changed(object);
                    at
                }
                WatchEvent::Deleted(object) => {
                    let at = object.revision();
                    sink.deleted(object);
                    at
                }
                WatchEvent::Bookmark { revision, .. } => revision,
            };
            *revision = seen.max(*revision);
            if !any {
                any = true;
                pause.reset();
            }
        }
        if any || opened.elapsed() >= SHORT {
            return Ok(());
        }
        let why = format!("very short watch of {}", select.resource);
        Err(Error::Protocol(why))
    }
}

/// Exponential backoff with jitter.
pub(crate) struct Pause {
    next: Duration,
}

impl Pause {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    pub(crate) fn reset(&mut self) {
        self.next = FIRST_PAUSE;
    }

    /// Sleeps between one and two times the current backoff, then doubles it.
    pub(crate) async fn wait(&mut self) {
        let jitter = rand::rng().random_range(1.0..2.0);
        tokio::time::sleep(self.next.mul_f64(jitter)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
