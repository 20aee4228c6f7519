//! Runs the Lua scripts of customizations, isolated from each other and from the rest of the process.
//!
//! call ──[`LuaEngine`]──► thread with its own VM ──► result as JSON
//!
//! Scripts come from users: one may loop, or allocate without end. So they run with limits on dedicated
//! threads, and no script sees what another did. A script that was quick several times in a row runs
//! inline, on the calling thread, for at most two milliseconds; if it needs longer, a Lua thread
//! repeats the call. A caller that waits for a thread is in a blocking section, so that its worker goes
//! on with other keys of the queue.

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

use flotilla_runtime::aside;
use serde_json::Value;
use tokio::sync::oneshot;

use breaker::Admission;

pub(crate) use script::{Hash, Script};
pub(crate) use vm::Arg;
pub(crate) use worker::CallError;
use worker::{Job, Pending, Worker};

use crate::operation::Operation;

/// Stack size of each thread. The Lua compiler recurses as deep as a script is nested.
const STACK: usize = 16 << 20;
/// At least two, so that a script that does not terminate leaves one thread to the others.
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 4;
/// Maximum number of calls that wait for a thread in a blocking section. Less than the number of
/// workers that blocking sections may add.
const MAX_WAITING: usize = 1024;
/// After an inline call that took longer than this, the task yields.
const LONG: Duration = Duration::from_micros(50);

/// The limits of a call of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub deadline: Duration,
    /// Bytes of memory, independent of the arguments.
    pub memory: usize,
    /// Additional bytes of memory per byte of the arguments as JSON.
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

    /// Calls the function of an operation. Returns its first two results, `None` for nil, with empty
    /// tables corrected. The error says how the script failed, or that it was not called.
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
        let no_thread = || CallError::Failed("failed to start a thread for scripts".into());
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
            let exited = || CallError::Failed("the thread of the script has exited".into());
            idlest.jobs.send(job).await.map_err(|_| exited())?;
            answer.await.map_err(|_| exited())?
        };
        if waiting < MAX_WAITING {
            return aside(call).await;
        }
        // Too many calls wait. A script that terminates is worth waiting for without a blocking section.
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

/// Checks that a script compiles and defines the function of an operation; the error says why it
/// does not. Blocks for at most the deadline.
pub fn check(operation: Operation, source: &str, limits: Limits) -> Result<(), String> {
    worker::check(operation, source, limits)
}
