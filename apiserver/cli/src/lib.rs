//! The commands of `flotilla` that only talk to servers, or to none: those of karmadactl,
//! `why`, `plan`, `mcp`, `adopt`, `rename`, `replace`, `takeover`, `install` and `uninstall`. The
//! binary adds them to its command line, and `flotilla console` calls some of their functions.
//!
//! flags ──► [`kubeconfig_flags`] ──► `client::Api` ──► the controllers' own decisions ──► [`printers`] ──► [`output`]
//!
//! Results go to standard output, progress and errors to standard error.

pub mod addons;
pub mod adopt;
pub mod apply;
mod cluster_taints;
pub mod completion;
pub mod conflicts;
pub mod convert;
pub mod cordon;
mod default_image;
mod discovery;
pub mod doctor;
pub mod drain;
#[cfg(test)]
pub mod example_command;
pub mod feature_gate_flags;
pub mod field_differences;
pub mod get;
pub mod history;
pub mod install;
pub mod interpret;
pub mod join;
pub mod kubeconfig_flags;
mod kubectl;
pub mod kubectl_commands;
pub mod man;
mod manifest_files;
pub mod mcp;
mod member_clusters;
mod namespace_gate;
mod object_lists;
mod operation_scope;
pub mod orphan;
pub mod output;
mod override_differences;
pub mod placement_text;
pub mod plan;
mod printers;
pub mod promote;
pub mod rebalance;
pub mod register;
pub mod rename;
pub mod replace;
mod resource_args;
pub mod rollout;
pub mod scheduler_flags;
pub mod taint;
pub mod takeover;
pub mod token;
pub mod top;
mod type_configs;
pub mod unjoin;
pub mod unregister;
pub mod why;
