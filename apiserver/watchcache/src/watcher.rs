//! A watcher: a position in the ring, woken when something of its scope came.
//!
//! initial state ──► ring ⇄ engine's history ──► end
//!
//! Enters: the shared ring. Leaves: [`Item`]s in ascending revisions. It never
//! holds live events, so a slow one costs nothing but its place.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::cache::{Cache, Freshness};
use crate::error::Error;
use crate::event::{Delivery, Event, Item};
use crate::filter::{Filter, Keys, Predicate};
use crate::history::History;
use crate::initial::{Found, Initial};
use crate::shared::{Phase as Filled, Scope, Shared};
use crate::timer::{Due, Timer};

/// How many events of other keys are passed over before others get a turn.
const PASSED_OVER: usize = 256;

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Every event of a greater revision, which may lie in the future.
    After(u64),
    /// `ADDED` for what is there, then live.
    Initial(Freshness),
    /// Live only.
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

/// How far a watcher is.
struct Cursor {
    position: u64,
    /// Events up to here are through; the last one only in part unless `whole`.
    revision: u64,
    whole: bool,
    /// How many events of `revision` concerned this watcher's keys.
    count: u32,
}

enum Phase {
    Initial(Box<Initial>),
    Live,
    History(Box<History>),
    Ended,
}

/// What can be done without waiting.
enum Step {
    Item(Item),
    /// Nothing to give until woken.
    Idle,
    /// Read from the store.
    Fetch,
    /// Worth going on after others had a turn.
    Pause,
    Over,
}

/// A stream of changes. See [`Cache::watch`].
pub struct Watcher {
    shared: Arc<Shared>,
    scope: Arc<Scope>,
    keys: Keys,
    matches: Option<Predicate>,
    epoch: u64,
    /// Nothing up to here is wanted.
    start: u64,
    cursor: Cursor,
    phase: Phase,
    bookmarks: bool,
    timer: Option<Timer>,
}

impl Cache {
    /// A watch. Errors here are for the status line; later ones come in the stream.
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
        // What the store refuses is better told before the stream opens.
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

    /// Waits until a watch can begin with the state that is known here, or, where that
    /// is not known to be new enough, with the store's: then the answer is no.
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
        if state.phase != Filled::Ready {
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
            // It goes over to the ring, so there must be one.
            if state.phase != Filled::Ready {
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

    /// The next item. `None`: the watch is over, without an error; the client
    /// resumes from the last revision it saw. After an error it is over too.
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
                    // Listen first, then look again: nothing falls in between.
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

    /// An item that is at hand, for those who write several at once. `None`: call
    /// [`Self::next`].
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

    /// What the time asks for: a bookmark, or the end.
    fn due(&mut self) -> Option<Step> {
        match self.timer.as_ref()?.due() {
            Due::Nothing => return None,
            Due::Deadline => return Some(Step::Over),
            Due::Bookmark => {}
        }
        match self.phase {
            Phase::Live => self.refresh(),
            Phase::History(_) => {}
            // No bookmark before the initial state is complete.
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

    /// At the ring's head, the store's progress is this watcher's progress too.
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

    /// The cache was given up or filled anew.
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
                // Only others' events are gone.
                self.cursor.position = ring.first();
                self.cursor.reach(ring.floor());
            }
            let mut wanted = None;
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
                        wanted = Some(Arc::clone(event));
                        break;
                    }
                }
            }
            wanted
        };
        // The predicate may parse: not under the lock.
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
        // The history may be ahead of the ring: what was given from it must not come
        // again.
        self.start = self.start.max(self.cursor.revision);
        self.cursor.position = position;
        drop(state);
        self.phase = Phase::Live;
        Ok(Step::Pause)
    }

    fn deliver(&self, event: &Arc<Event>) -> Result<Step, Error> {
        let seen = match &self.matches {
            None => event.seen_by(|_| true)?,
            Some(matches) => event.seen_by(|object| matches(object))?,
        };
        Ok(match seen {
            Some(delivery) => Step::Item(Item::Event(delivery)),
            None => Step::Pause,
        })
    }

    /// Reads on from the store, unless the watch ends or something is due first.
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
            // A bookmark stays due during the initial state and must not cut it short.
            () = Timer::tick(&mut self.timer), if !initial => Ok(()),
        }
    }
}

impl Cursor {
    /// An event is through.
    fn pass(&mut self, revision: u64, whole: bool, ours: bool) {
        if revision != self.revision {
            self.count = 0;
        }
        self.revision = revision;
        self.whole = whole;
        self.count += u32::from(ours);
    }

    /// Everything up to a revision is through.
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
