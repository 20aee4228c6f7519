//! A watch of the etcd engine, which survives broken connections: a task buffers events
//! for the reader, and opens a new watch at the revision at which the last one broke.
//!
//! server ──messages──► pump (a task) ──► buffer ──► [`StoreWatch::next`]
//!
//! The pump always reads, since an unread watch would block the others of its
//! connection. When the buffer is full, the pump closes the watch until the reader has
//! caught up; the new watch then starts in etcd's history.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Inner;
use super::failure::Again;
use super::stream::{Step, Stream};
use crate::store::{Batch, Error, Event, Feed, Result};

/// Bytes that the buffer of one watch may hold.
const ASIDE: usize = 4 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The interval between two progress requests.
const ASK: Duration = Duration::from_millis(100);
/// After this time without a message the pump sends a progress request.
const QUIET: Duration = Duration::from_secs(10);
/// A server that does not answer progress requests for this time is abandoned.
const MUTE: Duration = Duration::from_secs(5);

/// The revisions that callers wait for, in one group per watched prefix.
#[derive(Default)]
pub(super) struct Wanted(Mutex<Vec<(Arc<str>, watch::Sender<u64>)>>);

impl Wanted {
    fn join(&self, prefix: &Arc<str>) -> watch::Receiver<u64> {
        let mut groups = self.0.lock();
        groups.retain(|(_, group)| group.receiver_count() > 0);
        if let Some((_, group)) = groups.iter().find(|(p, _)| p == prefix) {
            return group.subscribe();
        }
        let (group, member) = watch::channel(0);
        groups.push((Arc::clone(prefix), group));
        member
    }

    /// Asks the watches of a prefix, or all, to reach a revision.
    pub(super) fn raise(&self, prefix: Option<&str>, revision: u64) {
        for (of, group) in self.0.lock().iter() {
            if prefix.is_none_or(|prefix| prefix == &**of) {
                group.send_if_modified(|requested| {
                    let higher = *requested < revision;
                    *requested = revision.max(*requested);
                    higher
                });
            }
        }
    }
}

#[derive(Default)]
struct Lying {
    events: Vec<Event>,
    bytes: usize,
    /// Everything up to this revision was buffered.
    revision: u64,
    /// Everything up to this revision was delivered.
    taken: u64,
    end: Option<Error>,
}

/// The buffer between the pump and the reader.
#[derive(Default)]
struct Aside {
    lying: Mutex<Lying>,
    filled: Notify,
    taken: Notify,
}

impl Aside {
    fn revision(&self) -> u64 {
        self.lying.lock().revision
    }

    /// Buffers events and progress; returns whether the buffer has space for more.
    fn put(&self, events: Vec<Event>, progress: u64) -> bool {
        let mut lying = self.lying.lock();
        let before = lying.revision;
        for event in events {
            let was = event.previous.as_ref().map_or(0, |p| p.value.len());
            let now = event.value.as_ref().map_or(0, bytes::Bytes::len);
            lying.bytes += 256 + event.key.len() + was + now;
            lying.revision = event.revision;
            lying.events.push(event);
        }
        lying.revision = lying.revision.max(progress);
        if lying.revision > before {
            self.filled.notify_one();
        }
        lying.bytes < ASIDE
    }

    fn end(&self, error: Error) {
        self.lying.lock().end = Some(error);
        self.filled.notify_one();
    }

    async fn emptied(&self) {
        loop {
            let taken = self.taken.notified();
            if self.lying.lock().events.is_empty() {
                return;
            }
            taken.await;
        }
    }
}

pub(super) struct Reader {
    aside: Arc<Aside>,
    /// Aborted when the reader is dropped.
    _pump: JoinSet<()>,
}

