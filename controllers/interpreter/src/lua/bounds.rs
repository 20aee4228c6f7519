//! The limits of one call, and the deadline check that interrupts a running script.

use std::cell::Cell;
use std::time::{Duration, Instant};

use mlua::VmState;

use super::Limits;
use super::convert::{ROOM, Room};

/// The clock is read once per this many interrupt points of the VM.
const STRIDE: u32 = 4;

/// The deadline of an inline call, which runs on a thread of the async runtime.
const BRIEF: Duration = Duration::from_millis(2);
const BRIEF_ROOM: Room = Room {
    values: 10_000,
    text: 1 << 20,
};

/// What one call may use.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    pub(super) room: Room,
    /// Whether this is an inline call; when it fails, a Lua thread repeats it.
    brief: bool,
}

impl Bounds {
    pub(super) fn whole(limits: Limits) -> Self {
        Self {
            limits,
            room: ROOM,
            brief: false,
        }
    }

    pub(super) fn brief(limits: Limits) -> Self {
        Self {
            limits: Limits {
                deadline: limits.deadline.min(BRIEF),
                ..limits
            },
            room: BRIEF_ROOM,
            brief: true,
        }
    }
}

fn time_is_up() -> mlua::Error {
    mlua::Error::runtime("deadline exceeded")
}

/// The deadline of the call that is running.
#[derive(Default)]
pub(super) struct Watch {
    bounds: Cell<Option<Bounds>>,
    until: Cell<Option<Instant>>,
    ticks: Cell<u32>,
    expired: Cell<bool>,
}

impl Watch {
    pub(super) fn begin(&self, bounds: Bounds) {
        self.bounds.set(Some(bounds));
        let until = Instant::now().checked_add(bounds.limits.deadline);
        self.until.set(until);
        self.ticks.set(0);
        self.expired.set(false);
    }

    /// Ends the call; returns whether its deadline was exceeded.
    pub(super) fn end(&self) -> bool {
        self.until.set(None);
        self.bounds.set(None);
        self.expired.get()
    }

    /// Called by the VM at its interrupt points. After the deadline every further interrupt fails,
    /// so that a script cannot go on by catching the error.
    pub(super) fn tick(&self) -> mlua::Result<VmState> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        if !self.expired.get() {
            if !ticks.is_multiple_of(STRIDE) {
                return Ok(VmState::Continue);
            }
            let expired = self
                .until
                .get()
                .is_some_and(|until| Instant::now() >= until);
            self.expired.set(expired);
        }
        if self.expired.get() {
            return Err(time_is_up());
        }
        Ok(VmState::Continue)
    }

    /// Called before an operation that takes long and cannot be interrupted; aborts an inline call.
    pub(super) fn lengthy(&self) -> mlua::Result<()> {
        if self.bounds.get().is_some_and(|bounds| bounds.brief) {
            self.expired.set(true);
            return Err(time_is_up());
        }
        Ok(())
    }

    pub(super) fn room(&self) -> Room {
        self.bounds.get().map_or(ROOM, |bounds| bounds.room)
    }
}
