//! The threads on which scripts run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::empties::{has_empty, mended, mended_list};
use super::script::Script;
use super::tape::ROOT;
use super::vm::{Arg, Failure, Vm};
use super::{Limits, STACK};
use crate::operation::Operation;

/// Calls that wait for one thread.
const WAITING: usize = 256;
/// How often a machine is used, so that what it keeps of old scripts goes.
const CALLS: u32 = 10_000;

pub(super) type Answer = Result<[Option<Value>; 2], String>;

pub(super) struct Job {
    pub(super) script: Arc<Script>,
    pub(super) operation: Operation,
    pub(super) args: Vec<Arg>,
    pub(super) reply: oneshot::Sender<Answer>,
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
        let counted = Arc::clone(&pending);
        let thread = Builder::new().name(format!("lua-{at}")).stack_size(STACK);
        let started = thread.spawn(move || {
            let mut seat = Seat {
                vm: None,
                calls: 0,
                limits,
            };
            while let Some(job) = waiting.blocking_recv() {
                // Who has given up needs no answer.
                if !job.reply.is_closed() {
                    let answer = seat.answer(&job);
                    drop(job.reply.send(answer));
                }
                counted.fetch_sub(1, Ordering::Relaxed);
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

/// A thread's machine, if it has one.
struct Seat {
    vm: Option<Vm>,
    calls: u32,
    limits: Limits,
}

impl Seat {
    fn answer(&mut self, job: &Job) -> Answer {
        self.calls += 1;
        if self.calls > CALLS {
            (self.vm, self.calls) = (None, 0);
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(job)));
        let outcome = ran.unwrap_or_else(|_| Err(Failure::Script("the script broke".into())));
        match outcome {
            Ok([first, second]) => Ok([
                first.map(|value| first_mended(value, job)),
                second.map(|value| mended(value, &[])),
            ]),
            Err(failure) => {
                self.vm = None;
                Err(told(failure, &self.limits))
            }
        }
    }

    fn run(&mut self, job: &Job) -> Result<[Option<Value>; 2], Failure> {
        let vm = match &mut self.vm {
            Some(vm) => vm,
            none => {
                let vm = Vm::new().map_err(|e| Failure::Script(e.to_string()))?;
                none.insert(vm)
            }
        };
        vm.run(
            &job.script,
            job.operation.function(),
            &job.args,
            &self.limits,
        )
    }
}

/// Which of its empty tables are lists is told by the objects a result was made from,
/// where Karmada asks these.
fn first_mended(value: Value, job: &Job) -> Value {
    if !has_empty(&value) {
        return value;
    }
    match job.operation {
        Operation::Retain | Operation::ReviseReplica => {
            let trees = job.args.iter().filter_map(|arg| match arg {
                Arg::Tree(tape) => Some(tape.value(ROOT)),
                _ => None,
            });
            let trees: Vec<_> = trees.collect();
            mended(value, &trees.iter().collect::<Vec<_>>())
        }
        Operation::AggregateStatus | Operation::InterpretStatus => mended(value, &[]),
        _ => mended_list(value, &[]),
    }
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
            let defined = vm.defines(&script, operation.function(), &limits);
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
