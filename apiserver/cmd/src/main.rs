//! The binary `flotilla`: parses the command line and runs the command.
//!
//! flags ──► command ──► [`running_server::RunningServer`] (store, registry, HTTPS; standalone or aggregated) + controllers, until a signal
//!
//! Invariants: every task started here is joined here. Results go to standard output, logs
//! and errors to standard error. The exit code is 0 only if the command succeeded.

mod agent;
mod agent_endpoints;
mod agent_flags;
mod agent_leader_election;
mod aggregated;
mod audit_flags;
mod authentication_flags;
mod authorization_flags;
mod backup;
mod certificate_files;
mod cli;
mod cluster_flags;
mod controller_flags;
mod controller_manager;
mod data_dir_metrics;
mod demo;
mod estimator_flags;
mod estimator_server;
mod federated_hpa_flags;
mod file_changes;
mod flag_modes;
mod leader_election;
mod listener;
mod logs;
mod member;
mod name_resolution_detector;
mod process_metrics;
mod renewal;
mod request_limit_flags;
mod restore;
mod rollout_flags;
mod running_server;
mod script_flags;
mod serve;
mod service_account_keys;
mod signals;
mod standalone;
mod startup;
mod storage_engine;
mod store_events;
mod takeover_phases;
mod takeover_watches;
mod template_flags;
#[cfg(test)]
mod tests;
mod tracing_flags;
mod up;
mod version;
mod watch_cache_config;

use std::process::ExitCode;
use std::thread::{Builder, JoinHandle};

use machinery::json::THREAD_STACK_BYTES;
use mimalloc::MiMalloc;

/// A write parses objects into trees: many small allocations, which are freed on other
/// threads. The C library's allocator takes a quarter of the CPU for them. Huge pages (a
/// feature of the crate) are off, since they would keep freed memory resident.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The first thread's stack has the size that the shell allows.
    let thread = Builder::new()
        .name("main".into())
        .stack_size(THREAD_STACK_BYTES);
    let started = thread.spawn(run);
    let ended = started.map(JoinHandle::join);
    // A panic was reported when it happened.
    ended.map_or(ExitCode::FAILURE, |ended| {
        ended.unwrap_or(ExitCode::from(101))
    })
}

fn run() -> ExitCode {
    // With two crypto providers in the binary rustls has no default, so set it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if cli::answer_shell() {
        return ExitCode::SUCCESS;
    }
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let format = cli.command.logging_format();
    logs::init(cli.verbosity, format);
    let runtime = match cli.command.runtime() {
        Ok(runtime) => runtime,
        Err(e) => {
            return logs::print_error(&anyhow::anyhow!("cannot start the runtime: {e}"), format);
        }
    };
    process_metrics::register(&version::current(), runtime.handle());
    let code = match runtime.block_on(cli.command.run()) {
        Ok(code) => code,
        Err(e) => logs::print_error(&e, format),
    };
    // Tasks that a failed start leaves behind end with the process.
    runtime.shutdown_background();
    code
}
