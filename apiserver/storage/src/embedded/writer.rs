//! The writer thread, the only one that writes to the database. It commits queued
//! transactions in batches, deletes expired keys, compacts history by age, publishes
//! each committed batch to readers and watches, and then replies.
//!
//! While one batch waits for fsync the next one gathers in the queue; so no commit is
//! delayed and one fsync serves all requests that arrived meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::checkpoint::Checkpointer;
use super::file::{Directory, Expiry, failed, probe};
use super::recovery::{fault_of, panicked};
use super::state::Garbage;
use super::transaction::Batch;
use super::{Options, Shared};
use crate::store::{Error, MAX_REQUEST_BYTES, Op, Outcome, Result, Txn};

/// The most requests, and the most rows to remove, in one SQLite transaction.
const BATCH: usize = 512;
/// How long the watches of unchanged prefixes may go without progress.
const ANNOUNCE: Duration = Duration::from_millis(100);
/// The backoff of expiry, compaction and removal of rows after they found no space.
const PAUSE: Duration = Duration::from_secs(5);
/// The interval at which a full store probes for space.
const PROBE: Duration = Duration::from_secs(1);
/// Number of steps in which history is compacted by age.
const AGES: u32 = 5;
/// An estimate of the bytes that a commit appends to the WAL besides its rows.
const COMMIT_BYTES: usize = 8 << 10;

pub(super) enum Request {
    Txn {
        txn: Txn,
        reply: oneshot::Sender<Result<Outcome>>,
        /// Held while the request takes up memory.
        permit: OwnedSemaphorePermit,
    },
    Compact {
        revision: u64,
        reply: oneshot::Sender<Result<()>>,
    },
    Close,
}

type Reply = (oneshot::Sender<Result<Outcome>>, OwnedSemaphorePermit);

