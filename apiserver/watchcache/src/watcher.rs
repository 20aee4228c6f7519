//! A watcher of the cache (`cacheWatcher`): a position in the ring, woken when its scope
//! has a new event. It sends [`CacherEvent`]s in ascending revisions.
//!
//! initial events ──► ring ⇄ store's history ──► end
//!
//! A watcher buffers no live events, so a slow one takes no additional memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::cache::{Cache, Freshness};
use crate::error::Error;
use crate::event::{Delivery, Event, Item};
use crate::filter::{Filter, Keys, Predicate};
use crate::history::History;
use crate::initial::{Found, Initial};
use crate::shared::{Phase as CacheFillPhase, Scope, Shared};
use crate::timer::{Due, Timer};

/// The number of skipped events of other keys after which a watcher yields.
const PASSED_OVER: usize = 256;

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Every event after a revision, which may be in the future.
    After(u64),
    /// `ADDED` for the existing objects, then live events.
    Initial(Freshness),
    /// Live events only.
    Now(Freshness),
}

#[derive(Clone)]
pub struct WatchRequest {
    pub filter: Filter,
    pub start: Start,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// The watch ends then, without an error.
    pub deadline: Option<Instant>,
}

/// The progress of a watcher.
struct Cursor {
    position: u64,
    /// Events up to this revision were processed; those of the revision itself completely
    /// only if `complete`.
    revision: u64,
    whole: bool,
    /// The number of events of `revision` with keys of this watcher.
    count: u32,
}

enum Phase {
    Initial(Box<Initial>),
    Live,
    History(Box<History>),
    Ended,
}

/// What the watcher can do without waiting.
enum Step {
    Item(Item),
    /// Wait to be woken.
    Idle,
    /// Read from the store.
    Fetch,
    /// Yield, then continue.
    Pause,
    Over,
}

/// A stream of events. See [`Cacher::watch`].
pub struct Watcher {
    shared: Arc<Shared>,
    scope: Arc<Scope>,
    keys: Keys,
    matches: Option<Predicate>,
    epoch: u64,
    /// Events up to this revision are skipped.
    start: u64,
    cursor: Cursor,
    phase: Phase,
    bookmarks: bool,
    timer: Option<Timer>,
}

impl Cache {
    /// Starts a watch. Errors of this call become the response's status; later ones are
    /// sent in the stream.
    pub async fn watch(&self, request: WatchRequest) -> Result<Watcher, Error> {
        self.start();
        let fresh = match request.start {
            Start::After(_) => Freshness::Any,
            Start::Initial(fresh) | Start::Now(fresh) => fresh,
        };
        let mut watcher = if self.proven(fresh).await? {
            Watcher::on_ring(&self.shared, request)?
        } else {
            let now = match request.start {
                Start::Now(_) => self.shared.store.revision().await.map_err(Error::Storage)?,
                _ => 0,
            };
            Watcher::on_store(&self.shared, request, now)?
        };
        // The first read from the store is made before the stream opens, so that its error
        // becomes the response's status.
        match &mut watcher.phase {
            Phase::History(history) => {
                history.fetch(&self.shared, &watcher.keys.base).await?;
            }
            Phase::Initial(initial) if !initial.live => {
                initial.fetch(&self.shared).await?;
            }
            _ => {}
        }
        Ok(watcher)
    }

    /// Waits until a watch can start from the cache and returns true, or returns false
    /// when it must start from the store.
    async fn proven(&self, fresh: Freshness) -> Result<bool, Error> {
        if self.shared.uncached {
            self.state(fresh).await?;
            return Ok(false);
        }
        self.shared.reached(0).await?;
        match fresh {
            Freshness::Any => Ok(true),
            Freshness::AtLeast(revision) => self.known(revision).await,
            Freshness::Newest if !self.provable() => Ok(false),
            Freshness::Newest => self.newest().await.map(|()| true),
        }
    }
}

