//! Runs the Lua scripts of customizations, isolated from each other and from the rest of the process.
//!
//! call ──[`LuaEngine`]──► thread with its own VM ──► result as JSON
//!
//! Scripts come from users: one may loop, or allocate without end. So they run with limits on dedicated
//! threads, and no script sees what another did. A script that was quick several times in a row runs
//! inline, on the calling thread, for at most two milliseconds; if it needs longer, a Lua thread
//! repeats the call. A caller that waits for a thread is in a blocking section, so that its worker goes
//! on with other keys of the queue.

mod circuit_breaker;
mod empty_tables;
mod flat_json;
#[cfg(test)]
mod fuzz;
mod kube_library;
mod lazy_table;
mod limits;
mod ordered_tables;
mod result_encoder;
mod script;
#[cfg(test)]
mod tests;
mod thread_vm;
mod vm;
mod worker;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use flotilla_runtime::blocking_section;
use serde_json::Value;
use tokio::sync::oneshot;

use circuit_breaker::CircuitBreakerDecision;

pub use limits::LuaLimits;
pub(crate) use script::{LuaScript, ScriptHash};
pub(crate) use vm::LuaArg;
pub(crate) use worker::LuaCallError;
use worker::{LuaJob, LuaWorker, PendingCallGuard};

use crate::operation::InterpreterOperation;

/// At least two, so that a script that does not terminate leaves one thread to the others.
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 4;
/// Maximum number of calls that wait for a thread in a blocking section. Less than the number of
/// workers that blocking sections may add.
const MAX_WAITING_CALLS: usize = 1024;
/// After an inline call that took longer than this, the task yields.
const YIELD_AFTER: Duration = Duration::from_micros(50);

/// The threads that run scripts; they start with the first script.
#[derive(Debug, Default)]
pub(crate) struct LuaEngine {
    limits: LuaLimits,
    workers: OnceLock<Vec<LuaWorker>>,
}

impl LuaEngine {
    pub(crate) fn new(limits: LuaLimits) -> Self {
        Self {
            limits,
            workers: OnceLock::new(),
        }
    }

    /// Calls the function of an operation. Returns its first two results, `None` for nil, with empty
    /// tables corrected. The error says how the script failed, or that it was not called.
    pub(crate) async fn call(
        &self,
        script: &Arc<LuaScript>,
        operation: InterpreterOperation,
        args: Vec<LuaArg>,
    ) -> Result<[Option<Value>; 2], LuaCallError> {
        let began = Instant::now();
        let inline_result = thread_vm::run_inline(script, operation, &args, self.limits);
        if let Some(inline_result) = inline_result {
            if began.elapsed() > YIELD_AFTER {
                tokio::task::yield_now().await;
            } else {
                tokio::task::consume_budget().await;
            }
            return Ok(inline_result);
        }
        let deadline = self.limits.deadline;
        let admission = script.breaker().check(began, deadline);
        if admission == CircuitBreakerDecision::Refused {
            return Err(LuaCallError::refused(deadline));
        }
        let workers = self.workers();
        let pending = |worker: &&LuaWorker| worker.pending.load(Ordering::Relaxed);
        let no_thread = || LuaCallError::Failed("failed to start a thread for scripts".into());
        let idlest = workers.iter().min_by_key(pending).ok_or_else(no_thread)?;
        let waiting: usize = workers.iter().map(|worker| pending(&worker)).sum();
        let (reply, answer) = oneshot::channel();
        let job = LuaJob {
            script: Arc::clone(script),
            operation,
            args,
            reply,
            probe: admission == CircuitBreakerDecision::Probe,
            _pending: PendingCallGuard::new(&idlest.pending),
        };
        let call = async {
            let exited = || LuaCallError::Failed("the thread of the script has exited".into());
            idlest.jobs.send(job).await.map_err(|_| exited())?;
            answer.await.map_err(|_| exited())?
        };
        if waiting < MAX_WAITING_CALLS {
            return blocking_section(call).await;
        }
        // Too many calls wait. A script that terminates is worth waiting for without a blocking section.
        match script.breaker().last_call_finished() {
            true => call.await,
            false => Err(LuaCallError::refused(deadline)),
        }
    }

    fn workers(&self) -> &[LuaWorker] {
        self.workers.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = 0..cores.clamp(MIN_THREADS, MAX_THREADS);
            threads
                .filter_map(|at| LuaWorker::start(at, self.limits))
                .collect()
        })
    }
}

/// Checks that a script compiles and defines the function of an operation; the error says why it
/// does not. Blocks for at most the deadline.
pub fn check(
    operation: InterpreterOperation,
    source: &str,
    limits: LuaLimits,
) -> Result<(), String> {
    worker::check(operation, source, limits)
}