/// The requests and the own work that one batch writes.
#[derive(Default)]
struct Round {
    txns: Vec<Txn>,
    /// One for each of the first transactions; the others delete expired keys.
    replies: Vec<Reply>,
    expired: Vec<Expiry>,
    compact: Option<u64>,
    compact_replies: Vec<oneshot::Sender<Result<()>>>,
    closing: bool,
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) requests: Receiver<Request>,
    pub(super) options: Options,
    pub(super) checkpointer: Option<Checkpointer>,
    pub(super) expiries: BinaryHeap<Reverse<Expiry>>,
    /// Ascending in `superseded_at`.
    pub(super) garbage: VecDeque<Garbage>,
    /// Bytes appended to the WAL since the last checkpoint call.
    appended: usize,
    /// The compaction revision that is stored in the database.
    pub(super) marked: u64,
    /// Revisions with the time at which they were the newest.
    ages: VecDeque<(Instant, u64)>,
    /// The time of the next sweep of expired keys; likewise below.
    pub(super) sweep: Option<Instant>,
    age: Option<Instant>,
    announce: Option<Instant>,
    /// The time of the next probe for space.
    probe: Option<Instant>,
    /// Whether the last batch found no space.
    pub(super) full: bool,
    /// Whether the store is being closed.
    pub(super) closing: bool,
    /// Expiry, compaction and removal of rows wait until then.
    pub(super) paused: Option<Instant>,
    /// The last field, so that the lock is released after everything else is closed.
    pub(super) directory: Option<Directory>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Arc<Mutex<Connection>>,
        requests: Receiver<Request>,
        options: Options,
        directory: Option<Directory>,
    ) -> Result<Self> {
        let checkpointer = match &directory {
            Some(d) => Some(Checkpointer::start(d.database.clone(), options.sync)?),
            None => None,
        };
        let marked = shared.state.read().compacted();
        let age = options.history.map(|_| Instant::now());
        // Revisions are skipped once, not at each recovery.
        let options = Options {
            skip_revisions: 0,
            ..options
        };
        Ok(Self {
            shared,
            connection,
            requests,
            options,
            checkpointer,
            expiries: BinaryHeap::new(),
            garbage: VecDeque::new(),
            appended: 0,
            marked,
            ages: VecDeque::new(),
            sweep: None,
            age,
            announce: None,
            probe: None,
            full: false,
            closing: false,
            paused: None,
            directory,
        })
    }

    pub(super) fn with(
        mut self,
        garbage: VecDeque<Garbage>,
        expiries: BinaryHeap<Reverse<Expiry>>,
    ) -> Self {
        self.garbage = garbage;
        self.expiries = expiries;
        self
    }

    pub(super) fn run(mut self) {
        let why = loop {
            let fault = match catch_unwind(AssertUnwindSafe(|| self.turn())) {
                Ok(Ok(())) if self.closing => {
                    break Error::Unavailable("the store is closed".into());
                }
                Ok(Ok(())) => continue,
                Ok(Err(error)) => match fault_of(&error) {
                    Some(fault) => fault,
                    None => break error,
                },
                Err(payload) => panicked(&*payload),
            };
            self.shared.health.fail(fault);
            if let Err(error) = self.recover() {
                break error;
            }
        };
        self.shared.state.write().end(why.clone());
        if matches!(why, Error::Fatal(_)) {
            tracing::error!(error = %why, "the store has failed");
            self.shared.failure.send_replace(Some(why));
        }
        self.shared.hub.close();
        self.shared.readers.close();
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.join();
        }
    }

    /// Waits for work and does it.
    fn turn(&mut self) -> Result<()> {
        let round = self.gather();
        self.round(round)?;
        self.look_for_space()
    }

    /// Waits for requests or a timer and collects what one batch takes.
    fn gather(&mut self) -> Round {
        let mut round = Round::default();
        let now = Instant::now();
        if self.sweep.is_none() && !self.expiries.is_empty() {
            self.sweep = Some(now + self.options.sweep);
        }
        let own = if self.due() > 0 { Some(now) } else { self.age };
        let own = own.into_iter().chain(self.sweep).min();
        let own = own.map(|at| self.paused.map_or(at, |until| at.max(until)));
        let timer = own.into_iter().chain(self.announce).chain(self.probe).min();
        let first = match timer {
            None => self
                .requests
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self
                .requests
                .recv_timeout(at.saturating_duration_since(now)),
        };
        match first {
            Ok(request) => round.take(request),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => round.closing = true,
        }
        while round.txns.len() < BATCH && !round.closing {
            let Ok(request) = self.requests.try_recv() else {
                break;
            };
            round.take(request);
        }
        self.closing |= round.closing;
        self.look_at_the_clock(&mut round);
        round
    }

    fn look_at_the_clock(&mut self, round: &mut Round) {
        let now = Instant::now();
        if self.announce.is_some_and(|at| at <= now) {
            self.announce = None;
            let revision = self.shared.state.read().revision();
            self.shared.hub.announce(revision);
        }
        if self.paused.is_some_and(|until| until > now) {
            return;
        }
        self.paused = None;
        if self.sweep.is_some_and(|at| at <= now) {
            self.sweep = None;
            self.expire(round);
        }
        if self.age.is_some_and(|at| at <= now)
            && let Some(history) = self.options.history
        {
            self.age = Some(now + history / AGES);
            self.ages
                .push_back((now, self.shared.state.read().revision()));
            while let Some(&(at, revision)) = self.ages.front()
                && now.saturating_duration_since(at) >= history
            {
                round.compact = round.compact.max(Some(revision));
                self.ages.pop_front();
            }
        }
    }

    /// Queues the deletion of expired keys, as ordinary transactions.
    fn expire(&mut self, round: &mut Round) {
        let now = self.options.clock.now().as_millisecond();
        while let Some(Reverse(next)) = self.expiries.peek()
            && next.at <= now
        {
            if round.expired.len() == BATCH {
                self.sweep = Some(Instant::now());
                return;
            }
            let Some(Reverse(expiry)) = self.expiries.pop() else {
                return;
            };
            let newest = self.shared.state.read().newest(&expiry.key);
            if newest.is_some_and(|found| found.revision == expiry.revision) {
                round.txns.push(Txn {
                    key: expiry.key.clone(),
                    expected: expiry.revision,
                    op: Op::Delete,
                });
                round.expired.push(expiry);
            }
        }
    }

    /// The number of compacted rows that one batch removes.
    fn due(&self) -> usize {
        let compacted = self.shared.state.read().compacted();
        let due = self
            .garbage
            .iter()
            .take_while(|row| row.superseded_at <= compacted);
        due.take(BATCH).count()
    }

    /// Writes a batch and replies to its requests. `Err` when the writer must recover or
    /// end.
    fn round(&mut self, round: Round) -> Result<()> {
        if let Some(revision) = round.compact {
            self.shared.state.write().compact(revision);
            // Rows may have become removable.
            self.paused = None;
        }
        let result = self.make_room().and_then(|due| self.write(round.txns, due));
        let error = result.as_ref().err().cloned();
        if let Some(error) = &error {
            self.expiries.extend(round.expired.into_iter().map(Reverse));
            self.full = true;
            // Further failures do not extend the pause, which would never end.
            self.paused.get_or_insert(Instant::now() + PAUSE);
            // Before the replies, so that a client that gets the error finds the matching
            // health.
            match fault_of(error) {
                Some(fault) => self.shared.health.fail(fault),
                None => self.shared.state.write().end(error.clone()),
            }
        }
        let mut outcomes = result.unwrap_or_default().into_iter();
        for (reply, permit) in round.replies {
            drop(permit);
            let lost = || Error::Unavailable("the batch was lost".into());
            let answer = outcomes
                .next()
                .ok_or_else(|| error.clone().unwrap_or_else(lost));
            // The write stands even if the client no longer waits.
            let _ = reply.send(answer);
        }
        for reply in round.compact_replies {
            let _ = reply.send(error.clone().map_or(Ok(()), Err));
        }
        match error {
            Some(Error::NoSpace(_)) => {
                self.probe.get_or_insert(Instant::now() + PROBE);
                self.checkpoint()
            }
            Some(error) => Err(error),
            None => self.checkpoint(),
        }
    }

    /// Probes for space while the store is full. Only space for the largest request ends
    /// the fault, so that health does not change with the size of each write.
    fn look_for_space(&mut self) -> Result<()> {
        if self.probe.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.probe = None;
        match probe(&self.connection.lock(), MAX_REQUEST_BYTES) {
            Ok(()) => {
                (self.full, self.paused) = (false, None);
                self.shared.health.recover();
            }
            Err(Error::NoSpace(_)) => self.probe = Some(Instant::now() + PROBE),
            Err(error) => return Err(error),
        }
        self.appended += 2 * MAX_REQUEST_BYTES;
        self.checkpoint()
    }

    /// Keeps the WAL short. Without space the WAL is left as it is.
    fn checkpoint(&mut self) -> Result<()> {
        let appended = std::mem::take(&mut self.appended);
        let Some(checkpointer) = &mut self.checkpointer else {
            return Ok(());
        };
        if appended == 0 {
            return checkpointer.alive();
        }
        match checkpointer.wrote(appended, &self.connection.lock()) {
            Err(Error::NoSpace(text)) => {
                tracing::debug!(error = text, "no space to checkpoint the store");
                Ok(())
            }
            other => other,
        }
    }

    /// After a batch found no space, removes rows in a transaction of their own; in one
    /// with the batch they would fail again and again. Returns how many rows may be
    /// removed with the batch.
    fn make_room(&mut self) -> Result<usize> {
        if !self.full {
            return Ok(self.due());
        }
        if self.paused.is_none() {
            match self.write(Vec::new(), self.due()) {
                Ok(_) => self.full = false,
                Err(Error::NoSpace(_)) => self.paused = Some(Instant::now() + PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Commits one SQLite transaction and publishes it.
    fn write(&mut self, txns: Vec<Txn>, due: usize) -> Result<Vec<Outcome>> {
        let connection = self.connection.clone();
        let connection = connection.lock();
        let now = self.options.clock.now().as_millisecond();
        let mut batch = Batch::new(&connection, &self.shared.state, now);
        let mut outcomes = Vec::with_capacity(txns.len());
        for txn in txns {
            outcomes.push(batch.apply(txn).map_err(failed)?);
        }
        // The compaction revision is stored before any row is removed.
        let compacted = self.shared.state.read().compacted();
        if compacted > self.marked {
            batch.mark_compacted(compacted).map_err(failed)?;
        }
        batch
            .remove(self.garbage.iter().take(due))
            .map_err(failed)?;
        if !batch.commit().map_err(failed)? {
            return Ok(outcomes);
        }
        self.marked = compacted;
        let written = batch.into_written();
        self.appended += written.log_bytes + COMMIT_BYTES;
        let garbage = &mut self.garbage;
        let behind = self.shared.hub.publish(&written.events, || {
            let mut state = self.shared.state.write();
            for row in garbage.drain(..due) {
                state.forget(&row);
            }
            state.publish(&written.events, garbage);
            drop(state);
            #[cfg(test)]
            self.shared.between_publications.hit();
        });
        if behind && self.announce.is_none() {
            self.announce = Some(Instant::now() + ANNOUNCE);
        }
        self.expiries
            .extend(written.expiries.into_iter().map(Reverse));
        Ok(outcomes)
    }
}

impl Round {
    fn take(&mut self, request: Request) {
        match request {
            Request::Txn { txn, reply, permit } => {
                self.txns.push(txn);
                self.replies.push((reply, permit));
            }
            Request::Compact { revision, reply } => {
                self.compact = self.compact.max(Some(revision));
                self.compact_replies.push(reply);
            }
            Request::Close => self.closing = true,
        }
    }
}