impl Reader {
    /// Continues an open watch that starts after `after`.
    pub(super) fn new(inner: Arc<Inner>, prefix: &str, after: u64, stream: Stream) -> Self {
        let aside = Arc::new(Aside::default());
        {
            let mut lying = aside.lying.lock();
            lying.revision = after;
            lying.taken = after;
        }
        let prefix: Arc<str> = prefix.into();
        let pump = Pump {
            wanted: inner.wanted.join(&prefix),
            stop: inner.stop.subscribe(),
            inner,
            prefix,
            aside: Arc::clone(&aside),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(pump.run(stream));
        Self {
            aside,
            _pump: tasks,
        }
    }
}

#[async_trait]
impl Feed for Reader {
    async fn next(&mut self) -> Result<Batch> {
        loop {
            let filled = self.aside.filled.notified();
            {
                let mut lying = self.aside.lying.lock();
                if lying.revision > lying.taken {
                    lying.taken = lying.revision;
                    lying.bytes = 0;
                    let batch = Batch {
                        events: std::mem::take(&mut lying.events),
                        revision: lying.revision,
                    };
                    self.aside.taken.notify_one();
                    return Ok(batch);
                }
                if let Some(error) = &lying.end {
                    return Err(error.clone());
                }
            }
            filled.await;
        }
    }
}

/// Why a watch stream ended.
enum Over {
    /// The buffer is full: the reader is too slow.
    Full,
    Broken(String),
    Ended(Error),
}

struct Pump {
    inner: Arc<Inner>,
    prefix: Arc<str>,
    aside: Arc<Aside>,
    wanted: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
}

impl Pump {
    async fn run(mut self, first: Stream) {
        let mut stop = self.stop.clone();
        let error = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => Error::Unavailable("the store is closed".into()),
            error = self.pump(first) => error,
        };
        self.aside.end(error);
    }

    async fn pump(&mut self, first: Stream) -> Error {
        let mut open = Some(first);
        let mut pause = FIRST_PAUSE;
        loop {
            let stream = match open.take() {
                Some(stream) => Ok(stream),
                None => {
                    let after = self.aside.revision();
                    self.inner.open(&self.prefix, after).await
                }
            };
            let why = match stream {
                Ok(stream) => match self.follow(stream).await {
                    Over::Ended(error) => return error,
                    Over::Full => {
                        self.aside.emptied().await;
                        continue;
                    }
                    Over::Broken(why) => {
                        pause = FIRST_PAUSE;
                        why
                    }
                },
                Err(failure) if failure.again == Again::Never => return failure.error,
                Err(failure) => failure.error.to_string(),
            };
            tracing::info!(prefix = %self.prefix, why, "watch broke, opening it again");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn follow(&mut self, mut stream: Stream) -> Over {
        let start = Instant::now();
        let mut last_message = start;
        // When a progress request was sent that has no response yet.
        let mut requested: Option<Instant> = None;
        let mut next_request = start;
        loop {
            let behind = *self.wanted.borrow_and_update() > self.aside.revision();
            let due = if behind {
                next_request
            } else {
                last_message + QUIET
            };
            let trusted = self.inner.progress();
            tokio::select! {
                step = stream.next() => {
                    last_message = Instant::now();
                    requested = None;
                    match step {
                        Ok(step) => if let Some(over) = self.take(step).await {
                            return over;
                        },
                        Err(why) => return Over::Broken(format!("{}: {why}", stream.url)),
                    }
                }
                _ = self.wanted.changed() => {}
                () = sleep_until(due), if trusted => {
                    let now = Instant::now();
                    if requested.is_some_and(|at| now - at >= MUTE) {
                        return Over::Broken(format!("{} does not answer", stream.url));
                    }
                    requested = requested.or(Some(now));
                    next_request = now + ASK;
                    if !behind {
                        // The next request follows after the response timeout.
                        last_message = now + MUTE - QUIET;
                    }
                    if let Err(why) = stream.ask().await {
                        return Over::Broken(why);
                    }
                }
            }
        }
    }

    async fn take(&self, step: Step) -> Option<Over> {
        let room = match step {
            Step::Events(events) => self.aside.put(events, 0),
            Step::Progress(0) => {
                self.inner.distrust();
                true
            }
            Step::Progress(revision) => self.aside.put(Vec::new(), revision),
            Step::Nothing => true,
            Step::Compacted(0) => {
                let at = self.inner.compacted().await;
                return Some(Over::Ended(Error::Compacted { at }));
            }
            Step::Compacted(at) => return Some(Over::Ended(Error::Compacted { at })),
            Step::Canceled(why) => return Some(Over::Broken(why)),
        };
        (!room).then_some(Over::Full)
    }
}
