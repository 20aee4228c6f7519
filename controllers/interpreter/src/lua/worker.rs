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

/// Calls that wait for one thread.
const WAITING: usize = 256;
/// What takes less is quick.
const QUICK: Duration = Duration::from_micros(500);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The script failed, or exceeded a limit.
    #[error("{0}")]
    Failed(String),
    /// The script was not called, since other calls of it do not end. The same call may
    /// have a result later.
    #[error("{0}")]
    Refused(String),
}

impl CallError {
    pub(super) fn refused(deadline: Duration) -> Self {
        Self::Refused(format!(
            "the script is not called, since other calls of it did not end within {deadline:?}"
        ))
    }
}

pub(super) type Answer = Result<Results, CallError>;

pub(super) struct Job {
    pub(super) script: Arc<Script>,
    pub(super) operation: Operation,
    pub(super) args: Vec<Arg>,
    pub(super) reply: oneshot::Sender<Answer>,
    /// It finds out whether a script that did not end ends now.
    pub(super) probe: bool,
    pub(super) _pending: Pending,
}

/// Counts a call until this is dropped.
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

/// A thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) jobs: mpsc::Sender<Job>,
    /// Calls that wait for it or are under way.
    pub(super) pending: Arc<AtomicUsize>,
}

impl Worker {
    pub(super) fn start(at: usize, limits: Limits) -> Option<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING);
        let pending = Arc::new(AtomicUsize::new(0));
        let thread = Builder::new().name(format!("lua-{at}")).stack_size(STACK);
        let started = thread.spawn(move || {
            let mut seat = Seat::default();
            while let Some(job) = waiting.blocking_recv() {
                // Who has given up needs no answer.
                if !job.reply.is_closed() {
                    let answer = answer(&mut seat, &job, limits);
                    drop(job.reply.send(answer));
                }
            }
        });
        match started {
            Ok(_) => Some(Self { jobs, pending }),
            Err(error) => {
                tracing::error!(%error, "a thread for scripts cannot be started");
                None
            }
        }
    }
}

fn answer(seat: &mut Seat, job: &Job, limits: Limits) -> Answer {
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
    let outcome = seat.answer(script, *operation, args, Bounds::whole(limits));
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
        let judged = script.bytecode().map(drop).and_then(|()| {
            let mut vm = Vm::new().map_err(|e| e.to_string())?;
            let defined = vm.defines(&script, operation.function(), limits);
            defined.map_err(|failure| told(failure, &limits))
        });
        // Who asked may have stopped waiting.
        drop(reply.send(judged));
    });
    started.map_err(|e| format!("no thread can be started for it: {e}"))?;
    answer
        .recv_timeout(limits.deadline)
        .map_err(|_| format!("it does not compile within {:?}", limits.deadline))?
}
