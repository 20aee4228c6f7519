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

/// Who leads, as the lease tells.
mod lease;

/// What everybody must have when a rollout is over.
mod rollout;

/// One process that loses the lease and wins it again.
mod terms;

/// A process that is told to stop.
mod shutdown;
