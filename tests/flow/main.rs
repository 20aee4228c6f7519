//! Policy in, objects in members, status back: the real binary with simulated
//! members, asked over HTTPS as a client would.
//!
//! Stories share one `flotilla up --members 3` and live in namespaces of their
//! own; those that kill processes have their own. Nothing sleeps: a story waits
//! until what it wants to see is there, and shows the last it saw when it is not.
#![expect(clippy::unwrap_used, reason = "a test ends where its machine fails it")]

/// A control plane with members, and how to ask them.
mod fleet;

use harness::objects;

/// A Deployment from its creation to its deletion.
mod lifecycle;

/// In which order things are written.
mod order;

/// Policies that change, compete and go.
mod policies;

/// Policies that take from others.
mod preemption;

/// Configuration that follows what refers to it.
mod dependents;

/// Copies that differ from cluster to cluster.
mod overrides;

/// Works that are held, evicted, kept and let go.
mod works;

/// Members whose objects are edited, taken or to be left alone.
mod drift;

/// Kinds other than Deployments.
mod kinds;

/// Kinds of users whose meaning scripts tell.
mod customizations;

/// Kinds of users whose meaning webhooks tell.
mod webhooks;

/// Namespaces in all members.
mod namespaces;

/// Where things may go, and what is said when they cannot.
mod placing;

/// Room by nodes, where that is asked for.
mod estimates;

/// Quotas over all members, workloads placed anew and workloads that members scale.
mod quotas;

/// Why bindings are where they are, and who may know.
mod decisions;

/// `flotilla why` and `flotilla plan`.
mod questions;

/// What is told of scheduling in numbers.
mod figures;

/// A member that dies, comes back and leaves.
mod outage;

/// What becomes of copies when their cluster fails.
mod failover;

/// A control plane that is killed under load.
mod crash;
