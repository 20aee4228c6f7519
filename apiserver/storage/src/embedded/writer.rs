//! The writer thread, the only one that writes to the database. It commits queued
//! transactions in batches, deletes expired keys, compacts history by age, publishes
//! each committed batch to readers and watches, and then replies.
//!
//! While one batch waits for fsync the next one gathers in the queue; so no commit is
//! delayed and one fsync serves all requests that arrived meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::batch_tx::BatchTx;
use super::checkpoint::WalCheckpointer;
use super::database::{KeyExpiry, LockedDataDirectory, probe_space, store_error};
use super::delta_encoder::DeltaEncoder;
use super::engine::EmbeddedStoreState;
use super::fault_classification::{fault_of, panic_fault};
use super::mvcc_index::SupersededRow;
use super::options::EmbeddedStoreOptions;
use crate::store::{
    Error, MAX_REQUEST_BYTES, SingleKeyTxn, SingleKeyTxnOp, StoreResult, TxnResponse,
};

/// The most requests, and the most rows to remove, in one SQLite transaction.
const MAX_BATCH_REQUESTS: usize = 512;
/// How long the watches of unchanged prefixes may go without progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// The backoff of expiry, compaction and removal of rows after they found no space.
const NO_SPACE_BACKOFF: Duration = Duration::from_secs(5);
/// The interval at which a full store probes for space.
const SPACE_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of steps in which history is compacted by age.
const HISTORY_STEPS: u32 = 5;
/// An estimate of the bytes that a commit appends to the WAL besides its rows.
const COMMIT_OVERHEAD_BYTES: usize = 8 << 10;

pub(super) enum WriterRequest {
    Txn {
        txn: SingleKeyTxn,
        reply: oneshot::Sender<StoreResult<TxnResponse>>,
        /// Held while the request takes up memory.
        permit: OwnedSemaphorePermit,
    },
    Compact {
        revision: u64,
        reply: oneshot::Sender<StoreResult<()>>,
    },
    Close,
}

type PendingTxnReply = (
    oneshot::Sender<StoreResult<TxnResponse>>,
    OwnedSemaphorePermit,
);

/// The requests and the own work that one batch writes.
#[derive(Default)]
struct WriteBatch {
    txns: Vec<SingleKeyTxn>,
    /// One for each of the first transactions; the others delete expired keys.
    replies: Vec<PendingTxnReply>,
    expired: Vec<KeyExpiry>,
    compact: Option<u64>,
    compact_replies: Vec<oneshot::Sender<StoreResult<()>>>,
    closing: bool,
}

pub(super) struct StoreWriter {
    pub(super) engine: Arc<EmbeddedStoreState>,
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) requests: Receiver<WriterRequest>,
    pub(super) options: EmbeddedStoreOptions,
    pub(super) checkpointer: Option<WalCheckpointer>,
    pub(super) expiries: BinaryHeap<Reverse<KeyExpiry>>,
    pub(super) deltas: DeltaEncoder,
    /// Ascending in `superseded_at`.
    pub(super) superseded_rows: VecDeque<SupersededRow>,
    /// Bytes appended to the WAL since the last checkpoint call.
    appended_bytes: usize,
    /// The compaction revision that is stored in the database.
    pub(super) stored_compaction: u64,
    /// Revisions with the time at which they were the newest.
    revision_times: VecDeque<(Instant, u64)>,
    /// The time of the next sweep of expired keys; likewise below.
    pub(super) next_key_expiry: Option<Instant>,
    next_aging: Option<Instant>,
    next_progress: Option<Instant>,
    /// The time of the next probe for space.
    next_space_probe: Option<Instant>,
    /// Whether the last batch found no space.
    pub(super) no_space: bool,
    /// Whether the store is being closed.
    pub(super) closing: bool,
    /// Expiry, compaction and removal of rows wait until then.
    pub(super) paused_until: Option<Instant>,
    /// The last field, so that the lock is released after everything else is closed.
    pub(super) directory: Option<LockedDataDirectory>,
}

