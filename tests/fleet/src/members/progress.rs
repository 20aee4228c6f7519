//! Counts the objects in all members by the round of the load that wrote them, and the writes of the
//! control plane.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use machinery::Object;
use parking_lot::Mutex;

/// The label of objects of the load: which round of it wrote them last.
pub(crate) const ROUND_LABEL: &str = "fleet-benchmark/round";
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The objects of one round in all members.
struct RoundProgress {
    objects: usize,
    last_change: Instant,
    /// When each member got its last object, by number.
    arrivals: BTreeMap<usize, Instant>,
}

/// How far the load has come in the members.
#[derive(Default)]
pub(crate) struct FleetProgress {
    rounds: Mutex<HashMap<String, RoundProgress>>,
    writes: AtomicUsize,
    rejected_writes: AtomicUsize,
    received_bytes: AtomicUsize,
    sent_bytes: AtomicUsize,
}

impl FleetProgress {
    /// Records that a member has `new` instead of `old`.
    pub(super) fn record_object(&self, member: usize, old: Option<&Object>, new: Option<&Object>) {
        let round = |object: Option<&Object>| object?.meta().label(ROUND_LABEL).map(str::to_owned);
        let (old, new) = (round(old), round(new));
        if old == new {
            return;
        }
        let mut rounds = self.rounds.lock();
        if let Some(progress) = old.and_then(|old| rounds.get_mut(&old)) {
            progress.objects -= 1;
        }
        if let Some(new) = new {
            let last_change = Instant::now();
            let progress = rounds.entry(new).or_insert(RoundProgress {
                objects: 0,
                last_change,
                arrivals: BTreeMap::new(),
            });
            progress.objects += 1;
            progress.last_change = last_change;
            progress.arrivals.insert(member, last_change);
        }
    }

    /// Records a request that changes something, and whether the member accepted it.
    pub(super) fn record_write(&self, is_accepted: bool) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if !is_accepted {
            self.rejected_writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn record_received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn record_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All requests so far that change something.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn rejected_writes(&self) -> usize {
        self.rejected_writes.load(Ordering::Relaxed)
    }

    /// The bytes of all bodies so far, before TLS and without headers: received, and sent.
    pub(crate) fn body_bytes(&self) -> (usize, usize) {
        let load = |bytes: &AtomicUsize| bytes.load(Ordering::Relaxed);
        (load(&self.received_bytes), load(&self.sent_bytes))
    }

    /// The number of objects of a round.
    pub(crate) fn objects(&self, round: &str) -> usize {
        self.rounds.lock().get(round).map_or(0, |r| r.objects)
    }

    /// When each member got its last object of a round, by number.
    pub(crate) fn arrivals(&self, round: &str) -> BTreeMap<usize, Instant> {
        let rounds = self.rounds.lock();
        rounds
            .get(round)
            .map_or_else(BTreeMap::new, |r| r.arrivals.clone())
    }

    /// Waits until all members together have `count` objects of a round; returns when the last one
    /// came.
    pub(crate) async fn wait_for_objects(
        &self,
        round: &str,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + limit;
        loop {
            let objects = match self.rounds.lock().get(round) {
                Some(progress) if progress.objects >= count => return Ok(progress.last_change),
                progress => progress.map_or(0, |progress| progress.objects),
            };
            ensure!(
                Instant::now() < deadline,
                "{round}: {objects} of {count} objects in members within {limit:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
