//! Several processes that could run the controllers, one that does; keys that they
//! share; and a process that goes without anybody noticing.
//!
//! Replicas and members are processes of their own, asked over HTTPS as a client
//! would. A story waits until what it wants to see is there, and shows the last it
//! saw when it is not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

/// Processes of the binary: replicas and members.
mod processes;

/// Two replicas on one etcd.
mod pair;

/// Who leads, as the lease tells.
mod lease;

/// What a client sees that follows a resource.
mod history;

/// What everybody must have when a rollout is over.
mod rollout;

/// One process that loses the lease and wins it again.
mod terms;

/// A process that is told to stop.
mod shutdown;

/// What holds between two replicas at any time.
mod together;

/// A leader that dies, or sleeps, in the middle of a rollout.
mod failover;

/// Both replicas are restarted in turn, under load.
mod rolling;
