//! The reflector: lists a resource, then watches it from that revision, and resumes for
//! ever (client-go's `Reflector`).
//!
//! It calls a [`ReflectorSink`] in order, one object at a time, so a sink can aggregate
//! objects and keep none. It holds at most one list page in memory.

use std::time::Duration;

use futures_util::StreamExt;
use machinery::{ExponentialBackoff, Gvr, Object};
use rand::Rng;
use tokio::time::Instant;

use crate::api::{Api, Error, ListOptions, ResourcePath, Result, WatchEvent, WatchOptions};
use crate::tasks::ShutdownToken;

/// Objects per page of a list, as in client-go's pager.
const LIST_PAGE_SIZE: u64 = 500;
/// The backoff of client-go's reflector, without its jitter.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(800), Duration::from_secs(30));
/// The backoff on a network that breaks again and again. It is shorter, because the server is
/// there: with the long one a cache falls minutes behind.
const BROKEN_NETWORK_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(800), Duration::from_secs(5));
/// A server that has answered so recently is there.
const RECENT_ANSWER: Duration = Duration::from_secs(60);
/// The range of `timeoutSeconds`. The server ends a watch after five to ten minutes, so
/// that the connections of many clients spread over its replicas again.
const WATCH_TIMEOUT_SECONDS: std::ops::Range<u32> = 300..600;
/// A watch that ends sooner without an event counts as a failure.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

/// The objects to list and watch. Equal selectors share an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListWatchSelector {
    pub resource: Gvr,
    /// Empty: all namespaces, or cluster scope.
    pub namespace: String,
    /// In query syntax; empty: all.
    pub labels: String,
    /// In query syntax; empty: all.
    pub fields: String,
}

impl ListWatchSelector {
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

    fn resource_path(&self) -> ResourcePath<'_> {
        ResourcePath::collection(&self.resource, &self.namespace)
    }
}

/// The receiver of a reflector's objects. Called from one task; must not block.
pub trait ReflectorSink: Send {
    /// A list begins. Objects that are not in it by [`ReflectorSink::end_list`] were
    /// deleted.
    fn begin_list(&mut self);
    /// An object of the list.
    fn list_item(&mut self, object: Object);
    /// The list is complete.
    fn end_list(&mut self);
    /// An object was added or modified.
    fn upsert(&mut self, object: Object);
    /// An object was deleted or no longer matches; `object` is its last state.
    fn delete(&mut self, object: Object);
    /// A call failed and will be retried; `None`: list and watch work (again).
    fn report_health(&mut self, error: Option<&Error>);
}

/// The delay before the next attempt, by how the last one failed.
struct ReflectorBackoff {
    calls: ExponentialBackoff,
    broken_network: ExponentialBackoff,
    /// When the server has sent a list or opened a watch.
    answered: Option<Instant>,
}

impl ReflectorBackoff {
    fn new() -> Self {
        Self {
            calls: BACKOFF,
            broken_network: BROKEN_NETWORK_BACKOFF,
            answered: None,
        }
    }

    fn record_answer(&mut self) {
        self.answered = Some(Instant::now());
    }

    /// An event has come, or a watch has lasted.
    fn reset(&mut self) {
        self.calls.reset();
        self.broken_network.reset();
    }

    fn next_delay(&mut self, error: &Error) -> Duration {
        let recent = self.answered.is_some_and(|at| at.elapsed() < RECENT_ANSWER);
        // A Status is an answer of the server, not a break of the network.
        if !recent || error.status().is_some() {
            return self.calls.next_delay();
        }
        self.calls.reset();
        self.broken_network.next_delay()
    }
}

