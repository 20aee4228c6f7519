//! Tunnels from agents: the control plane sends requests to a member over a connection that
//! the member's agent has opened.
//!
//! agent ──POST …/attach, Upgrade──► control plane; then HTTP/2 on the same bytes with the roles
//! reversed: [`TunnelClient`] in the control plane, [`TunnelServer`] in the agent. Where a proxy
//! refuses that upgrade, the bytes are the messages of a WebSocket.
//!
//! An upgrade (exec, port-forward) is one stream opened by extended CONNECT (RFC 8441). HTTP/2
//! bounds the streams and what each has in flight; no body is collected.

mod client;
mod dial;
mod server;
mod websocket;

pub use client::TunnelClient;
pub use dial::{TunnelDialError, TunnelDialer, TunnelStream};
pub use server::TunnelServer;
pub use websocket::{TUNNEL_WEBSOCKET_SUBPROTOCOL, WebSocketRole, websocket_byte_stream};

/// The protocol that an agent asks to upgrade to.
pub const TUNNEL_PROTOCOL: &str = "flotilla-tunnel";
/// In the agent's request the replicas to which it has tunnels; in the response the replica
/// that has accepted one.
pub const TUNNEL_REPLICA_HEADER: &str = "flotilla-tunnel-replica";
/// The most requests, watches and upgrades in flight in a tunnel.
pub const MAX_TUNNEL_STREAMS: u32 = 256;

/// The method of the request that an extended CONNECT stands for.
const UPGRADE_METHOD_HEADER: &str = "flotilla-upgrade-method";
