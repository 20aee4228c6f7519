//! Scripts of customizations, run apart from everything else.
//!
//! call ──[`Engine`]──► thread with a virtual machine of its own ──► result as JSON
//!
//! Scripts are other people's programs: one may run for a second, or want all memory.
//! So they run on threads that do nothing else, within limits, and none of them sees
//! what another did. One that was quick a few times runs where it is called, for two
//! milliseconds at most; if that is not enough it runs again on one of those threads.
//! Who waits for a thread lets other keys of its queue go on ([`runtime::aside`]).

mod bounds;
mod breaker;
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

use runtime::aside;
use serde_json::Value;
use tokio::sync::oneshot;

use breaker::Admission;

pub(crate) use script::{Hash, Script};
pub(crate) use vm::Arg;
pub(crate) use worker::CallError;
use worker::{Job, Pending, Worker};

use crate::operation::Operation;

/// Of each thread: the compiler of scripts recurses as deep as they are nested.
const STACK: usize = 16 << 20;
/// At least two, so that a script that does not end leaves one to others.
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 4;
/// Calls that wait for a thread while their workers do other things; fewer than the
/// workers that [`runtime::aside`] may add.
const MAX_WAITING: usize = 1024;
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
    ) -> Result<[Option<Value>; 2], CallError> {
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
        let deadline = self.limits.deadline;
        let admission = script.breaker().admit(began, deadline);
        if admission == Admission::Refused {
            return Err(CallError::refused(deadline));
        }
        let workers = self.workers();
        let pending = |worker: &&Worker| worker.pending.load(Ordering::Relaxed);
        let no_thread = || CallError::Failed("no thread can be started for scripts".into());
        let idlest = workers.iter().min_by_key(pending).ok_or_else(no_thread)?;
        let waiting: usize = workers.iter().map(|worker| pending(&worker)).sum();
        let (reply, answer) = oneshot::channel();
        let job = Job {
            script: Arc::clone(script),
            operation,
            args,
            reply,
            probe: admission == Admission::Probe,
            _pending: Pending::new(&idlest.pending),
        };
        let call = async {
            let gone = || CallError::Failed("the thread of the script has ended".into());
            idlest.jobs.send(job).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        if waiting < MAX_WAITING {
            return aside(call).await;
        }
        // Many calls of a script that ends are worth waiting for.
        match script.breaker().ends() {
            true => call.await,
            false => Err(CallError::refused(deadline)),
        }
    }

    fn workers(&self) -> &[Worker] {
        self.workers.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = 0..cores.clamp(MIN_THREADS, MAX_THREADS);
            threads
                .filter_map(|at| Worker::start(at, self.limits))
                .collect()
        })
    }
}

/// Whether a script compiles and has the function of an operation; the error says why
/// not. Blocks for at most the deadline.
pub fn check(operation: Operation, source: &str, limits: Limits) -> Result<(), String> {
    worker::check(operation, source, limits)
}
