//! The containers of hollow pods, in which no process runs: a container logs a line each
//! second, and a session with it echoes its input.
//!
//! request ──► [`container`]: pod and container ──► [`log`]: lines generated from the time
//!                                             ├──► [`exec`]: a session over [`spdy`] that echoes
//!                                             ├──► [`port_forward`]: connections over [`spdy`] that echo
//!                                             └──► [`websocket`]: both over WebSocket
//!
//! Errors have the texts of kubelet and kube-apiserver.

mod container;
mod exec;
mod log;
mod port_forward;
mod spdy;
mod websocket;

pub use container::StartedContainer;
pub use exec::{
    CHANNEL_PROTOCOL, PROTOCOL_HEADER, PodExecOptions, SPDY_PROTOCOL, negotiate_spdy_protocol,
    run_session,
};
pub use log::{PodLogOptions, PodLogStream};
pub use port_forward::{PORT_FORWARD_PROTOCOL, check_pod_running, run_port_forward};
pub use websocket::{
    EXEC_SUBPROTOCOLS, PORT_FORWARD_CHANNELS, PORT_FORWARD_TUNNEL, parse_forwarded_ports,
    run_websocket_port_forward, run_websocket_session,
};
