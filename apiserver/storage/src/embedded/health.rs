//! Whether the engine can write: what is wrong now, and how often something was. Probes,
//! metrics and events read it; only the writer changes it.

use tokio::sync::watch;

use crate::store::Error;

/// What can keep the engine from writing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The disk, or what may be used of it, is full.
    Space,
    /// A read, a write or an fsync of the disk fails.
    Disk,
    /// The writer thread panicked.
    Writer,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Space, Self::Disk, Self::Writer];

    /// As metrics and health checks name it.
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

/// What keeps the engine from writing. It goes on trying, and resumes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// What the system said.
    pub message: String,
}

impl Fault {
    /// What a write gets meanwhile.
    pub(super) fn error(&self) -> Error {
        match self.kind {
            FaultKind::Space => Error::NoSpace(self.message.clone()),
            FaultKind::Disk => Error::Disk(self.message.clone()),
            FaultKind::Writer => Error::Unavailable(self.message.clone()),
        }
    }
}

/// The health of an engine, with the faults that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The fault of now.
    pub fault: Option<Fault>,
    /// The last fault, which may be over.
    pub last_fault: Option<Fault>,
    counts: [u64; 3],
}

impl Health {
    /// How many faults of a kind there were.
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.counts[kind.index()]
    }

    /// How many faults there were.
    pub fn all_faults(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct HealthReporter(watch::Sender<Health>);

impl HealthReporter {
    pub(super) fn subscribe(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.borrow().fault.clone()
    }

    /// Reports a fault; one that lasts counts once.
    pub(super) fn fail(&self, fault: Fault) {
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
