//! What the scripts of ResourceInterpreterCustomizations may do.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use interpreter::{Limits, Operation};

use crate::duration;

/// How long and how large a script may be.
#[derive(Args, Clone)]
#[group(id = "scripts")]
pub(crate) struct Flags {
    /// How long a call of a customization's script may take.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        value_parser = duration::parse
    )]
    lua_deadline: Duration,
    /// How much memory a call may take, in MiB, beside what its arguments need.
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    lua_memory: u16,
    /// How much memory a call may take for each byte of its arguments, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    lua_memory_per_byte: u16,
}

impl Flags {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            deadline: self.lua_deadline,
            memory: usize::from(self.lua_memory) << 20,
            per_byte: self.lua_memory_per_byte.into(),
        }
    }
}

/// How admission judges a script. A field of which nothing is known has no function to
/// look for; that it is not known is said elsewhere.
pub(crate) fn compile(limits: Limits) -> admission::Compile {
    Arc::new(move |field, script| match Operation::of_field(field) {
        Some(operation) => interpreter::check(operation, script, limits),
        None => Ok(()),
    })
}
