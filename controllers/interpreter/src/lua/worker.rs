//! The threads on which scripts run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::bounds::Bounds;
use super::script::Script;
use super::seat::{Results, Seat};
use super::vm::{Arg, Failure, Vm};
use super::{Limits, STACK};
use crate::operation::Operation;

/// Maximum number of calls in the queue of one thread.
const WAITING: usize = 256;
/// A run that takes less is quick.
const QUICK: Duration = Duration::from_micros(500);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The script failed, or exceeded a limit.
    #[error("{0}")]
    Failed(String),
    /// The script was not called, because its circuit breaker is open. The same call may succeed
    /// later.
    #[error("{0}")]
    Refused(String),
}

impl CallError {
    pub(super) fn refused(deadline: Duration) -> Self {
        Self::Refused(format!(
            "the script is not called because earlier calls of it did not end within {deadline:?}"
        ))
    }
}

pub(super) type Answer = Result<Results, CallError>;

pub(super) struct Job {
    pub(super) script: Arc<Script>,
    pub(super) operation: Operation,
    pub(super) args: Vec<Arg>,
    pub(super) reply: oneshot::Sender<Answer>,
    /// Whether this is the probe call of an open circuit breaker.
    pub(super) probe: bool,
    pub(super) _pending: Pending,
}

/// Counts a pending call until it is dropped.
pub(super) struct Pending(Arc<AtomicUsize>);

impl Pending {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handle of a thread, which exits when the handle is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) jobs: mpsc::Sender<Job>,
    /// Calls in its queue or running.
    pub(super) pending: Arc<AtomicUsize>,
}

impl Worker {
    pub(super) fn start(at: usize, limits: Limits) -> Option<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING);
        let pending = Arc::new(AtomicUsize::new(0));
        let thread = Builder::new().name(format!("lua-{at}")).stack_size(STACK);
        let started = thread.spawn(move || {
            let mut thread_vm = Seat::default();
            while let Some(job) = waiting.blocking_recv() {
                // The caller may have been canceled.
                if !job.reply.is_closed() {
                    let answer = answer(&mut thread_vm, &job, limits);
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

fn answer(thread_vm: &mut Seat, job: &Job, limits: Limits) -> Answer {
    let began = Instant::now();
    let Job {
        script,
        operation,
        args,
        probe,
        ..
    } = job;
    if !probe && script.breaker().is_open() {
        return Err(CallError::refused(limits.deadline));
    }
    let outcome = thread_vm.answer(script, *operation, args, Bounds::whole(limits));
    script.was_quick(outcome.is_ok() && began.elapsed() < QUICK);
    let overran = matches!(outcome, Err(Failure::Deadline));
    let breaker = script.breaker();
    breaker.called(overran, Instant::now(), limits.deadline);
    outcome.map_err(|failure| CallError::Failed(told(failure, &limits)))
}

fn told(failure: Failure, limits: &Limits) -> String {
    match failure {
        Failure::Script(why) => why,
        Failure::Deadline => format!("the script did not end within {:?}", limits.deadline),
        Failure::Memory => "the script needs more memory than it may have".into(),
    }
}

pub(super) fn check(operation: Operation, source: &str, limits: Limits) -> Result<(), String> {
    let script = Script::new(source);
    let (reply, answer) = std::sync::mpsc::channel();
    let thread = Builder::new().name("lua-check".into()).stack_size(STACK);
    let started = thread.spawn(move || {
        let checked = script.bytecode().map(drop).and_then(|()| {
            let mut vm = Vm::new().map_err(|e| e.to_string())?;
            let defined = vm.defines(&script, operation.function(), limits);
            defined.map_err(|failure| told(failure, &limits))
        });
        // The caller may have timed out.
        drop(reply.send(checked));
    });
    started.map_err(|e| format!("failed to start a thread: {e}"))?;
    answer
        .recv_timeout(limits.deadline)
        .map_err(|_| format!("the script does not compile within {:?}", limits.deadline))?
}
