//! A watcher of the cache (`cacheWatcher`): a position in the ring, woken when its scope
//! has a new event. It sends [`CacheWatcherItem`]s in ascending revisions.
//!
//! initial events ──► ring ⇄ store's history ──► end
//!
//! A watcher buffers no live events, so a slow one takes no additional memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::cacher::{Cacher, ReadFreshness};
use crate::error::Error;
use crate::event::{CacheWatcherItem, ObjectEvent, WatchCacheEvent};
use crate::filter::{KeySelector, ObjectPredicate, SelectionPredicate};
use crate::history::HistoryReader;
use crate::initial_events::{InitialEventsReader, NextInitialEvent};
use crate::timer::{CacheWatcherTimer, CacheWatcherTimerDue};
use crate::watch_cache::{CachePhase as CacheFillPhase, WatchCache, WatchScopeNotifier};

/// The number of skipped events of other keys after which a watcher yields.
const MAX_SKIPPED_EVENTS: usize = 256;

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// Every event after a revision, which may be in the future.
    After(u64),
    /// `ADDED` for the existing objects, then live events.
    Initial(ReadFreshness),
    /// Live events only.
    Now(ReadFreshness),
}

#[derive(Clone)]
pub struct CacherWatchRequest {
    pub filter: SelectionPredicate,
    pub start: WatchStart,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// The watch ends then, without an error.
    pub deadline: Option<Instant>,
}

/// The progress of a watcher.
struct WatcherCursor {
    position: u64,
    /// Events up to this revision were processed; those of the revision itself completely
    /// only if `complete`.
    revision: u64,
    complete: bool,
    /// The number of events of `revision` with keys of this watcher.
    count: u32,
}

enum WatcherPhase {
    Initial(Box<InitialEventsReader>),
    Live,
    History(Box<HistoryReader>),
    Ended,
}

/// The watcher's next step that needs no waiting.
enum WatcherPoll {
    Item(CacheWatcherItem),
    /// Wait to be woken.
    Idle,
    /// Read from the store.
    Fetch,
    /// Yield, then continue.
    Yield,
    Ended,
}

/// A stream of events. See [`Cacher::watch`].
pub struct CacheWatcher {
    cache: Arc<WatchCache>,
    scope: Arc<WatchScopeNotifier>,
    selector: KeySelector,
    matches: Option<ObjectPredicate>,
    epoch: u64,
    /// The term in which it started.
    term: u64,
    /// Events up to this revision are skipped.
    start_revision: u64,
    cursor: WatcherCursor,
    phase: WatcherPhase,
    bookmarks: bool,
    timer: Option<CacheWatcherTimer>,
}

impl Cacher {
    /// Starts a watch. Errors of this call become the response's status; later ones are
    /// sent in the stream.
    pub async fn watch(&self, request: CacherWatchRequest) -> Result<CacheWatcher, Error> {
        self.start();
        let term = self.cache.watch_term();
        if let WatchStart::After(revision) = request.start {
            self.check_watch_start(revision).await?;
        }
        let fresh = match request.start {
            WatchStart::After(_) => ReadFreshness::Any,
            WatchStart::Initial(fresh) | WatchStart::Now(fresh) => fresh,
        };
        let mut watcher = if self.can_start_from_cache(fresh).await? {
            CacheWatcher::start_on_ring(&self.cache, request)?
        } else {
            let now = match request.start {
                WatchStart::Now(_) => self.cache.store.revision().await.map_err(Error::Storage)?,
                _ => 0,
            };
            CacheWatcher::start_on_store(&self.cache, request, now)?
        };
        watcher.term = term;
        // The first read from the store is made before the stream opens, so that its error
        // becomes the response's status.
        match &mut watcher.phase {
            WatcherPhase::History(history) => {
                history.fetch(&self.cache, &watcher.selector.prefix).await?;
            }
            WatcherPhase::Initial(initial) if !initial.continues_on_ring => {
                initial.fetch(&self.cache).await?;
            }
            _ => {}
        }
        Ok(watcher)
    }

    /// Waits until a watch can start from the cache and returns true, or returns false
    /// when it must start from the store.
    async fn can_start_from_cache(&self, fresh: ReadFreshness) -> Result<bool, Error> {
        if self.cache.uncached {
            self.snapshot_for(fresh).await?;
            return Ok(false);
        }
        self.cache.wait_for(0).await?;
        match fresh {
            ReadFreshness::Any => Ok(true),
            ReadFreshness::AtLeast(revision) => self
                .wait_for_revision(revision)
                .await
                .map_err(|error| self.expired_if_foreign(error)),
            ReadFreshness::Newest if !self.supports_consistent_reads() => Ok(false),
            ReadFreshness::Newest => self.wait_for_newest().await.map(|()| true),
        }
    }
}

