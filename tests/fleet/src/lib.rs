//! The benchmark of a control plane with a large fleet: `cargo bench -p flotilla --bench fleet -- SIZE`.
//!
//! [`FleetSize`] ──► [`load`] (an ordinary client) ──► the server, a process of its own ──► [`members`] (threads of this process)
//!                                                              └──► [`FleetReport`]: one JSON line per figure
//!
//! Invariants: load and members have threads of their own, so that the CPU time of each is the kernel's
//! number. Members keep what is written to them and nothing else: their cost does not hide the server's.
//!
//! Entry point: [`run`].

mod arguments;
mod benchmark;
mod load;
mod members;
mod reference_loop;
mod report;
mod resource_usage;
mod server;
mod single_changes;
mod sizes;
mod verification;

pub use arguments::FleetArguments;
pub use benchmark::run;
pub use report::FleetReport;
pub use sizes::FleetSize;