impl StoreWriter {
    pub(super) fn new(
        shared: Arc<EmbeddedStoreState>,
        connection: Arc<Mutex<Connection>>,
        requests: Receiver<WriterRequest>,
        options: EmbeddedStoreOptions,
        directory: Option<LockedDataDirectory>,
    ) -> StoreResult<Self> {
        let checkpointer = match &directory {
            Some(d) => Some(WalCheckpointer::start(d.database.clone(), options.sync)?),
            None => None,
        };
        let marked = shared.index.read().compact_revision();
        let age = options.history_retention.map(|_| Instant::now());
        // Revisions are skipped once, not at each recovery.
        let options = EmbeddedStoreOptions {
            skip_revisions: 0,
            ..options
        };
        Ok(Self {
            engine: shared,
            connection,
            requests,
            deltas: DeltaEncoder::new(options.deltas.clone()),
            options,
            checkpointer,
            expiries: BinaryHeap::new(),
            superseded_rows: VecDeque::new(),
            appended_bytes: 0,
            stored_compaction: marked,
            revision_times: VecDeque::new(),
            next_key_expiry: None,
            next_aging: age,
            next_progress: None,
            next_space_probe: None,
            no_space: false,
            closing: false,
            paused_until: None,
            directory,
        })
    }

    pub(super) fn with_loaded(
        mut self,
        garbage: VecDeque<SupersededRow>,
        expiries: BinaryHeap<Reverse<KeyExpiry>>,
        base_references: HashMap<i64, i64>,
    ) -> Self {
        self.superseded_rows = garbage;
        self.expiries = expiries;
        self.deltas.reset(base_references);
        self
    }

