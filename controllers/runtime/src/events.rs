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
use client::event::EVENTS;
use client::{Api, At, Event, ObjectRef, Patch, Tasks, WriteOptions};
use futures_util::StreamExt;
use machinery::time::{Clock, rfc3339_seconds};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::bucket::Buckets;
use crate::figures;

/// Events waiting to be written: as many as some 350 new Deployments in three clusters cause.
const WAITING: usize = 8192;
/// Written events that are remembered so that their count can be raised.
const KNOWN: usize = 4096;
/// How long events are collected before they are written.
const LINGER: Duration = Duration::from_millis(100);
/// Events in one create call: few enough that no other write waits long behind them.
const AT_ONCE: usize = 128;
/// Concurrent patches that raise a count.
const RAISED_AT_ONCE: usize = 8;
/// Bytes of a message (`events.k8s.io` allows no more in `note`).
const LONGEST: usize = 1024;
/// How long writing the last events may take at shutdown.
const FAREWELL: Duration = Duration::from_secs(1);

struct Told {
    component: Arc<str>,
    about: ObjectRef,
    warning: bool,
    reason: String,
    message: String,
}

struct Handle {
    told: mpsc::Sender<Told>,
    dropped: Arc<AtomicU64>,
}

/// Records events for controllers. Clones share one writer.
#[derive(Clone)]
pub struct Recorder {
    handle: Option<Arc<Handle>>,
    component: Arc<str>,
}

