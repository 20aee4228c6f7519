//! Scripts of customizations, run apart from everything else.
//!
//! call ──[`Engine`]──► thread with a virtual machine of its own ──► result as JSON
//!
//! Scripts are other people's programs: one may run for a second, or want all memory.
//! So they run on threads that do nothing else, within limits, and none of them sees
//! what another did. One that was quick a few times runs where it is called, for two
//! milliseconds at most; if that is not enough it runs again on one of those threads.

mod bounds;
mod convert;
mod empties;
#[cfg(test)]
mod fuzz;
mod given;
mod kube;
mod order;
mod script;
mod seat;
mod tape;
#[cfg(test)]
mod tests;
mod vm;
mod worker;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) use script::{Hash, Script};
pub(crate) use vm::Arg;
use worker::{Job, Worker};

use crate::operation::Operation;

/// Of each thread: the compiler of scripts recurses as deep as they are nested.
const STACK: usize = 16 << 20;
const THREADS: usize = 4;
/// After a call that took longer others on its thread have their turn.
const LONG: Duration = Duration::from_micros(50);

/// What a call of a script may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub deadline: Duration,
    /// Bytes, whatever the arguments.
    pub memory: usize,
    /// Bytes for each byte of the arguments, as JSON.
    pub per_byte: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            memory: 8 << 20,
            per_byte: 16,
        }
    }
}

/// The threads that run scripts; they start with the first script.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    limits: Limits,
    workers: OnceLock<Vec<Worker>>,
}

impl Engine {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            workers: OnceLock::new(),
        }
    }

    /// Calls the function of an operation: its first two results, `None` for nil, with
    /// empty tables as they have to be. The error says what the script did wrong.
    pub(crate) async fn call(
        &self,
        script: &Arc<Script>,
        operation: Operation,
        args: Vec<Arg>,
    ) -> Result<[Option<Value>; 2], String> {
        let began = Instant::now();
        let found = seat::here(script, operation, &args, self.limits);
        if let Some(found) = found {
            if began.elapsed() > LONG {
                tokio::task::yield_now().await;
            } else {
                tokio::task::consume_budget().await;
            }
            return Ok(found);
        }
        let worker = self
            .idlest()
            .ok_or("no thread can be started for scripts")?;
        let (reply, answer) = oneshot::channel();
        let job = Job {
            script: Arc::clone(script),
            operation,
            args,
            reply,
        };
        worker.pending.fetch_add(1, Ordering::Relaxed);
        let gone = "the thread of the script has ended";
        worker.jobs.send(job).await.map_err(|_| gone)?;
        answer.await.map_err(|_| gone)?
    }

    fn idlest(&self) -> Option<&Worker> {
        let workers = self.workers.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = 0..cores.min(THREADS);
            threads
                .filter_map(|at| Worker::start(at, self.limits))
                .collect()
        });
        let pending = |worker: &&Worker| worker.pending.load(Ordering::Relaxed);
        workers.iter().min_by_key(pending)
    }
}

/// Whether a script compiles and has the function of an operation; the error says why
/// not. Blocks for at most the deadline.
pub fn check(operation: Operation, source: &str, limits: Limits) -> Result<(), String> {
    worker::check(operation, source, limits)
}
