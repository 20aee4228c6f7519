//! How long a script may run, and what may take long meanwhile.
//!
//! Enters: the limits of a call. Leaves: whether the script goes on.

use std::cell::Cell;
use std::time::{Duration, Instant};

use mlua::VmState;

use super::Limits;
use super::convert::{ROOM, Room};

/// How many instructions at which a script may be stopped pass between two looks at
/// the clock.
const STRIDE: u32 = 4;

/// What a brief call has, on a thread that has other things to do.
const BRIEF: Duration = Duration::from_millis(2);
const BRIEF_ROOM: Room = Room {
    values: 10_000,
    text: 1 << 20,
};

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    pub(super) room: Room,
    /// It is made again elsewhere if it fails.
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
    mlua::Error::runtime("the time is up")
}

/// Of the call that is under way.
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

    /// Tells whether the time was up before.
    pub(super) fn end(&self) -> bool {
        self.until.set(None);
        self.bounds.set(None);
        self.expired.get()
    }

    /// Once the time is up every further step fails, so that no script goes on by
    /// catching the error.
    pub(super) fn tick(&self) -> mlua::Result<VmState> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        if !self.expired.get() {
            if !ticks.is_multiple_of(STRIDE) {
                return Ok(VmState::Continue);
            }
            let up = self
                .until
                .get()
                .is_some_and(|until| Instant::now() >= until);
            self.expired.set(up);
        }
        if self.expired.get() {
            return Err(time_is_up());
        }
        Ok(VmState::Continue)
    }

    /// The script is about to do what takes long.
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