impl CacheWatcher {
    fn start_on_ring(shared: &Arc<WatchCache>, request: CacherWatchRequest) -> Result<Self, Error> {
        let keys = KeySelector::new(&shared.prefix, &request.filter);
        let mut state = shared.state.write();
        if state.phase != CacheFillPhase::Ready {
            return Err(Error::NotReady);
        }
        let (head, revision) = (state.ring.head(), state.newest.revision);
        let (after, position, phase) = match request.start {
            WatchStart::After(after) => match state.ring.position_after(after) {
                Some(position) => (after, position, WatcherPhase::Live),
                None => {
                    let history = HistoryReader::new(after, (0, 0));
                    (after, 0, WatcherPhase::History(Box::new(history)))
                }
            },
            WatchStart::Now(_) => (revision, head, WatcherPhase::Live),
            WatchStart::Initial(_) => {
                let map = Some(state.newest.map.clone());
                let initial = InitialEventsReader::new(map, revision, keys.bounds());
                (revision, head, WatcherPhase::Initial(Box::new(initial)))
            }
        };
        let epoch = state.epoch;
        let scope = state.join_scope(&keys.scope);
        drop(state);
        Ok(Self::assemble(
            shared, request, keys, scope, epoch, after, position, phase,
        ))
    }

    fn start_on_store(
        shared: &Arc<WatchCache>,
        request: CacherWatchRequest,
        now: u64,
    ) -> Result<Self, Error> {
        let keys = KeySelector::new(&shared.prefix, &request.filter);
        let history = |after| WatcherPhase::History(Box::new(HistoryReader::new(after, (0, 0))));
        let (after, phase) = match request.start {
            WatchStart::After(after) => (after, history(after)),
            WatchStart::Now(_) => (now, history(now)),
            WatchStart::Initial(_) => {
                let initial = InitialEventsReader::new(None, 0, keys.bounds());
                (0, WatcherPhase::Initial(Box::new(initial)))
            }
        };
        let (epoch, scope) = {
            let mut state = shared.state.write();
            // The watcher continues on the ring later, so the cache must be ready.
            if state.phase != CacheFillPhase::Ready {
                return Err(Error::NotReady);
            }
            (state.epoch, state.join_scope(&keys.scope))
        };
        Ok(Self::assemble(
            shared, request, keys, scope, epoch, after, 0, phase,
        ))
    }

    #[expect(clippy::too_many_arguments, reason = "the fields, once")]
    fn assemble(
        shared: &Arc<WatchCache>,
        request: CacherWatchRequest,
        selector: KeySelector,
        scope: Arc<WatchScopeNotifier>,
        epoch: u64,
        start_revision: u64,
        position: u64,
        phase: WatcherPhase,
    ) -> Self {
        shared.counters.watchers.fetch_add(1, Ordering::Relaxed);
        if matches!(phase, WatcherPhase::History(_)) && !shared.uncached {
            shared.counters.from_history.fetch_add(1, Ordering::Relaxed);
        }
        let interval = shared.config.bookmark_interval;
        Self {
            cache: Arc::clone(shared),
            scope,
            selector,
            matches: request.filter.matches,
            epoch,
            term: shared.watch_term(),
            start_revision,
            cursor: WatcherCursor {
                position,
                revision: start_revision,
                complete: true,
                count: 0,
            },
            phase,
            bookmarks: request.bookmarks,
            timer: CacheWatcherTimer::new(request.bookmarks, interval, request.deadline),
        }
    }

