//! The limits of one call, and the deadline check that interrupts a running script.

use std::cell::Cell;
use std::time::{Duration, Instant};

use mlua::VmState;

use super::result_encoder::{LuaResultLimits, RESULT_LIMITS};

/// The clock is read once per this many interrupt points of the VM.
const INTERRUPTS_PER_CLOCK_CHECK: u32 = 4;

/// The deadline of an inline call, which runs on a thread of the async runtime.
const INLINE_DEADLINE: Duration = Duration::from_millis(2);
const INLINE_RESULT_LIMITS: LuaResultLimits = LuaResultLimits {
    values: 10_000,
    string_bytes: 1 << 20,
};

/// The limits of a call of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuaLimits {
    pub deadline: Duration,
    /// Bytes of memory, independent of the arguments.
    pub memory: usize,
    /// Additional bytes of memory per byte of the arguments as JSON.
    pub memory_per_argument_byte: usize,
}

impl Default for LuaLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            memory: 8 << 20,
            memory_per_argument_byte: 16,
        }
    }
}

/// The resources that one call may use.
#[derive(Clone, Copy)]
pub(super) struct LuaCallLimits {
    pub(super) limits: LuaLimits,
    pub(super) result_limits: LuaResultLimits,
    /// Whether this is an inline call; when it fails, a Lua thread repeats it.
    inline: bool,
}

impl LuaCallLimits {
    pub(super) fn full(limits: LuaLimits) -> Self {
        Self {
            limits,
            result_limits: RESULT_LIMITS,
            inline: false,
        }
    }

    pub(super) fn inline(limits: LuaLimits) -> Self {
        Self {
            limits: LuaLimits {
                deadline: limits.deadline.min(INLINE_DEADLINE),
                ..limits
            },
            result_limits: INLINE_RESULT_LIMITS,
            inline: true,
        }
    }
}

fn deadline_error() -> mlua::Error {
    mlua::Error::runtime("deadline exceeded")
}

/// The deadline of the call that is running.
#[derive(Default)]
pub(super) struct LuaCallDeadline {
    call_limits: Cell<Option<LuaCallLimits>>,
    deadline: Cell<Option<Instant>>,
    interrupts: Cell<u32>,
    expired: Cell<bool>,
}

impl LuaCallDeadline {
    pub(super) fn start(&self, bounds: LuaCallLimits) {
        self.call_limits.set(Some(bounds));
        let until = Instant::now().checked_add(bounds.limits.deadline);
        self.deadline.set(until);
        self.interrupts.set(0);
        self.expired.set(false);
    }

    /// Ends the call; returns whether its deadline was exceeded.
    pub(super) fn finish(&self) -> bool {
        self.deadline.set(None);
        self.call_limits.set(None);
        self.expired.get()
    }

    /// Called by the VM at its interrupt points. After the deadline every further interrupt fails,
    /// so that a script cannot go on by catching the error.
    pub(super) fn on_interrupt(&self) -> mlua::Result<VmState> {
        let ticks = self.interrupts.get().wrapping_add(1);
        self.interrupts.set(ticks);
        if !self.expired.get() {
            if !ticks.is_multiple_of(INTERRUPTS_PER_CLOCK_CHECK) {
                return Ok(VmState::Continue);
            }
            let expired = self
                .deadline
                .get()
                .is_some_and(|until| Instant::now() >= until);
            self.expired.set(expired);
        }
        if self.expired.get() {
            return Err(deadline_error());
        }
        Ok(VmState::Continue)
    }

    /// Called before an operation that takes long and cannot be interrupted; aborts an inline call.
    pub(super) fn abort_inline_call(&self) -> mlua::Result<()> {
        if self.call_limits.get().is_some_and(|bounds| bounds.inline) {
            self.expired.set(true);
            return Err(deadline_error());
        }
        Ok(())
    }

    pub(super) fn result_limits(&self) -> LuaResultLimits {
        self.call_limits
            .get()
            .map_or(RESULT_LIMITS, |bounds| bounds.result_limits)
    }
}