/// Keeps `sink` in sync with the server until `shutdown`.
pub async fn run_reflector(
    api: &dyn Api,
    select: &ListWatchSelector,
    sink: &mut dyn ReflectorSink,
    shutdown: &ShutdownToken,
) {
    let mut backoff = ReflectorBackoff::new();
    // 0: not listed yet, or the resource version has expired.
    let mut revision = 0;
    while !shutdown.is_triggered() {
        let step = async {
            if revision == 0 {
                revision = list_pages(api, select, sink).await?;
                backoff.record_answer();
                sink.report_health(None);
            }
            let watched = WatchSession::run(api, select, sink, &mut revision, &mut backoff).await;
            watched.map(|()| backoff.reset())
        };
        let outcome = match shutdown.run_until_triggered(step).await {
            None => return,
            Some(outcome) => outcome,
        };
        let Err(error) = outcome else { continue };
        if error.is_expired() || is_resource_version_too_large(&error) {
            revision = 0;
        }
        sink.report_health(Some(&error));
        tracing::debug!(resource = %select.resource, %error, "list or watch failed");
        let jitter = rand::rng().random_range(1.0..2.0);
        let delay = backoff.next_delay(&error).mul_f64(jitter);
        let pause = async {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = api.wait_until_reachable_again() => {}
            }
        };
        if shutdown.run_until_triggered(pause).await.is_none() {
            return;
        }
    }
}

/// The server's store is older than the revision we have: it was restored from a backup.
fn is_resource_version_too_large(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|s| s.has_cause("ResourceVersionTooLarge"))
}

async fn list_pages(
    api: &dyn Api,
    select: &ListWatchSelector,
    sink: &mut dyn ReflectorSink,
) -> Result<u64> {
    let mut options = ListOptions {
        label_selector: select.labels.clone(),
        field_selector: select.fields.clone(),
        limit: LIST_PAGE_SIZE,
        ..ListOptions::default()
    };
    sink.begin_list();
    loop {
        let page = api.list(select.resource_path(), &options).await?;
        for object in page.items {
            sink.list_item(object);
        }
        if page.continue_token.is_empty() {
            sink.end_list();
            return Ok(page.revision);
        }
        options.continue_token = page.continue_token;
    }
}

struct WatchSession;

impl WatchSession {
    /// Runs one watch to its end. `Ok`: reconnect without backoff.
    async fn run(
        api: &dyn Api,
        select: &ListWatchSelector,
        sink: &mut dyn ReflectorSink,
        revision: &mut u64,
        backoff: &mut ReflectorBackoff,
    ) -> Result<()> {
        let options = WatchOptions {
            label_selector: select.labels.clone(),
            field_selector: select.fields.clone(),
            resource_version: revision.to_string(),
            bookmarks: true,
            timeout_seconds: rand::rng().random_range(WATCH_TIMEOUT_SECONDS),
            ..WatchOptions::default()
        };
        let opened = Instant::now();
        let mut events = api.watch(select.resource_path(), &options).await?;
        backoff.record_answer();
        sink.report_health(None);
        let mut any = false;
        while let Some(event) = events.next().await {
            let event_revision = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let at = object.revision();
                    sink.upsert(object);
                    at
                }
                WatchEvent::Deleted(object) => {
                    let at = object.revision();
                    sink.delete(object);
                    at
                }
                WatchEvent::Bookmark { revision, .. } => revision,
            };
            *revision = event_revision.max(*revision);
            if !any {
                any = true;
                backoff.reset();
            }
        }
        if any || opened.elapsed() >= MIN_WATCH_DURATION {
            return Ok(());
        }
        backoff.answered = None;
        let message = format!("very short watch of {}", select.resource);
        Err(Error::Protocol(message))
    }
}

#[cfg(test)]
mod tests {
    use machinery::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn broken_networks_delay_less_than_servers_that_do_not_answer() {
        let mut backoff = ReflectorBackoff::new();
        let broken = Error::Protocol("connection reset".to_owned());
        let delays = |backoff: &mut ReflectorBackoff, error: &Error| {
            [(); 7].map(|()| backoff.next_delay(error).as_millis())
        };
        let long = [800, 1600, 3200, 6400, 12800, 25600, 30000];
        assert_eq!(delays(&mut backoff, &broken), long);
        backoff.record_answer();
        let short = [800, 1600, 3200, 5000, 5000, 5000, 5000];
        assert_eq!(delays(&mut backoff, &broken), short);
        // The server itself refuses.
        let expired = Error::Status(Box::new(Status::failure(410, "Expired", "too old")));
        assert_eq!(delays(&mut backoff, &expired), long);
        // After a minute the server may be gone.
        tokio::time::sleep(RECENT_ANSWER).await;
        backoff.reset();
        assert_eq!(delays(&mut backoff, &broken), long);
    }
}
