//! Records Events (core v1) about objects; a background task writes them.
//!
//! A new event costs at most one write; repeats only raise `count` (as client-go's
//! `tools/record` correlator: same object, type, reason and message; 25 in a row per
//! object, then one in five minutes). All memory is bounded; events that do not fit are
//! dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ahash::{AHashMap, RandomState};
use client::event::{EVENTS, event_name};
use client::{Api, CoreEvent, InvolvedObject, Patch, ResourcePath, TaskGroup, WriteOptions};
use futures_util::StreamExt;
use machinery::time::{Clock, rfc3339_seconds};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::metrics;
use crate::token_bucket::TokenBuckets;

/// Events waiting to be written: as many as some 350 new Deployments in three clusters cause.
const MAX_QUEUED_EVENTS: usize = 8192;
/// Written events that are remembered so that their count can be raised.
const MAX_CACHED_EVENTS: usize = 4096;
/// How long events are collected before they are written.
const BATCH_WINDOW: Duration = Duration::from_millis(100);
/// Events in one create call: few enough that no other write waits long behind them.
const MAX_EVENTS_PER_WRITE: usize = 128;
/// Concurrent patches that raise a count.
const MAX_CONCURRENT_PATCHES: usize = 8;
/// Bytes of a message (`events.k8s.io` allows no more in `note`).
const MAX_MESSAGE_BYTES: usize = 1024;
/// How long writing the last events may take at shutdown.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

struct RecordedEvent {
    component: Arc<str>,
    involved_object: InvolvedObject,
    warning: bool,
    reason: String,
    message: String,
}

struct EventRecorderInner {
    sender: mpsc::Sender<RecordedEvent>,
    dropped: Arc<AtomicU64>,
}

/// Records events for controllers. Clones share one writer.
#[derive(Clone)]
pub struct EventRecorder {
    handle: Option<Arc<EventRecorderInner>>,
    component: Arc<str>,
}

