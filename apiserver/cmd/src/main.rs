//! The binary `flotilla`: parses the command line and runs the command.
//!
//! flags ──► command ──► [`running_server::RunningServer`] (store, registry, HTTPS; standalone or aggregated) + controllers, until a signal
//!
//! Invariants: every task started here is joined here. Results go to standard output, logs
//! and errors to standard error. The exit code is 0 only if the command succeeded.

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

/// A write parses objects into trees: many small allocations, which are freed on other
/// threads. The C library's allocator takes a quarter of the CPU for them. Huge pages (a
/// feature of the crate) are off, since they would keep freed memory resident.
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
    // With two crypto providers in the binary rustls has no default, so set it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    figures::register(&version::current(), runtime.handle());
    let code = match runtime.block_on(cli.command.run()) {
        Ok(code) => code,
        Err(e) => output::failed(&e, format),
    };
    // Tasks that a failed start leaves behind end with the process.
    runtime.shutdown_background();
    code
}