impl Watcher {
    fn on_ring(shared: &Arc<Shared>, request: WatchRequest) -> Result<Self, Error> {
        let keys = Keys::new(&shared.prefix, &request.filter);
        let mut state = shared.state.write();
        if state.phase != CacheFillPhase::Ready {
            return Err(Error::NotReady);
        }
        let (head, revision) = (state.ring.head(), state.now.revision);
        let (after, position, phase) = match request.start {
            Start::After(after) => match state.ring.after(after) {
                Some(position) => (after, position, Phase::Live),
                None => {
                    let history = History::new(after, (0, 0));
                    (after, 0, Phase::History(Box::new(history)))
                }
            },
            Start::Now(_) => (revision, head, Phase::Live),
            Start::Initial(_) => {
                let map = Some(state.now.map.clone());
                let initial = Initial::new(map, revision, keys.bounds());
                (revision, head, Phase::Initial(Box::new(initial)))
            }
        };
        let epoch = state.epoch;
        let scope = state.enter(&keys.scope);
        drop(state);
        Ok(Self::assemble(
            shared, request, keys, scope, epoch, after, position, phase,
        ))
    }

    fn on_store(shared: &Arc<Shared>, request: WatchRequest, now: u64) -> Result<Self, Error> {
        let keys = Keys::new(&shared.prefix, &request.filter);
        let history = |after| Phase::History(Box::new(History::new(after, (0, 0))));
        let (after, phase) = match request.start {
            Start::After(after) => (after, history(after)),
            Start::Now(_) => (now, history(now)),
            Start::Initial(_) => {
                let initial = Initial::new(None, 0, keys.bounds());
                (0, Phase::Initial(Box::new(initial)))
            }
        };
        let (epoch, scope) = {
            let mut state = shared.state.write();
            // The watcher continues on the ring later, so the cache must be ready.
            if state.phase != CacheFillPhase::Ready {
                return Err(Error::NotReady);
            }
            (state.epoch, state.enter(&keys.scope))
        };
        Ok(Self::assemble(
            shared, request, keys, scope, epoch, after, 0, phase,
        ))
    }

    #[expect(clippy::too_many_arguments, reason = "the fields, once")]
    fn assemble(
        shared: &Arc<Shared>,
        request: WatchRequest,
        keys: Keys,
        scope: Arc<Scope>,
        epoch: u64,
        start: u64,
        position: u64,
        phase: Phase,
    ) -> Self {
        shared.counters.watchers.fetch_add(1, Ordering::Relaxed);
        if matches!(phase, Phase::History(_)) && !shared.uncached {
            shared.counters.from_history.fetch_add(1, Ordering::Relaxed);
        }
        let interval = shared.config.bookmark;
        Self {
            shared: Arc::clone(shared),
            scope,
            keys,
            matches: request.filter.matches,
            epoch,
            start,
            cursor: Cursor {
                position,
                revision: start,
                whole: true,
                count: 0,
            },
            phase,
            bookmarks: request.bookmarks,
            timer: Timer::new(request.bookmarks, interval, request.deadline),
        }
    }