    pub(super) fn run(mut self) {
        let failure = loop {
            let fault = match catch_unwind(AssertUnwindSafe(|| self.run_once())) {
                Ok(Ok(())) if self.closing => {
                    break Error::Unavailable("the store is closed".into());
                }
                Ok(Ok(())) => continue,
                Ok(Err(error)) => match fault_of(&error) {
                    Some(fault) => fault,
                    None => break error,
                },
                Err(payload) => panic_fault(&*payload),
            };
            self.engine.health.fail(fault);
            if let Err(error) = self.recover() {
                break error;
            }
        };
        self.engine.index.write().close(failure.clone());
        if matches!(failure, Error::Fatal(_)) {
            tracing::error!(error = %failure, "the store has failed");
            self.engine.failure.send_replace(Some(failure));
        }
        self.engine.notifier.close();
        self.engine.read_pool.close();
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.join();
        }
    }

    /// Waits for work and does it.
    fn run_once(&mut self) -> StoreResult<()> {
        let round = self.collect_writes();
        self.commit_and_reply(round)?;
        self.probe_for_space()
    }

    /// Waits for requests or a timer and collects what one batch takes.
    fn collect_writes(&mut self) -> WriteBatch {
        let mut round = WriteBatch::default();
        let now = Instant::now();
        if self.next_key_expiry.is_none() && !self.expiries.is_empty() {
            self.next_key_expiry = Some(now + self.options.key_expiry_interval);
        }
        let next_timer = if self.removable_rows() > 0 {
            Some(now)
        } else {
            self.next_aging
        };
        let next_timer = next_timer.into_iter().chain(self.next_key_expiry).min();
        let next_timer = next_timer.map(|at| self.paused_until.map_or(at, |until| at.max(until)));
        let timer = next_timer
            .into_iter()
            .chain(self.next_progress)
            .chain(self.next_space_probe)
            .min();
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
            Ok(request) => round.add(request),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => round.closing = true,
        }
        while round.txns.len() < MAX_BATCH_REQUESTS && !round.closing {
            let Ok(request) = self.requests.try_recv() else {
                break;
            };
            round.add(request);
        }
        self.closing |= round.closing;
        self.run_timers(&mut round);
        round
    }

    fn run_timers(&mut self, round: &mut WriteBatch) {
        let now = Instant::now();
        if self.next_progress.is_some_and(|at| at <= now) {
            self.next_progress = None;
            let revision = self.engine.index.read().revision();
            self.engine.notifier.announce_progress(revision);
        }
        if self.paused_until.is_some_and(|until| until > now) {
            return;
        }
        self.paused_until = None;
        if self.next_key_expiry.is_some_and(|at| at <= now) {
            self.next_key_expiry = None;
            self.queue_expired(round);
        }
        if self.next_aging.is_some_and(|at| at <= now)
            && let Some(history) = self.options.history_retention
        {
            self.next_aging = Some(now + history / HISTORY_STEPS);
            self.revision_times
                .push_back((now, self.engine.index.read().revision()));
            while let Some(&(at, revision)) = self.revision_times.front()
                && now.saturating_duration_since(at) >= history
            {
                round.compact = round.compact.max(Some(revision));
                self.revision_times.pop_front();
            }
        }
    }

    /// Queues the deletion of expired keys, as ordinary transactions.
    fn queue_expired(&mut self, round: &mut WriteBatch) {
        let now = self.options.clock.now().as_millisecond();
        while let Some(Reverse(next)) = self.expiries.peek()
            && next.expires_at_ms <= now
        {
            if round.expired.len() == MAX_BATCH_REQUESTS {
                self.next_key_expiry = Some(Instant::now());
                return;
            }
            let Some(Reverse(expiry)) = self.expiries.pop() else {
                return;
            };
            let newest = self.engine.index.read().newest(&expiry.key);
            if newest.is_some_and(|newest_key| newest_key.revision == expiry.revision) {
                round.txns.push(SingleKeyTxn {
                    key: expiry.key.clone(),
                    expected: expiry.revision,
                    op: SingleKeyTxnOp::Delete,
                });
                round.expired.push(expiry);
            }
        }
    }

    /// The number of compacted rows that one batch removes.
    fn removable_rows(&self) -> usize {
        let compacted = self.engine.index.read().compact_revision();
        let removable = self
            .superseded_rows
            .iter()
            .take_while(|row| row.superseded_at <= compacted);
        removable.take(MAX_BATCH_REQUESTS).count()
    }

    /// Writes a batch and replies to its requests. `Err` when the writer must recover or
    /// end.
    fn commit_and_reply(&mut self, round: WriteBatch) -> StoreResult<()> {
        if let Some(revision) = round.compact {
            self.engine.index.write().compact(revision);
            // Rows may have become removable.
            self.paused_until = None;
        }
        let result = self
            .free_space()
            .and_then(|removable| self.commit_batch(round.txns, removable));
        let error = result.as_ref().err().cloned();
        if let Some(error) = &error {
            self.expiries.extend(round.expired.into_iter().map(Reverse));
            self.no_space = true;
            // Further failures do not extend the pause, which would never end.
            self.paused_until
                .get_or_insert(Instant::now() + NO_SPACE_BACKOFF);
            // Before the replies, so that a client that gets the error finds the matching
            // health.
            match fault_of(error) {
                Some(fault) => self.engine.health.fail(fault),
                None => self.engine.index.write().close(error.clone()),
            }
        }
        let mut outcomes = result.unwrap_or_default().into_iter();
        for (reply, permit) in round.replies {
            drop(permit);
            let lost_batch = || Error::Unavailable("the batch was lost".into());
            let response = outcomes
                .next()
                .ok_or_else(|| error.clone().unwrap_or_else(lost_batch));
            // The write stands even if the client no longer waits.
            let _ = reply.send(response);
        }
        for reply in round.compact_replies {
            let _ = reply.send(error.clone().map_or(Ok(()), Err));
        }
        match error {
            Some(Error::NoSpace(_)) => {
                self.next_space_probe
                    .get_or_insert(Instant::now() + SPACE_PROBE_INTERVAL);
                self.checkpoint()
            }
            Some(error) => Err(error),
            None => self.checkpoint(),
        }
    }

    /// Probes for space while the store is full. Only space for the largest request ends
    /// the fault, so that health does not change with the size of each write.
    fn probe_for_space(&mut self) -> StoreResult<()> {
        if self.next_space_probe.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.next_space_probe = None;
        match probe_space(&self.connection.lock(), MAX_REQUEST_BYTES) {
            Ok(()) => {
                (self.no_space, self.paused_until) = (false, None);
                self.engine.health.recover();
            }
            Err(Error::NoSpace(_)) => {
                self.next_space_probe = Some(Instant::now() + SPACE_PROBE_INTERVAL)
            }
            Err(error) => return Err(error),
        }
        self.appended_bytes += 2 * MAX_REQUEST_BYTES;
        self.checkpoint()
    }

    /// Keeps the WAL short. Without space the WAL is left as it is.
    fn checkpoint(&mut self) -> StoreResult<()> {
        let appended = std::mem::take(&mut self.appended_bytes);
        let Some(checkpointer) = &mut self.checkpointer else {
            return Ok(());
        };
        if appended == 0 {
            return checkpointer.check_running();
        }
        match checkpointer.record_append(appended, &self.connection.lock()) {
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
    fn free_space(&mut self) -> StoreResult<usize> {
        if !self.no_space {
            return Ok(self.removable_rows());
        }
        if self.paused_until.is_none() {
            match self.commit_batch(Vec::new(), self.removable_rows()) {
                Ok(_) => self.no_space = false,
                Err(Error::NoSpace(_)) => {
                    self.paused_until = Some(Instant::now() + NO_SPACE_BACKOFF)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Commits one SQLite transaction and publishes it.
    fn commit_batch(
        &mut self,
        txns: Vec<SingleKeyTxn>,
        removable: usize,
    ) -> StoreResult<Vec<TxnResponse>> {
        let connection = self.connection.clone();
        let connection = connection.lock();
        let now = self.options.clock.now().as_millisecond();
        let mut batch = BatchTx::new(&connection, &self.engine.index, &mut self.deltas, now);
        let mut outcomes = Vec::with_capacity(txns.len());
        for txn in txns {
            outcomes.push(batch.apply(txn).map_err(store_error)?);
        }
        // The compaction revision is stored before any row is removed.
        let compacted = self.engine.index.read().compact_revision();
        if compacted > self.stored_compaction {
            batch.mark_compacted(compacted).map_err(store_error)?;
        }
        batch
            .remove(self.superseded_rows.iter().take(removable))
            .map_err(store_error)?;
        if !batch.commit().map_err(store_error)? {
            return Ok(outcomes);
        }
        self.stored_compaction = compacted;
        let written = batch.into_changes();
        self.appended_bytes += written.wal_bytes + COMMIT_OVERHEAD_BYTES;
        let garbage = &mut self.superseded_rows;
        let has_lagging = self.engine.notifier.publish(&written.events, || {
            let mut state = self.engine.index.write();
            for row in garbage.drain(..removable) {
                state.remove_row(&row);
            }
            state.publish(&written.events, garbage);
            drop(state);
            #[cfg(test)]
            self.engine.between_publications.hit();
        });
        if has_lagging && self.next_progress.is_none() {
            self.next_progress = Some(Instant::now() + PROGRESS_INTERVAL);
        }
        self.expiries
            .extend(written.expiries.into_iter().map(Reverse));
        Ok(outcomes)
    }
}

impl WriteBatch {
    fn add(&mut self, request: WriterRequest) {
        match request {
            WriterRequest::Txn { txn, reply, permit } => {
                self.txns.push(txn);
                self.replies.push((reply, permit));
            }
            WriterRequest::Compact { revision, reply } => {
                self.compact = self.compact.max(Some(revision));
                self.compact_replies.push(reply);
            }
            WriterRequest::Close => self.closing = true,
        }
    }
}
