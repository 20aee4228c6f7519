//! The flags for the limits of Lua scripts in ResourceInterpreterCustomizations.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use interpreter::{InterpreterOperation, LuaLimits};
use machinery::duration;

/// The limits of one call of a script.
#[derive(Args, Clone)]
#[group(id = "scripts")]
#[command(next_help_heading = "Interpreter flags")]
pub(crate) struct ScriptLimitArgs {
    /// The timeout of one call of a customization's script.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        value_parser = duration::parse
    )]
    lua_deadline: Duration,
    /// The memory limit of one call in MiB, in addition to the memory for its arguments.
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    lua_memory: u16,
    /// The additional memory limit of one call, in bytes per byte of its arguments.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    lua_memory_per_byte: u16,
}

impl ScriptLimitArgs {
    pub(crate) fn limits(&self) -> LuaLimits {
        LuaLimits {
            deadline: self.lua_deadline,
            memory: usize::from(self.lua_memory) << 20,
            memory_per_argument_byte: self.lua_memory_per_byte.into(),
        }
    }
}

/// The validation of scripts for admission. Scripts of unknown fields pass; the validation
/// of fields rejects those.
pub(crate) fn script_validator(limits: LuaLimits) -> admission::CustomizationScriptValidator {
    Arc::new(
        move |field, script| match InterpreterOperation::from_customization_field(field) {
            Some(operation) => interpreter::check(operation, script, limits),
            None => Ok(()),
        },
    )
}