impl Recorder {
    /// A recorder for one component; its writer task belongs to `tasks`.
    pub fn new(api: Arc<dyn Api>, component: &str, clock: Arc<dyn Clock>, tasks: &Tasks) -> Self {
        let (sender, inbox) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        figures::dropped_events(&dropped);
        let writer = Writer {
            api,
            clock,
            inbox,
            dropped: Arc::clone(&dropped),
            hasher: RandomState::new(),
            second: RandomState::new(),
            known: AHashMap::new(),
            // 25 at once, then one in 300 s, per object; as client-go's spam filter.
            buckets: Buckets::new(25, Duration::from_secs(300), KNOWN),
            last_nanos: 0,
            round: 0,
        };
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move { writer.run(shutdown).await });
        Self {
            handle: Some(Arc::new(Handle {
                told: sender,
                dropped,
            })),
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
    pub fn named(&self, component: &str) -> Self {
        Self {
            handle: self.handle.clone(),
            component: component.into(),
        }
    }

    /// Records an event of type `Normal`.
    pub fn normal(&self, about: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.tell(about, false, reason, message.into());
    }

    /// Records an event of type `Warning`.
    pub fn warning(&self, about: &ObjectRef, reason: &str, message: impl Into<String>) {
        self.tell(about, true, reason, message.into());
    }

    fn tell(&self, about: &ObjectRef, warning: bool, reason: &str, mut message: String) {
        let Some(handle) = &self.handle else { return };
        if message.len() > LONGEST {
            message.truncate(message.floor_char_boundary(LONGEST));
        }
        let event = Told {
            component: Arc::clone(&self.component),
            about: about.clone(),
            warning,
            reason: reason.to_owned(),
            message,
        };
        if handle.told.try_send(event).is_err() {
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
type Id = (u64, u64);

struct Known {
    namespace: String,
    name: String,
    count: u64,
    /// The batch in which it was recorded last.
    round: u64,
}

/// An event and how often it was recorded in this batch.
struct Pending {
    id: Id,
    told: Told,
    times: u64,
}

struct Writer {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    inbox: mpsc::Receiver<Told>,
    dropped: Arc<AtomicU64>,
    hasher: RandomState,
    second: RandomState,
    known: AHashMap<Id, Known>,
    buckets: Buckets<Id>,
    last_nanos: i128,
    round: u64,
}

impl Writer {
    async fn run(mut self, shutdown: client::Shutdown) {
        let mut events = Vec::new();
        loop {
            match shutdown.unless(self.inbox.recv()).await {
                Some(Some(first)) => events.push(first),
                // All recorders are gone.
                Some(None) => return,
                None => break,
            }
            if shutdown.unless(tokio::time::sleep(LINGER)).await.is_none() {
                break;
            }
            self.collect(&mut events);
            self.write(&mut events).await;
        }
        self.collect(&mut events);
        let _ = tokio::time::timeout(FAREWELL, self.write(&mut events)).await;
    }

    fn collect(&mut self, events: &mut Vec<Told>) {
        while let Ok(next) = self.inbox.try_recv() {
            events.push(next);
        }
    }

    fn coalesce(&mut self, events: &mut Vec<Told>) -> Vec<Pending> {
        let mut pending: Vec<Pending> = Vec::new();
        let mut at = AHashMap::new();
        for event in events.drain(..) {
            let own = (
                &event.component,
                &event.about.kind,
                &event.about.namespace,
                &event.about.name,
                &event.about.uid,
            );
            let key = (own, event.warning, &event.reason, &event.message);
            let id = (self.hasher.hash_one(key), self.second.hash_one(key));
            if let Some(known) = at.get(&id) {
                let same: &mut Pending = &mut pending[*known];
                same.times += 1;
                same.told = event;
                continue;
            }
            let object = (self.hasher.hash_one(own), self.second.hash_one(own));
            if !self.buckets.take(object, Instant::now()) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            at.insert(id, pending.len());
            pending.push(Pending {
                id,
                told: event,
                times: 1,
            });
        }
        pending
    }

    async fn write(&mut self, events: &mut Vec<Told>) {
        self.round += 1;
        let now = rfc3339_seconds(self.clock.now());
        let (mut new, mut known) = (Vec::new(), Vec::new());
        for event in self.coalesce(events) {
            match self.known.remove(&event.id) {
                Some(before) => known.push((event, before)),
                None => new.push(event),
            }
        }
        new.extend(self.raise(known, &now).await);
        while !new.is_empty() {
            let rest = new.split_off(new.len().min(AT_ONCE));
            self.create(std::mem::replace(&mut new, rest), &now).await;
        }
        self.forget();
    }

    /// Raises the counts of cached events. Returns those that the server no longer has,
    /// because events expire; they are created anew.
    async fn raise(&mut self, known: Vec<(Pending, Known)>, now: &str) -> Vec<Pending> {
        let (api, round) = (Arc::clone(&self.api), self.round);
        let api = &*api;
        let writes = known.into_iter().map(|(event, mut known)| async move {
            known.count += event.times;
            known.round = round;
            let at = At::one(&EVENTS, &known.namespace, &known.name);
            let body = json!({"count": known.count, "lastTimestamp": now});
            let options = WriteOptions::default();
            let written = api.patch(at, Patch::Merge(body), &options).await;
            (event, known, written)
        });
        let writes = futures_util::stream::iter(writes.collect::<Vec<_>>());
        let outcomes: Vec<_> = writes.buffer_unordered(RAISED_AT_ONCE).collect().await;
        let mut gone = Vec::new();
        for (event, known, written) in outcomes {
            match written {
                Ok(_) => drop(self.known.insert(event.id, known)),
                Err(error) if error.is_not_found() => gone.push(event),
                Err(error) => self.failed(&error),
            }
        }
        gone
    }

    async fn create(&mut self, pending: Vec<Pending>, now: &str) {
        let (mut known, mut events) = (Vec::new(), Vec::new());
        for Pending {
            id,
            told: recorded,
            times,
        } in pending
        {
            let nanos = self.clock.now().as_nanosecond();
            self.last_nanos = nanos.max(self.last_nanos + 1);
            let mut event = Event::new(&recorded.component, recorded.about, recorded.warning, now);
            event.metadata.name = format!("{}.{:x}", event.involved_object.name, self.last_nanos);
            (event.count, event.reason, event.message) = (times, recorded.reason, recorded.message);
            let cached = Known {
                namespace: event.metadata.namespace.clone(),
                name: event.metadata.name.clone(),
                count: times,
                round: self.round,
            };
            known.push((id, cached));
            events.push(event);
        }
        let outcomes = self.api.record(events).await;
        for ((id, known), outcome) in known.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => drop(self.known.insert(id, known)),
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Counts an event as dropped. Failures in a terminating namespace are expected and ignored.
    fn failed(&self, error: &client::Error) {
        if !error.is_namespace_terminating() {
            tracing::debug!(%error, "event not written");
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// When the cache is full, keeps the half that was recorded most recently.
    fn forget(&mut self) {
        if self.known.len() <= KNOWN {
            return;
        }
        let mut rounds: Vec<u64> = self.known.values().map(|k| k.round).collect();
        let middle = rounds.len() / 2;
        let (_, median, _) = rounds.select_nth_unstable(middle);
        let median = *median;
        self.known.retain(|_, k| k.round > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Shutdown;
    use client::fake::FakeApi;
    use machinery::Object;
    use machinery::time::FakeClock;

    fn about(name: &str) -> ObjectRef {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"}});
        ObjectRef::of(&Object::from_value(&object).unwrap())
    }

    async fn settle() {
        tokio::time::sleep(LINGER * 3).await;
    }

    fn setup() -> (Arc<FakeApi>, Recorder, Tasks) {
        let fake = FakeApi::new();
        let tasks = Tasks::new(Shutdown::new());
        let clock = FakeClock::new("2026-01-02T03:04:05Z".parse().unwrap());
        let recorder = Recorder::new(fake.clone(), "test", Arc::new(clock), &tasks);
        (fake, recorder, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_are_one_object_and_few_writes() {
        let (fake, recorder, tasks) = setup();
        for _ in 0..3 {
            recorder.normal(&about("a"), "R", "m");
        }
        recorder.warning(&about("a"), "R", "m");
        recorder.named("other").warning(&about("a"), "R", "m");
        settle().await;
        recorder.normal(&about("a"), "R", "m");
        settle().await;
        let events = fake.objects(&EVENTS);
        let mut seen: Vec<_> = events
            .iter()
            .map(|e| {
                let by = e["source"]["component"].as_str().unwrap();
                assert_eq!(e["reportingComponent"], by);
                (e["type"].as_str().unwrap(), e["count"].as_u64(), by)
            })
            .collect();
        seen.sort_unstable();
        let expected = [
            ("Normal", Some(4), "test"),
            ("Warning", Some(1), "other"),
            ("Warning", Some(1), "test"),
        ];
        assert_eq!(seen, expected);
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
        recorder.normal(&about("a"), "R", "m");
        tasks.stop().await;
        assert_eq!(fake.objects(&EVENTS).len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn floods_are_bounded_and_callers_never_wait() {
        let (fake, recorder, tasks) = setup();
        for n in 0..40 {
            recorder.normal(&about("a"), "R", format!("message {n}"));
        }
        settle().await;
        assert_eq!((fake.objects(&EVENTS).len(), recorder.dropped()), (25, 15));
        for n in 0..WAITING + 10 {
            recorder.normal(&about(&format!("b{n}")), "R", "é".repeat(LONGEST));
        }
        assert_eq!(recorder.dropped(), 25);
        tasks.stop().await;
        Recorder::disabled().normal(&about("a"), "R", "m");
    }
}
