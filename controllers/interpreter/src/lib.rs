//! The resource interpreter: tells the controllers how many replicas a template asks for and what one
//! needs, whether an object is healthy, what it depends on, which part of its status is collected, and
//! how the statuses of all clusters are aggregated.
//!
//! object ──► [`ResourceInterpreter`] ──► Lua script of a ResourceInterpreterCustomization ([`lua`]), else [`webhook`], else built-in rule ──► decision
//!
//! Rules are pure and synchronous: they do no I/O and read no clock (time is an argument). Only the
//! interface is asynchronous, because scripts and webhooks run elsewhere. The caller passes in the
//! HTTP client for webhooks ([`WebhookInterpreterOptions`]). Only [`native`], [`thirdparty`] and
//! [`partition`] branch on the kind of an object.
//!
//! Entry point: [`ResourceInterpreter`].

mod built_in;
#[cfg(test)]
mod case_tables;
mod config_manager;
mod customizations;
mod declarative;
mod empty_values;
mod error;
#[cfg(test)]
mod fuzz;
mod interpreter;
mod lua;
mod native;
mod operation;
mod partition;
mod replica_requirements;
mod rule_change;
mod script_result;
#[cfg(test)]
mod tests;
mod thirdparty;
mod webhook;

pub use error::Error;
pub use interpreter::ResourceInterpreter;
pub use lua::{LuaLimits, check};
pub use native::TemplateReplicas;
pub use operation::InterpreterOperation;
pub use rule_change::InterpreterRuleChange;
pub use webhook::{ApplyJsonPatch, WebhookInterpreterOptions};
