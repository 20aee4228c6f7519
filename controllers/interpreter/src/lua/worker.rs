//! The threads on which scripts run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use machinery::json::THREAD_STACK_BYTES;
use tokio::sync::{mpsc, oneshot};

use super::limits::LuaCallLimits;
use super::limits::LuaLimits;
use super::script::LuaScript;
use super::thread_vm::{LuaResults, ThreadVm};
use super::vm::{LuaArg, LuaFailure, LuaVm};
use crate::operation::InterpreterOperation;

/// Maximum number of calls in the queue of one thread.
const QUEUE_CAPACITY: usize = 256;
/// A run that takes less is quick.
const QUICK_RUN_LIMIT: Duration = Duration::from_micros(500);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LuaCallError {
    /// The script failed, or exceeded a limit.
    #[error("{0}")]
    Failed(String),
    /// The script was not called, because its circuit breaker is open. The same call may succeed
    /// later.
    #[error("{0}")]
    Refused(String),
}

impl LuaCallError {
    pub(super) fn refused(deadline: Duration) -> Self {
        Self::Refused(format!(
            "the script is not called because earlier calls of it did not end within {deadline:?}"
        ))
    }
}

pub(super) type LuaCallResult = Result<LuaResults, LuaCallError>;

pub(super) struct LuaJob {
    pub(super) script: Arc<LuaScript>,
    pub(super) operation: InterpreterOperation,
    pub(super) args: Vec<LuaArg>,
    pub(super) reply: oneshot::Sender<LuaCallResult>,
    /// Whether this is the probe call of an open circuit breaker.
    pub(super) probe: bool,
    pub(super) _pending: PendingCallGuard,
}

/// Counts a pending call until it is dropped.
pub(super) struct PendingCallGuard(Arc<AtomicUsize>);

impl PendingCallGuard {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for PendingCallGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handle of a thread, which exits when the handle is dropped.
#[derive(Debug)]
pub(super) struct LuaWorker {
    pub(super) jobs: mpsc::Sender<LuaJob>,
    /// Calls in its queue or running.
    pub(super) pending: Arc<AtomicUsize>,
}

impl LuaWorker {
    pub(super) fn start(at: usize, limits: LuaLimits) -> Option<Self> {
        let (jobs, mut waiting) = mpsc::channel::<LuaJob>(QUEUE_CAPACITY);
        let pending = Arc::new(AtomicUsize::new(0));
        let thread = Builder::new()
            .name(format!("lua-{at}"))
            .stack_size(THREAD_STACK_BYTES);
        let started = thread.spawn(move || {
            let mut thread_vm = ThreadVm::default();
            while let Some(job) = waiting.blocking_recv() {
                // The caller may have been canceled.
                if !job.reply.is_closed() {
                    let answer = run_job(&mut thread_vm, &job, limits);
                    drop(job.reply.send(answer));
                }
            }
        });
        match started {
            Ok(_) => Some(Self { jobs, pending }),
            Err(error) => {
                tracing::error!(%error, "failed to start a thread for scripts");
                None
            }
        }
    }
}

fn run_job(thread_vm: &mut ThreadVm, job: &LuaJob, limits: LuaLimits) -> LuaCallResult {
    let began = Instant::now();
    let LuaJob {
        script,
        operation,
        args,
        probe,
        ..
    } = job;
    if !probe && script.breaker().is_open() {
        return Err(LuaCallError::refused(limits.deadline));
    }
    let outcome = thread_vm.run(script, *operation, args, LuaCallLimits::full(limits));
    script.record_run(outcome.is_ok() && began.elapsed() < QUICK_RUN_LIMIT);
    let overran = matches!(outcome, Err(LuaFailure::Deadline));
    let breaker = script.breaker();
    breaker.record_call(overran, Instant::now(), limits.deadline);
    outcome.map_err(|failure| LuaCallError::Failed(failure_message(failure, &limits)))
}

fn failure_message(failure: LuaFailure, limits: &LuaLimits) -> String {
    match failure {
        LuaFailure::Script(reason) => reason,
        LuaFailure::Deadline => format!("the script did not end within {:?}", limits.deadline),
        LuaFailure::Memory => "the script needs more memory than it may have".into(),
    }
}

pub(super) fn check(
    operation: InterpreterOperation,
    source: &str,
    limits: LuaLimits,
) -> Result<(), String> {
    let script = LuaScript::new(source);
    let (reply, answer) = std::sync::mpsc::channel();
    let thread = Builder::new()
        .name("lua-check".into())
        .stack_size(THREAD_STACK_BYTES);
    let started = thread.spawn(move || {
        let checked = script.bytecode().map(drop).and_then(|()| {
            let mut vm = LuaVm::new().map_err(|e| e.to_string())?;
            let defined = vm.check_function(&script, operation.lua_function(), limits);
            defined.map_err(|failure| failure_message(failure, &limits))
        });
        // The caller may have timed out.
        drop(reply.send(checked));
    });
    started.map_err(|e| format!("failed to start a thread: {e}"))?;
    answer
        .recv_timeout(limits.deadline)
        .map_err(|_| format!("the script does not compile within {:?}", limits.deadline))?
}
