//! High availability: leader election, failover, shared keys, and restarts that clients do not
//! notice.
//!
//! Replicas and members are processes of their own, which tests call over HTTPS as clients do.
//! A test polls until the expected state is reached; when it times out, the panic shows the
//! last state.

/// Processes of the binary: replicas and members.
pub(crate) mod flotilla_process;

/// Two replicas on one etcd.
mod replica_pair;

/// The leader election lease.
mod lease;

/// A watch client that records its events.
mod watch_history;

/// The expected objects after a rollout.
mod rollout;

/// One process that loses the lease and acquires it again.
mod leader_terms;

/// Graceful shutdown.
mod shutdown;

/// Consistency between two replicas.
mod consistency;

/// A leader that is killed, or suspended, in the middle of a rollout.
mod failover;

/// Rolling restarts under load.
mod rolling_restart;

/// The tunnels of an agent to both replicas.
mod agent_tunnels;