impl EventRecorder {
    /// A recorder for one component; its writer task belongs to `tasks`.
    pub fn new(
        api: Arc<dyn Api>,
        component: &str,
        clock: Arc<dyn Clock>,
        tasks: &TaskGroup,
    ) -> Self {
        let (sender, inbox) = mpsc::channel(MAX_QUEUED_EVENTS);
        let dropped = Arc::new(AtomicU64::new(0));
        metrics::register_dropped_events(&dropped);
        let writer = EventWriter {
            api,
            clock,
            receiver: inbox,
            dropped: Arc::clone(&dropped),
            hasher: RandomState::new(),
            second_hasher: RandomState::new(),
            cached: AHashMap::new(),
            // 25 at once, then one in 300 s, per object; as client-go's spam filter.
            buckets: TokenBuckets::new(25, Duration::from_secs(300), MAX_CACHED_EVENTS),
            last_nanos: 0,
            batch: 0,
        };
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move { writer.run(shutdown).await });
        Self {
            handle: Some(Arc::new(EventRecorderInner { sender, dropped })),
            component: component.into(),
        }
    }

    /// A recorder that discards all events.
    pub fn disabled() -> Self {
        Self {
            handle: None,
            component: "".into(),
        }
    }

    /// The same recorder for another component, which events name as their source.
    pub fn with_component(&self, component: &str) -> Self {
        Self {
            handle: self.handle.clone(),
            component: component.into(),
        }
    }

    /// Records an event of type `Normal`.
    pub fn normal(&self, about: &InvolvedObject, reason: &str, message: impl Into<String>) {
        self.record(about, false, reason, message.into());
    }

    /// Records an event of type `Warning`.
    pub fn warning(&self, about: &InvolvedObject, reason: &str, message: impl Into<String>) {
        self.record(about, true, reason, message.into());
    }

    fn record(&self, about: &InvolvedObject, warning: bool, reason: &str, mut message: String) {
        let Some(handle) = &self.handle else { return };
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
        let event = RecordedEvent {
            component: Arc::clone(&self.component),
            involved_object: about.clone(),
            warning,
            reason: reason.to_owned(),
            message,
        };
        if handle.sender.try_send(event).is_err() {
            handle.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of events that were not written: too many waiting, too many about one object,
    /// or refused by the server.
    pub fn dropped(&self) -> u64 {
        self.handle
            .as_ref()
            .map_or(0, |h| h.dropped.load(Ordering::Relaxed))
    }
}

/// A hash of 128 bits over component, object, type, reason and message.
type CachedEventKeyHash = (u64, u64);

struct CachedEvent {
    namespace: String,
    name: String,
    count: u64,
    /// The batch in which it was recorded last.
    last_batch: u64,
}

/// An event and how often it was recorded in this batch.
struct EventWithBatchCount {
    id: CachedEventKeyHash,
    event: RecordedEvent,
    count: u64,
}

struct EventWriter {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    receiver: mpsc::Receiver<RecordedEvent>,
    dropped: Arc<AtomicU64>,
    hasher: RandomState,
    second_hasher: RandomState,
    cached: AHashMap<CachedEventKeyHash, CachedEvent>,
    buckets: TokenBuckets<CachedEventKeyHash>,
    last_nanos: i128,
    batch: u64,
}

impl EventWriter {
    async fn run(mut self, shutdown: client::ShutdownToken) {
        loop {
            // Not kept for the next batch: after a burst it would hold its memory forever.
            let mut events = Vec::new();
            match shutdown.run_until_triggered(self.receiver.recv()).await {
                Some(Some(first)) => events.push(first),
                // All recorders are gone.
                Some(None) => return,
                None => {}
            }
            let window = tokio::time::sleep(BATCH_WINDOW);
            let waited = shutdown.run_until_triggered(window).await;
            self.collect(&mut events);
            let write = self.write(events);
            if waited.is_none() {
                let _ = tokio::time::timeout(SHUTDOWN_FLUSH_TIMEOUT, write).await;
                return;
            }
            write.await;
        }
    }

    fn collect(&mut self, events: &mut Vec<RecordedEvent>) {
        while let Ok(next) = self.receiver.try_recv() {
            events.push(next);
        }
    }

    fn coalesce(&mut self, events: Vec<RecordedEvent>) -> Vec<EventWithBatchCount> {
        let mut pending: Vec<EventWithBatchCount> = Vec::new();
        let mut at = AHashMap::new();
        for event in events {
            let own = (
                &event.component,
                &event.involved_object.kind,
                &event.involved_object.namespace,
                &event.involved_object.name,
                &event.involved_object.uid,
            );
            let key = (own, event.warning, &event.reason, &event.message);
            let id = (self.hasher.hash_one(key), self.second_hasher.hash_one(key));
            if let Some(index) = at.get(&id) {
                let same: &mut EventWithBatchCount = &mut pending[*index];
                same.count += 1;
                same.event = event;
                continue;
            }
            let object = (self.hasher.hash_one(own), self.second_hasher.hash_one(own));
            if !self.buckets.take(object, Instant::now()) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            at.insert(id, pending.len());
            pending.push(EventWithBatchCount {
                id,
                event,
                count: 1,
            });
        }
        pending
    }

    async fn write(&mut self, events: Vec<RecordedEvent>) {
        self.batch += 1;
        let now = rfc3339_seconds(self.clock.now());
        let (mut new, mut repeated) = (Vec::new(), Vec::new());
        for event in self.coalesce(events) {
            match self.cached.remove(&event.id) {
                Some(before) => repeated.push((event, before)),
                None => new.push(event),
            }
        }
        new.extend(self.increment_counts(repeated, &now).await);
        while !new.is_empty() {
            let rest = new.split_off(new.len().min(MAX_EVENTS_PER_WRITE));
            self.create(std::mem::replace(&mut new, rest), &now).await;
        }
        self.evict_cached();
    }

    /// Raises the counts of cached events. Returns those that the server no longer has,
    /// because events expire; they are created anew.
    async fn increment_counts(
        &mut self,
        cached: Vec<(EventWithBatchCount, CachedEvent)>,
        now: &str,
    ) -> Vec<EventWithBatchCount> {
        let (api, round) = (Arc::clone(&self.api), self.batch);
        let api = &*api;
        let writes = cached.into_iter().map(|(event, mut cached)| async move {
            cached.count += event.count;
            cached.last_batch = round;
            let at = ResourcePath::object(&EVENTS, &cached.namespace, &cached.name);
            let body = json!({"count": cached.count, "lastTimestamp": now});
            let options = WriteOptions::default();
            let written = api.patch(at, Patch::Merge(body), &options).await;
            (event, cached, written)
        });
        let writes = futures_util::stream::iter(writes.collect::<Vec<_>>());
        let outcomes: Vec<_> = writes
            .buffer_unordered(MAX_CONCURRENT_PATCHES)
            .collect()
            .await;
        let mut gone = Vec::new();
        for (event, cached, written) in outcomes {
            match written {
                Ok(_) => drop(self.cached.insert(event.id, cached)),
                Err(error) if error.is_not_found() => gone.push(event),
                Err(error) => self.record_failure(&error),
            }
        }
        gone
    }

    async fn create(&mut self, pending: Vec<EventWithBatchCount>, now: &str) {
        let (mut cached_events, mut events) = (Vec::new(), Vec::new());
        for EventWithBatchCount {
            id,
            event: recorded,
            count: times,
        } in pending
        {
            let nanos = self.clock.now().as_nanosecond();
            self.last_nanos = nanos.max(self.last_nanos + 1);
            let mut event = CoreEvent::new(
                &recorded.component,
                recorded.involved_object,
                recorded.warning,
                now,
            );
            event.metadata.name = event_name(&event.involved_object.name, self.last_nanos);
            (event.count, event.reason, event.message) = (times, recorded.reason, recorded.message);
            let cached = CachedEvent {
                namespace: event.metadata.namespace.clone(),
                name: event.metadata.name.clone(),
                count: times,
                last_batch: self.batch,
            };
            cached_events.push((id, cached));
            events.push(event);
        }
        let outcomes = self.api.create_events(events).await;
        for ((id, cached_events), outcome) in cached_events.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => drop(self.cached.insert(id, cached_events)),
                Err(error) => self.record_failure(&error),
            }
        }
    }

    /// Counts an event as dropped. Failures in a terminating namespace are expected and ignored.
    fn record_failure(&self, error: &client::Error) {
        if !error.is_namespace_terminating() {
            tracing::debug!(%error, "event not written");
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// When the cache is full, keeps the half that was recorded most recently.
    fn evict_cached(&mut self) {
        if self.cached.len() <= MAX_CACHED_EVENTS {
            return;
        }
        let mut rounds: Vec<u64> = self.cached.values().map(|k| k.last_batch).collect();
        let middle = rounds.len() / 2;
        let (_, median, _) = rounds.select_nth_unstable(middle);
        let median = *median;
        self.cached.retain(|_, k| k.last_batch > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ShutdownToken;
    use client_fake::FakeApi;
    use machinery::Object;
    use machinery::time::FakeClock;

    fn involved_object(name: &str) -> InvolvedObject {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"}});
        InvolvedObject::from_object(&Object::from_value(&object).unwrap())
    }

    async fn wait_for_flush() {
        tokio::time::sleep(BATCH_WINDOW * 3).await;
    }

    fn setup() -> (Arc<FakeApi>, EventRecorder, TaskGroup) {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let clock = FakeClock::new("2026-01-02T03:04:05Z".parse().unwrap());
        let recorder = EventRecorder::new(fake.clone(), "test", Arc::new(clock), &tasks);
        (fake, recorder, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_are_one_object_and_few_writes() {
        let (fake, recorder, tasks) = setup();
        for _ in 0..3 {
            recorder.normal(&involved_object("a"), "R", "m");
        }
        recorder.warning(&involved_object("a"), "R", "m");
        recorder
            .with_component("other")
            .warning(&involved_object("a"), "R", "m");
        wait_for_flush().await;
        recorder.normal(&involved_object("a"), "R", "m");
        wait_for_flush().await;
        let events = fake.list_objects(&EVENTS);
        let mut actual: Vec<_> = events
            .iter()
            .map(|e| {
                let by = e["source"]["component"].as_str().unwrap();
                assert_eq!(e["reportingComponent"], by);
                (e["type"].as_str().unwrap(), e["count"].as_u64(), by)
            })
            .collect();
        actual.sort_unstable();
        let expected = [
            ("Normal", Some(4), "test"),
            ("Warning", Some(1), "other"),
            ("Warning", Some(1), "test"),
        ];
        assert_eq!(actual, expected);
        assert_eq!(fake.writes().len(), 4);
        let first = events.iter().find(|e| e["count"] == 4).unwrap();
        assert_eq!(
            first["involvedObject"],
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7"})
        );
        assert_eq!(
            (&first["source"]["component"], &first["firstTimestamp"]),
            (&json!("test"), &json!("2026-01-02T03:04:05Z"))
        );

        // An expired event is created anew.
        let name = events.iter().find(|e| e["type"] == "Normal").unwrap()["metadata"]["name"]
            .as_str()
            .unwrap();
        fake.remove(&EVENTS, "ns", name);
        recorder.normal(&involved_object("a"), "R", "m");
        tasks.stop().await;
        assert_eq!(fake.list_objects(&EVENTS).len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn floods_are_bounded_and_callers_never_wait() {
        let (fake, recorder, tasks) = setup();
        for n in 0..40 {
            recorder.normal(&involved_object("a"), "R", format!("message {n}"));
        }
        wait_for_flush().await;
        assert_eq!(
            (fake.list_objects(&EVENTS).len(), recorder.dropped()),
            (25, 15)
        );
        for n in 0..MAX_QUEUED_EVENTS + 10 {
            recorder.normal(
                &involved_object(&format!("b{n}")),
                "R",
                "é".repeat(MAX_MESSAGE_BYTES),
            );
        }
        assert_eq!(recorder.dropped(), 25);
        tasks.stop().await;
        EventRecorder::disabled().normal(&involved_object("a"), "R", "m");
    }
}