    /// The next item. `None`: the watch has ended without an error, and the client resumes
    /// from the last revision that it received. After an error it has ended too.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        loop {
            match self.due() {
                Some(Step::Over) => {
                    self.phase = Phase::Ended;
                    return None;
                }
                Some(Step::Item(item)) => return Some(Ok(item)),
                _ => {}
            }
            match self.step() {
                Ok(Step::Item(item)) => return Some(Ok(item)),
                Ok(Step::Over) => return self.end(),
                Ok(Step::Pause) => tokio::task::yield_now().await,
                Ok(Step::Idle) => {
                    // Subscribe before the second poll, so that no event is missed.
                    let scope = Arc::clone(&self.scope);
                    let woken = scope.notify.notified();
                    match self.step() {
                        Ok(Step::Idle) => tokio::select! {
                            biased;
                            () = woken => {}
                            () = Timer::tick(&mut self.timer) => {}
                        },
                        Ok(Step::Item(item)) => return Some(Ok(item)),
                        Ok(Step::Over) => return self.end(),
                        Ok(Step::Pause | Step::Fetch) => {}
                        Err(e) => return self.fail(e),
                    }
                }
                Ok(Step::Fetch) => {
                    if let Err(e) = self.fetch().await {
                        return self.fail(e);
                    }
                }
                Err(e) => return self.fail(e),
            }
        }
    }

    /// The next item if it is available without waiting, for callers that write several at
    /// once. `None`: call [`Self::next`].
    pub fn try_next(&mut self) -> Option<Result<Item, Error>> {
        if self.timer.as_ref().is_some_and(|t| t.due() != Due::Nothing) {
            return None;
        }
        match self.step() {
            Ok(Step::Item(item)) => Some(Ok(item)),
            Ok(_) => None,
            Err(e) => self.fail(e),
        }
    }

    fn end(&mut self) -> Option<Result<Item, Error>> {
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Ended;
            self.shared
                .counters
                .terminated
                .fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn fail(&mut self, error: Error) -> Option<Result<Item, Error>> {
        self.end();
        Some(Err(error))
    }

    /// A due bookmark, or the end at the deadline.
    fn due(&mut self) -> Option<Step> {
        match self.timer.as_ref()?.due() {
            Due::Nothing => return None,
            Due::Deadline => return Some(Step::Over),
            Due::Bookmark => {}
        }
        match self.phase {
            Phase::Live => self.refresh(),
            Phase::History(_) => {}
            // No bookmark before the initial events are complete.
            Phase::Initial(_) | Phase::Ended => return None,
        }
        if !self.cursor.whole {
            return None;
        }
        self.timer.as_mut()?.bookmarked();
        Some(Step::Item(Item::Bookmark {
            revision: self.cursor.revision,
            initial_end: false,
        }))
    }

    /// Advances a watcher at the ring's head to the revision of the cache.
    fn refresh(&mut self) {
        let state = self.shared.state.read();
        if state.epoch == self.epoch && self.cursor.position == state.ring.head() {
            self.cursor.reach(state.now.revision);
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        match self.phase {
            Phase::Ended => Ok(Step::Over),
            Phase::Initial(_) => self.step_initial(),
            Phase::Live => self.step_live(),
            Phase::History(_) => self.step_history(),
        }
    }

    /// Whether the cache was invalidated since the watch started.
    fn is_over(&self) -> bool {
        self.shared.state.read().epoch != self.epoch
    }

    fn step_initial(&mut self) -> Result<Step, Error> {
        let Phase::Initial(initial) = &mut self.phase else {
            return Ok(Step::Pause);
        };
        loop {
            match initial.next(&self.shared) {
                Found::Entry(key, slot) => {
                    if !self.keys.contains(&key) {
                        continue;
                    }
                    let object = slot.map_err(|corrupt| Error::from(&*corrupt))?;
                    if self.matches.as_ref().is_none_or(|m| m(&object)) {
                        return Ok(Step::Item(Item::Event(Delivery::present(object))));
                    }
                }
                Found::End => break,
                Found::Fetch | Found::Pause if self.is_over() => return Ok(Step::Over),
                Found::Fetch => return Ok(Step::Fetch),
                Found::Pause => return Ok(Step::Pause),
            }
        }
        let revision = initial.revision;
        self.start = revision;
        self.cursor.reach(revision);
        self.phase = if !initial.live {
            Phase::History(Box::new(History::new(revision, (0, 0))))
        } else {
            Phase::Live
        };
        Ok(if self.bookmarks {
            Step::Item(Item::Bookmark {
                revision,
                initial_end: true,
            })
        } else {
            Step::Pause
        })
    }

    fn step_live(&mut self) -> Result<Step, Error> {
        let event = {
            let state = self.shared.state.read();
            if state.epoch != self.epoch {
                return Ok(Step::Over);
            }
            let ring = &state.ring;
            if self.cursor.position < ring.first() {
                if self.scope.last.load(Ordering::Relaxed) > self.cursor.position {
                    drop(state);
                    self.fall_behind();
                    return Ok(Step::Fetch);
                }
                // The dropped events concern other watchers.
                self.cursor.position = ring.first();
                self.cursor.reach(ring.floor());
            }
            let mut selected = None;
            for _ in 0..PASSED_OVER {
                let Some(event) = ring.get(self.cursor.position) else {
                    self.cursor.reach(state.now.revision);
                    return Ok(Step::Idle);
                };
                let next = ring.get(self.cursor.position + 1);
                let whole = next.is_none_or(|n| n.revision != event.revision);
                let ours = self.keys.contains(&event.key);
                self.cursor.position += 1;
                if event.revision > self.start {
                    self.cursor.pass(event.revision, whole, ours);
                    if ours {
                        selected = Some(Arc::clone(event));
                        break;
                    }
                }
            }
            selected
        };
        // Not under the lock, since the predicate may parse the object.
        match event {
            Some(event) => self.deliver(&event),
            None => Ok(Step::Pause),
        }
    }

    fn fall_behind(&mut self) {
        let Cursor {
            revision,
            whole,
            count,
            ..
        } = self.cursor;
        let history = if whole {
            History::new(revision, (0, 0))
        } else {
            History::new(revision - 1, (revision, count))
        };
        self.phase = Phase::History(Box::new(history));
        self.shared
            .counters
            .from_history
            .fetch_add(1, Ordering::Relaxed);
    }

    fn step_history(&mut self) -> Result<Step, Error> {
        let Phase::History(history) = &mut self.phase else {
            return Ok(Step::Pause);
        };
        while let Some(event) = history.next(&self.shared, |key| self.keys.contains(key)) {
            if event.revision > self.start {
                let whole = history.is_whole(event.revision);
                self.cursor.pass(event.revision, whole, true);
                return self.deliver(&event);
            }
        }
        self.cursor.reach(history.revision);
        let state = self.shared.state.read();
        if state.epoch != self.epoch {
            return Ok(Step::Over);
        }
        if self.shared.uncached || !self.cursor.whole {
            return Ok(Step::Fetch);
        }
        let Some(position) = state.ring.after(self.cursor.revision) else {
            return Ok(Step::Fetch);
        };
        // The history may be ahead of the ring: the events delivered from it must not be
        // repeated.
        self.start = self.start.max(self.cursor.revision);
        self.cursor.position = position;
        drop(state);
        self.phase = Phase::Live;
        Ok(Step::Pause)
    }

    fn deliver(&self, event: &Arc<Event>) -> Result<Step, Error> {
        let delivery = match &self.matches {
            None => event.seen_by(|_| true)?,
            Some(matches) => event.seen_by(|object| matches(object))?,
        };
        Ok(match delivery {
            Some(delivery) => Step::Item(Item::Event(delivery)),
            None => Step::Pause,
        })
    }

    /// Reads the next events from the store, unless the watch ends or a timer fires first.
    async fn fetch(&mut self) -> Result<(), Error> {
        let scope = Arc::clone(&self.scope);
        let woken = scope.notify.notified();
        if self.is_over() {
            return Ok(());
        }
        let initial = matches!(self.phase, Phase::Initial(_));
        let (shared, base) = (&self.shared, &self.keys.base);
        let read = async {
            match &mut self.phase {
                Phase::Initial(initial) => initial.fetch(shared).await,
                Phase::History(history) => history.fetch(shared, base).await,
                Phase::Live | Phase::Ended => Ok(()),
            }
        };
        tokio::select! {
            biased;
            done = read => done,
            () = woken => Ok(()),
            // A bookmark stays due during the initial events and must not interrupt them.
            () = Timer::tick(&mut self.timer), if !initial => Ok(()),
        }
    }
}

impl Cursor {
    /// Records a processed event.
    fn pass(&mut self, revision: u64, whole: bool, ours: bool) {
        if revision != self.revision {
            self.count = 0;
        }
        self.revision = revision;
        self.whole = whole;
        self.count += u32::from(ours);
    }

    /// Records that everything up to a revision was processed.
    fn reach(&mut self, revision: u64) {
        if revision >= self.revision {
            self.revision = revision;
            self.whole = true;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.shared.state.write();
        state.leave(&self.keys.scope, &self.scope);
        drop(state);
        self.shared
            .counters
            .watchers
            .fetch_sub(1, Ordering::Relaxed);
    }
}
