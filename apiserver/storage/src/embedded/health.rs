//! The health of the embedded engine: the fault that keeps it from writing now, and how
//! many faults there were. Probes, metrics and events read it; only the writer changes it.

use tokio::sync::watch;

use crate::store::Error;

/// The kinds of faults that keep the engine from writing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFaultKind {
    /// The disk or the quota is full.
    Space,
    /// A read, a write or an fsync fails.
    Disk,
    /// The writer thread panicked.
    Writer,
}

impl StoreFaultKind {
    /// Every kind, in the order of the counts.
    pub const ALL: [Self; 3] = [Self::Space, Self::Disk, Self::Writer];

    /// Its name in metrics and health checks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Space => "space",
            Self::Disk => "disk",
            Self::Writer => "writer",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Space => 0,
            Self::Disk => 1,
            Self::Writer => 2,
        }
    }
}

/// A fault that keeps the engine from writing. The engine retries and resumes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    pub kind: StoreFaultKind,
    /// The error of SQLite or of the operating system.
    pub message: String,
}

impl StoreFault {
    /// The error that writes get while the fault lasts.
    pub(super) fn to_error(&self) -> Error {
        match self.kind {
            StoreFaultKind::Space => Error::NoSpace(self.message.clone()),
            StoreFaultKind::Disk => Error::Disk(self.message.clone()),
            StoreFaultKind::Writer => Error::Unavailable(self.message.clone()),
        }
    }
}

/// The health of an engine, with the faults since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// The present fault.
    pub fault: Option<StoreFault>,
    /// The last fault, which may have ended.
    pub last_fault: Option<StoreFault>,
    counts: [u64; 3],
}

impl StoreHealth {
    /// The number of faults of a kind.
    pub fn fault_count(&self, kind: StoreFaultKind) -> u64 {
        self.counts[kind.index()]
    }

    /// The number of faults of all kinds.
    pub fn total_faults(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct StoreHealthReporter(watch::Sender<StoreHealth>);

impl StoreHealthReporter {
    pub(super) fn subscribe(&self) -> watch::Receiver<StoreHealth> {
        self.0.subscribe()
    }

    pub(super) fn fault(&self) -> Option<StoreFault> {
        self.0.borrow().fault.clone()
    }

    /// Reports a fault. A fault that lasts is counted once.
    pub(super) fn fail(&self, fault: StoreFault) {
        self.0.send_if_modified(|health| {
            let kind = fault.kind;
            if health.fault.as_ref().is_some_and(|f| f.kind == kind) {
                return false;
            }
            tracing::error!(?kind, error = fault.message, "the store cannot write");
            health.counts[kind.index()] += 1;
            health.last_fault = Some(fault.clone());
            health.fault = Some(fault);
            true
        });
    }

    /// Reports that the engine writes again.
    pub(super) fn recover(&self) {
        self.0.send_if_modified(|health| {
            let recovered = health.fault.take();
            if let Some(fault) = &recovered {
                tracing::info!(kind = ?fault.kind, "the store writes again");
            }
            recovered.is_some()
        });
    }
}
