//! A server of the comparison, and the size of its load.

use std::any::Any;

use harness::process_stat::cpu_seconds;

pub(super) const OBJECTS: usize = 10_000;
pub(super) const OBJECT_BYTES: usize = 4096;
pub(super) const CREATORS: usize = 16;
pub(super) const LIST_ROUNDS: usize = 11;
pub(super) const GETS: usize = 2000;
pub(super) const WATCH_WRITES: usize = 100;

/// A server with the processes that work for it.
pub(super) struct ComparedServer {
    /// The prefix of its measurements.
    pub(super) name: &'static str,
    processes: Vec<u32>,
    /// The parts that must live as long as the server.
    _owner: Box<dyn Any>,
}

impl ComparedServer {
    pub(super) fn new(name: &'static str, processes: Vec<u32>, owner: impl Any) -> Self {
        Self {
            name,
            processes,
            _owner: Box::new(owner),
        }
    }

    /// CPU seconds of all its processes.
    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let seconds: std::io::Result<f64> = self.processes.iter().map(|id| cpu_seconds(*id)).sum();
        Ok(seconds?)
    }
}
