//! The VM of a thread, in which scripts run one after the other.
//!
//! A VM in which a script failed is discarded.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::Limits;
use super::bounds::Bounds;
use super::empties::{has_empty, mended, mended_list};
use super::script::Script;
use super::tape::ROOT;
use super::vm::{Arg, Failure, Vm};
use crate::operation::Operation;

/// A VM is discarded after this many calls, which frees the functions of old scripts.
const CALLS: u32 = 10_000;
/// Maximum size of the arguments of an inline call, in bytes of JSON.
const HERE: usize = 32 << 10;

/// The first two results of a function, `None` for nil.
pub(super) type Results = [Option<Value>; 2];

/// The VM of a thread, created at the first call.
#[derive(Default)]
pub(super) struct Seat {
    vm: Option<Vm>,
    calls: u32,
}

thread_local! {
    static SEAT: RefCell<Seat> = RefCell::default();
}

/// Runs a trusted script on the calling thread, because handing it to another thread and back costs
/// as much as most scripts do. `None` when the script is not trusted or the call failed; after a
/// failure the script is not trusted any more.
pub(super) fn here(
    script: &Script,
    operation: Operation,
    args: &[Arg],
    limits: Limits,
) -> Option<Results> {
    if !script.is_trusted() || args.iter().map(Arg::weight).sum::<usize>() > HERE {
        return None;
    }
    let bounds = Bounds::brief(limits);
    let outcome =
        SEAT.with_borrow_mut(|thread_vm| thread_vm.answer(script, operation, args, bounds));
    script.was_quick(outcome.is_ok());
    outcome.ok()
}

impl Seat {
    pub(super) fn answer(
        &mut self,
        script: &Script,
        operation: Operation,
        args: &[Arg],
        bounds: Bounds,
    ) -> Result<Results, Failure> {
        self.calls += 1;
        if self.calls > CALLS {
            (self.vm, self.calls) = (None, 0);
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.vm()?.run(script, operation.function(), args, bounds)
        }));
        let outcome = ran.unwrap_or_else(|_| Err(Failure::Script("the VM panicked".into())));
        if outcome.is_err() {
            self.vm = None;
        }
        outcome.map(|[first, second]| {
            [
                first.map(|value| first_mended(value, operation, args)),
                second.map(|value| mended(value, &[])),
            ]
        })
    }

    fn vm(&mut self) -> Result<&mut Vm, Failure> {
        match &mut self.vm {
            Some(vm) => Ok(vm),
            none => {
                let vm = Vm::new().map_err(|e| Failure::Script(e.to_string()))?;
                Ok(none.insert(vm))
            }
        }
    }
}

/// Corrects the empty tables of the first result, for the operations and with the references with
/// which Karmada does.
fn first_mended(value: Value, operation: Operation, args: &[Arg]) -> Value {
    if !has_empty(&value) {
        return value;
    }
    match operation {
        Operation::Retain | Operation::ReviseReplica => {
            let trees = args.iter().filter_map(|arg| match arg {
                Arg::Tree(json) => Some(json.value(ROOT)),
                _ => None,
            });
            let trees: Vec<_> = trees.collect();
            mended(value, &trees.iter().collect::<Vec<_>>())
        }
        Operation::AggregateStatus | Operation::InterpretStatus => mended(value, &[]),
        _ => mended_list(value, &[]),
    }
}