    /// The next item. `None`: the watch has ended without an error, and the client resumes
    /// from the last revision that it received. After an error it has ended too.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<CacheWatcherItem, Error>> {
        loop {
            match self.poll_timer() {
                Some(WatcherPoll::Ended) => {
                    self.phase = WatcherPhase::Ended;
                    return None;
                }
                Some(WatcherPoll::Item(item)) => return Some(Ok(item)),
                _ => {}
            }
            match self.poll() {
                Ok(WatcherPoll::Item(item)) => return Some(Ok(item)),
                Ok(WatcherPoll::Ended) => return self.end(),
                Ok(WatcherPoll::Yield) => tokio::task::yield_now().await,
                Ok(WatcherPoll::Idle) => {
                    // Subscribe before the second poll, so that no event is missed.
                    let scope = Arc::clone(&self.scope);
                    let notified = scope.notify.notified();
                    match self.poll() {
                        Ok(WatcherPoll::Idle) => tokio::select! {
                            biased;
                            () = notified => {}
                            () = CacheWatcherTimer::wait_until_due(&mut self.timer) => {}
                        },
                        Ok(WatcherPoll::Item(item)) => return Some(Ok(item)),
                        Ok(WatcherPoll::Ended) => return self.end(),
                        Ok(WatcherPoll::Yield | WatcherPoll::Fetch) => {}
                        Err(e) => return self.fail(e),
                    }
                }
                Ok(WatcherPoll::Fetch) => {
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
    pub fn try_next(&mut self) -> Option<Result<CacheWatcherItem, Error>> {
        if self
            .timer
            .as_ref()
            .is_some_and(|t| t.due() != CacheWatcherTimerDue::Nothing)
        {
            return None;
        }
        match self.poll() {
            Ok(WatcherPoll::Item(item)) => Some(Ok(item)),
            Ok(_) => None,
            Err(e) => self.fail(e),
        }
    }

    fn end(&mut self) -> Option<Result<CacheWatcherItem, Error>> {
        if !matches!(self.phase, WatcherPhase::Ended) {
            self.phase = WatcherPhase::Ended;
            self.cache
                .counters
                .terminated
                .fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    fn fail(&mut self, error: Error) -> Option<Result<CacheWatcherItem, Error>> {
        self.end();
        Some(Err(error))
    }

    /// A due bookmark, or the end at the deadline.
    fn poll_timer(&mut self) -> Option<WatcherPoll> {
        match self.timer.as_ref()?.due() {
            CacheWatcherTimerDue::Nothing => return None,
            CacheWatcherTimerDue::Deadline => return Some(WatcherPoll::Ended),
            CacheWatcherTimerDue::Bookmark => {}
        }
        match self.phase {
            WatcherPhase::Live => self.advance_to_cache(),
            WatcherPhase::History(_) => {}
            // No bookmark before the initial events are complete.
            WatcherPhase::Initial(_) | WatcherPhase::Ended => return None,
        }
        if !self.cursor.complete {
            return None;
        }
        self.timer.as_mut()?.schedule_bookmark();
        Some(WatcherPoll::Item(CacheWatcherItem::Bookmark {
            revision: self.cursor.revision,
            initial_end: false,
        }))
    }

    /// Advances a watcher at the ring's head to the revision of the cache.
    fn advance_to_cache(&mut self) {
        let state = self.cache.state.read();
        if state.epoch == self.epoch && self.cursor.position == state.ring.head() {
            self.cursor.advance_to(state.newest.revision);
        }
    }

    fn poll(&mut self) -> Result<WatcherPoll, Error> {
        if self.cache.watch_term() != self.term && !matches!(self.phase, WatcherPhase::Ended) {
            return Err(Error::Expired {
                requested: self.cursor.revision,
                oldest: self.cache.watch_floor(),
                next: None,
            });
        }
        match self.phase {
            WatcherPhase::Ended => Ok(WatcherPoll::Ended),
            WatcherPhase::Initial(_) => self.poll_initial(),
            WatcherPhase::Live => self.poll_live(),
            WatcherPhase::History(_) => self.poll_history(),
        }
    }

    /// Whether the cache was invalidated since the watch started.
    fn is_invalidated(&self) -> bool {
        self.cache.state.read().epoch != self.epoch
    }

    fn poll_initial(&mut self) -> Result<WatcherPoll, Error> {
        let WatcherPhase::Initial(initial) = &mut self.phase else {
            return Ok(WatcherPoll::Yield);
        };
        loop {
            match initial.next(&self.cache) {
                NextInitialEvent::Entry(key, slot) => {
                    if !self.selector.contains(&key) {
                        continue;
                    }
                    let object = slot.map_err(|corrupt| Error::from(&*corrupt))?;
                    if self.matches.as_ref().is_none_or(|m| m(&object)) {
                        return Ok(WatcherPoll::Item(CacheWatcherItem::Event(
                            ObjectEvent::initial(object),
                        )));
                    }
                }
                NextInitialEvent::End => break,
                NextInitialEvent::Fetch | NextInitialEvent::Pause if self.is_invalidated() => {
                    return Ok(WatcherPoll::Ended);
                }
                NextInitialEvent::Fetch => return Ok(WatcherPoll::Fetch),
                NextInitialEvent::Pause => return Ok(WatcherPoll::Yield),
            }
        }
        let revision = initial.revision;
        self.start_revision = revision;
        self.cursor.advance_to(revision);
        self.phase = if !initial.continues_on_ring {
            WatcherPhase::History(Box::new(HistoryReader::new(revision, (0, 0))))
        } else {
            WatcherPhase::Live
        };
        Ok(if self.bookmarks {
            WatcherPoll::Item(CacheWatcherItem::Bookmark {
                revision,
                initial_end: true,
            })
        } else {
            WatcherPoll::Yield
        })
    }

    fn poll_live(&mut self) -> Result<WatcherPoll, Error> {
        let event = {
            let state = self.cache.state.read();
            if state.epoch != self.epoch {
                return Ok(WatcherPoll::Ended);
            }
            let ring = &state.ring;
            if self.cursor.position < ring.first() {
                if self.scope.last_position.load(Ordering::Relaxed) > self.cursor.position {
                    drop(state);
                    self.switch_to_history();
                    return Ok(WatcherPoll::Fetch);
                }
                // The dropped events concern other watchers.
                self.cursor.position = ring.first();
                self.cursor.advance_to(ring.floor());
            }
            let mut selected = None;
            for _ in 0..MAX_SKIPPED_EVENTS {
                let Some(event) = ring.get(self.cursor.position) else {
                    self.cursor.advance_to(state.newest.revision);
                    return Ok(WatcherPoll::Idle);
                };
                let next = ring.get(self.cursor.position + 1);
                let complete = next.is_none_or(|n| n.revision != event.revision);
                let is_selected = self.selector.contains(&event.key);
                self.cursor.position += 1;
                if event.revision > self.start_revision {
                    self.cursor
                        .advance_event(event.revision, complete, is_selected);
                    if is_selected {
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
            None => Ok(WatcherPoll::Yield),
        }
    }

    fn switch_to_history(&mut self) {
        let WatcherCursor {
            revision,
            complete: is_complete,
            count,
            ..
        } = self.cursor;
        let history = if is_complete {
            HistoryReader::new(revision, (0, 0))
        } else {
            HistoryReader::new(revision - 1, (revision, count))
        };
        self.phase = WatcherPhase::History(Box::new(history));
        self.cache
            .counters
            .from_history
            .fetch_add(1, Ordering::Relaxed);
    }

    fn poll_history(&mut self) -> Result<WatcherPoll, Error> {
        let WatcherPhase::History(history) = &mut self.phase else {
            return Ok(WatcherPoll::Yield);
        };
        while let Some(event) = history.next(&self.cache, |key| self.selector.contains(key)) {
            if event.revision > self.start_revision {
                let complete = history.is_revision_complete(event.revision);
                self.cursor.advance_event(event.revision, complete, true);
                return self.deliver(&event);
            }
        }
        self.cursor.advance_to(history.revision);
        let state = self.cache.state.read();
        if state.epoch != self.epoch {
            return Ok(WatcherPoll::Ended);
        }
        if self.cache.uncached || !self.cursor.complete {
            return Ok(WatcherPoll::Fetch);
        }
        let Some(position) = state.ring.position_after(self.cursor.revision) else {
            return Ok(WatcherPoll::Fetch);
        };
        // The history may be ahead of the ring: the events delivered from it must not be
        // repeated.
        self.start_revision = self.start_revision.max(self.cursor.revision);
        self.cursor.position = position;
        drop(state);
        self.phase = WatcherPhase::Live;
        Ok(WatcherPoll::Yield)
    }

    fn deliver(&self, event: &Arc<WatchCacheEvent>) -> Result<WatcherPoll, Error> {
        let delivery = match &self.matches {
            None => event.object_event(|_| true)?,
            Some(matches) => event.object_event(|object| matches(object))?,
        };
        Ok(match delivery {
            Some(delivery) => WatcherPoll::Item(CacheWatcherItem::Event(delivery)),
            None => WatcherPoll::Yield,
        })
    }

    /// Reads the next events from the store, unless the watch ends or a timer fires first.
    async fn fetch(&mut self) -> Result<(), Error> {
        let scope = Arc::clone(&self.scope);
        let notified = scope.notify.notified();
        if self.is_invalidated() {
            return Ok(());
        }
        let initial = matches!(self.phase, WatcherPhase::Initial(_));
        let (shared, base) = (&self.cache, &self.selector.prefix);
        let read = async {
            match &mut self.phase {
                WatcherPhase::Initial(initial) => initial.fetch(shared).await,
                WatcherPhase::History(history) => history.fetch(shared, base).await,
                WatcherPhase::Live | WatcherPhase::Ended => Ok(()),
            }
        };
        tokio::select! {
            biased;
            done = read => done,
            () = notified => Ok(()),
            // A bookmark stays due during the initial events and must not interrupt them.
            () = CacheWatcherTimer::wait_until_due(&mut self.timer), if !initial => Ok(()),
        }
    }
}

impl WatcherCursor {
    /// Records a processed event.
    fn advance_event(&mut self, revision: u64, complete: bool, is_selected: bool) {
        if revision != self.revision {
            self.count = 0;
        }
        self.revision = revision;
        self.complete = complete;
        self.count += u32::from(is_selected);
    }

    /// Records that everything up to a revision was processed.
    fn advance_to(&mut self, revision: u64) {
        if revision >= self.revision {
            self.revision = revision;
            self.complete = true;
        }
    }
}

impl Drop for CacheWatcher {
    fn drop(&mut self) {
        let mut state = self.cache.state.write();
        state.leave_scope(&self.selector.scope, &self.scope);
        drop(state);
        self.cache.counters.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
