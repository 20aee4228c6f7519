//! The containers of hollow pods, in which no process runs: a container logs a line each
//! second, and a session with it echoes its input.
//!
//! request ──► [`container`]: pod and container ──► [`log`]: lines generated from the time
//!                                             ├──► [`exec`]: a session over [`spdy`] that echoes
//!                                             └──► [`port_forward`]: connections over [`spdy`] that echo
//!
//! Errors have the texts of kubelet and kube-apiserver.

mod container;
mod exec;
mod log;
mod port_forward;
mod spdy;

pub use container::StartedContainer;
pub use exec::{
    CHANNEL_PROTOCOL, PROTOCOL_HEADER, PodExecOptions, SPDY_PROTOCOL, negotiate_protocol,
    run_session,
};
pub use log::{PodLogOptions, PodLogStream};
pub use port_forward::{PORT_FORWARD_PROTOCOL, check_pod_running, run_port_forward};
