//! The benchmarks: they measure the real binary and compare each measurement with its limit.
//!
//! processes (`serve`, `member`, `up`) ──► load from here ──► /proc and responses ──► one JSON line per measurement
//!
//! The server under test is always a separate process, so that its CPU time and memory are
//! the kernel's numbers and exclude the cost of measuring. Only `detector` and `scripts`
//! measure one crate each in this process. Arguments select groups by name; without
//! arguments all groups run. The exit code is 0 when all measurements are within their limits.

mod behind;
mod cold;
mod create;
mod detector;
mod failover;
mod figure;
mod fleet;
mod flow;
mod idle;
mod kubeconfig;
mod list;
mod objects;
mod percentiles;
mod process;
mod restart;
mod scripts;
mod seen;
mod user;
mod watchers;
mod wire;

use std::process::ExitCode;

use figure::Report;
use mimalloc::MiMalloc;

/// The allocator of the binary, for the crates that are measured in this process.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The name of a group and its function; a group shares one set of processes.
type Group = (&'static str, fn(&mut Report) -> anyhow::Result<()>);

const GROUPS: [Group; 11] = [
    ("up", idle::up),
    ("idle", idle::serve),
    ("list", list::run),
    ("watchers", watchers::run),
    ("create", create::run),
    ("detector", detector::run),
    ("scripts", scripts::run),
    ("fleet", fleet::run),
    ("cold", cold::run),
    ("failover", failover::run),
    ("behind", behind::run),
];

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // cargo passes flags of its own test harness.
    let selected: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut report = Report::default();
    for (name, run) in GROUPS {
        if !selected.is_empty() && !selected.iter().any(|s| s == name) {
            continue;
        }
        if let Err(e) = run(&mut report) {
            report.failed(name, &e);
        }
    }
    report.end()
}
