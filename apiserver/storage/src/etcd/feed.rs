//! A feed over watches that may break: what one watch tells is put aside for the
//! reader, and the next one goes on where it ended.
//!
//! server ──steps──► pump (a task) ──► aside ──► [`Feed::next`]
//!
//! The pump always reads, since an unread watch would hold up the others of its
//! connection. When a reader leaves too much lying, the watch is given up until it
//! has caught up; the rest is then read from etcd's history.

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

/// Bytes that may lie aside.
const ASIDE: usize = 4 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time between two questions for progress.
const ASK: Duration = Duration::from_millis(100);
/// After this time without a word the progress is asked for.
const QUIET: Duration = Duration::from_secs(10);
/// A server that answers nothing for so long is left.
const MUTE: Duration = Duration::from_secs(5);

/// Who waits for progress: one group per watched prefix.
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

    /// The feeds of a prefix, or all, should reach a revision.
    pub(super) fn raise(&self, prefix: Option<&str>, revision: u64) {
        for (of, group) in self.0.lock().iter() {
            if prefix.is_none_or(|prefix| prefix == &**of) {
                group.send_if_modified(|wanted| {
                    let higher = *wanted < revision;
                    *wanted = revision.max(*wanted);
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
    /// Everything up to here was put aside.
    revision: u64,
    /// And up to here taken.
    taken: u64,
    end: Option<Error>,
}

/// What lies between the pump and the reader.
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

    /// Answers whether there is room for more.
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
    /// Ends with the reader.
    _pump: JoinSet<()>,
}

impl Reader {
    /// Goes on with an open watch, after `after`.
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

/// Why a watch is over.
enum Over {
    /// The reader is too slow.
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
        let mut heard = start;
        // When a question was asked that has no answer yet.
        let mut asked: Option<Instant> = None;
        let mut ask_at = start;
        loop {
            let behind = *self.wanted.borrow_and_update() > self.aside.revision();
            let due = if behind { ask_at } else { heard + QUIET };
            let trusted = self.inner.progress();
            tokio::select! {
                step = stream.next() => {
                    heard = Instant::now();
                    asked = None;
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
                    if asked.is_some_and(|at| now - at >= MUTE) {
                        return Over::Broken(format!("{} does not answer", stream.url));
                    }
                    asked = asked.or(Some(now));
                    ask_at = now + ASK;
                    if !behind {
                        // Until MUTE has passed nothing more is asked.
                        heard = now + MUTE - QUIET;
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
