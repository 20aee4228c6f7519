//! The commands of `flotilla` that only talk to a server, or to none: `why`, `plan`,
//! `interpret`, `join`, `unjoin`, `install`, `uninstall` and `completion`. The binary adds
//! them to its command line.
//!
//! flags ──► [`kubeconfig_flags`] ──► `client::Api` ──► the controllers' own decisions ──► [`printers`] ──► [`output`]
//!
//! Results go to standard output, progress and errors to standard error.

pub mod completion;
pub mod feature_gate_flags;
pub mod install;
pub mod interpret;
pub mod join;
mod kubeconfig_flags;
mod manifest_files;
mod object_lists;
pub mod output;
pub mod plan;
mod printers;
mod resource_args;
pub mod scheduler_flags;
pub mod unjoin;
pub mod why;
