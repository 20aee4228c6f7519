//! The members: API servers in this process, on one port with TLS and HTTP/2, each below a path of its
//! own, which keep what is written to them.
//!
//! request ──► [`request`] (path and query) ──► [`api_server`] ──► [`store`] ──► watches and [`FleetProgress`]

mod api_server;
mod discovery;
mod fleet;
mod progress;
mod request;
mod store;
mod workload_status;

pub(crate) use fleet::{MEMBER_THREADS, SimulatedFleet};
pub(crate) use progress::{FleetProgress, ROUND_LABEL};
