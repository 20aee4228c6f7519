//! The binary: reads the command line, wires the rooms, and runs.
//!
//! flags ──► command ──► [`plane::Plane`] (store, registry, HTTPS; standalone or aggregated) + controllers ──► signals end it
//!
//! Invariants: every task started here is joined here. What a person reads goes to
//! standard output, logs and errors to standard error; the exit code is 0 only
//! when the command did what it says.

mod aggregated;
mod cli;
mod columns;
mod completion;
mod containers;
mod control;
mod controllers;
mod decision;
mod demo;
mod encryption;
mod engine;
mod estimators;
mod figures;
mod files;
mod flag_modes;
mod fleet;
mod gates;
mod install;
mod interpret;
mod join;
mod keys;
mod leadership;
mod links;
mod listen;
mod logs;
mod member;
mod named;
mod output;
mod plan;
mod plane;
mod renewal;
mod scheduling;
mod scripts;
mod secret_access;
mod serve;
mod signals;
mod standalone;
mod startup;
mod store_events;
mod templates;
mod unjoin;
mod up;
mod version;
mod webhooks;
mod why;

use std::process::ExitCode;

use clap::Parser;
use machinery::duration;
use mimalloc::MiMalloc;

/// Objects become trees for the time of a write: many small allocations, which end on
/// other threads than they began. The C library's allocator spends a quarter of the
/// CPU on them. Without huge pages (a feature of the crate), which would keep what is
/// freed resident.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let format = cli.command.logging_format();
    logs::init(cli.verbosity, format);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => {
            return output::failed(&anyhow::anyhow!("cannot start the runtime: {e}"), format);
        }
    };
    // Two crypto providers would make rustls refuse to choose; name ours once.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    figures::register(&version::current(), runtime.handle());
    let code = match runtime.block_on(cli.command.run()) {
        Ok(code) => code,
        Err(e) => output::failed(&e, format),
    };
    // What a failed start leaves behind ends with the process, without a word.
    runtime.shutdown_background();
    code
}
