//! The VM of a thread, in which scripts run one after the other.
//!
//! A VM in which a script failed is discarded.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::empty_tables::{has_empty, prune_list, prune_object};
use super::flat_json::ROOT_NODE;
use super::limits::LuaCallLimits;
use super::limits::LuaLimits;
use super::script::LuaScript;
use super::vm::{LuaArg, LuaFailure, LuaVm};
use crate::operation::InterpreterOperation;

/// A VM is discarded after this many calls, which frees the functions of old scripts.
const MAX_CALLS_PER_VM: u32 = 10_000;
/// Maximum size of the arguments of an inline call, in bytes of JSON.
const MAX_INLINE_ARGUMENT_BYTES: usize = 32 << 10;

/// The first two results of a function, `None` for nil.
pub(super) type LuaResults = [Option<Value>; 2];

/// The VM of a thread, created at the first call.
#[derive(Default)]
pub(super) struct ThreadVm {
    vm: Option<LuaVm>,
    calls: u32,
}

thread_local! {
    static THREAD_VM: RefCell<ThreadVm> = RefCell::default();
}

/// Runs a trusted script on the calling thread, because handing it to another thread and back costs
/// as much as most scripts do. `None` when the script is not trusted or the call failed; after a
/// failure the script is not trusted any more.
pub(super) fn run_inline(
    script: &LuaScript,
    operation: InterpreterOperation,
    args: &[LuaArg],
    limits: LuaLimits,
) -> Option<LuaResults> {
    if !script.is_trusted()
        || args.iter().map(LuaArg::approximate_bytes).sum::<usize>() > MAX_INLINE_ARGUMENT_BYTES
    {
        return None;
    }
    let bounds = LuaCallLimits::inline(limits);
    let outcome =
        THREAD_VM.with_borrow_mut(|thread_vm| thread_vm.run(script, operation, args, bounds));
    script.record_run(outcome.is_ok());
    outcome.ok()
}

impl ThreadVm {
    pub(super) fn run(
        &mut self,
        script: &LuaScript,
        operation: InterpreterOperation,
        args: &[LuaArg],
        bounds: LuaCallLimits,
    ) -> Result<LuaResults, LuaFailure> {
        self.calls += 1;
        if self.calls > MAX_CALLS_PER_VM {
            (self.vm, self.calls) = (None, 0);
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.vm()?
                .call_function(script, operation.lua_function(), args, bounds)
        }));
        let outcome = ran.unwrap_or_else(|_| Err(LuaFailure::Script("the VM panicked".into())));
        if outcome.is_err() {
            self.vm = None;
        }
        outcome.map(|[first, second]| {
            [
                first.map(|value| prune_first_result(value, operation, args)),
                second.map(|value| prune_object(value, &[])),
            ]
        })
    }

    fn vm(&mut self) -> Result<&mut LuaVm, LuaFailure> {
        match &mut self.vm {
            Some(vm) => Ok(vm),
            none => {
                let vm = LuaVm::new().map_err(|e| LuaFailure::Script(e.to_string()))?;
                Ok(none.insert(vm))
            }
        }
    }
}

/// Corrects the empty tables of the first result, for the operations and with the references with
/// which Karmada does.
fn prune_first_result(value: Value, operation: InterpreterOperation, args: &[LuaArg]) -> Value {
    if !has_empty(&value) {
        return value;
    }
    match operation {
        InterpreterOperation::Retain | InterpreterOperation::ReviseReplica => {
            let trees = args.iter().filter_map(|arg| match arg {
                LuaArg::Json(json) => Some(json.to_value(ROOT_NODE)),
                _ => None,
            });
            let trees: Vec<_> = trees.collect();
            prune_object(value, &trees.iter().collect::<Vec<_>>())
        }
        InterpreterOperation::AggregateStatus | InterpreterOperation::InterpretStatus => {
            prune_object(value, &[])
        }
        _ => prune_list(value, &[]),
    }
}
