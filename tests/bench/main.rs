//! The figures the project promises, measured on the real binary.
//!
//! processes (`serve`, `member`, `up`) ──► load from here ──► /proc and replies ──► one JSON line per figure
//!
//! Invariants: the server under test is always a process of its own, so its CPU
//! time and memory are the kernel's numbers; what a figure costs here is not in
//! them (`detector` and `scripts` alone measure one room each). Arguments select groups
//! by name; none means all. The exit code is 0 when all that ran is within its limit.

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

/// The binary's own, for the rooms that are measured in this process.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A group shares one set of processes.
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
    // cargo hands on flags of its own test harness.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut report = Report::default();
    for (name, run) in GROUPS {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        if let Err(e) = run(&mut report) {
            report.failed(name, &e);
        }
    }
    report.end()
}
