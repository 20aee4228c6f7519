//! The benchmarks: they measure the real binary and compare each measurement with its limit.
//!
//! processes (`serve`, `member`, `up`) ──► load from here ──► /proc and responses ──► one JSON line per measurement
//!
//! The server under test is always a separate process, so that its CPU time and memory are
//! the kernel's numbers and exclude the cost of measuring. Only `detector`, `scripts`
//! and `search` measure one crate each in this process. Arguments select groups by name; without
//! arguments all groups run. The exit code is 0 when all measurements are within their limits.

mod aggregated_mode;
mod arguments;
mod autoscalers;
mod cold_start;
mod console_pages;
mod controller_writes;
mod create_rate;
mod detector;
mod endpoint_slices;
mod fairness;
mod fleet;
mod fleet_deliveries;
mod fleet_view;
mod generated_fleet;
mod generated_pods;
mod generated_servers;
mod http2_connection;
mod http_connection;
mod kubeconfig;
mod large_member;
mod list_latency;
mod lua_scripts;
mod managed_fields;
mod measured_process;
mod measurement;
mod member_failover;
mod member_watches;
mod objects;
mod percentiles;
mod propagation_latency;
mod pull_members;
mod restart;
mod search_cache;
mod search_endpoint;
mod service_account;
mod shared_fleet;
mod side_by_side;
mod startup_and_idle;
mod unused_families;
mod watch_fanout;

use std::process::ExitCode;

use measurement::MeasurementRecorder;
use mimalloc::MiMalloc;

/// The allocator of the binary, for the crates that are measured in this process.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The name of a group and its function; a group shares one set of processes.
type BenchGroup = (
    &'static str,
    fn(&mut MeasurementRecorder) -> anyhow::Result<()>,
);

const GROUPS: [BenchGroup; 23] = [
    ("up", startup_and_idle::measure_up),
    ("idle", startup_and_idle::measure_serve),
    ("unused", unused_families::run),
    ("list", list_latency::run),
    ("watchers", watch_fanout::run),
    ("create", create_rate::run),
    ("managers", managed_fields::run),
    ("writes", controller_writes::run),
    ("fairness", fairness::run),
    ("detector", detector::run),
    ("scripts", lua_scripts::run),
    ("fleet", shared_fleet::run),
    ("cold", cold_start::run),
    ("failover", member_failover::run),
    ("pull", pull_members::run),
    ("large", large_member::run),
    ("autoscalers", autoscalers::run),
    ("endpoints", endpoint_slices::run),
    ("search", search_cache::run),
    ("fleet-view", fleet_view::run),
    ("console", console_pages::run),
    ("behind", aggregated_mode::run),
    ("compare", side_by_side::run),
];

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // cargo passes flags of its own test harness.
    let selected: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut report = MeasurementRecorder::default();
    for (name, run) in GROUPS {
        if !selected.is_empty() && !selected.iter().any(|s| s == name) {
            continue;
        }
        if let Err(e) = run(&mut report) {
            report.record_failure(name, &e);
        }
    }
    report.finish()
}
