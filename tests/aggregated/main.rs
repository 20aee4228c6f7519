//! Flotilla among real components: etcd, kube-apiservers and
//! kube-controller-managers of its host and of its members, on loopback.
//!
//! Stories take the control plane they are told at: alone, or behind its host.
//! Nothing sleeps: a story waits until what it wants to see is there, and shows
//! the last it saw when it is not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

/// 503 instead of 404.
mod unready;

/// Clusters of real components.
mod world;

/// What karmadactl sends.
#[path = "../compat/karmadactl.rs"]
mod karmadactl;

/// Clusters through the proxy of a control plane behind its host.
mod proxy;

/// Policy in, objects in members, status back on the template.
mod propagation;

/// What real members add to objects stays with them.
mod completed;

/// Objects that members have already.
mod adopted;

/// Alone, with members that are real clusters.
mod alone;

/// A control plane behind its host.
mod behind;

/// Exchanges by hand, with any certificate and any header.
mod wire;

/// Who is believed, and who may.
mod auth;

/// kubectl at the host, for what Flotilla serves.
mod kubectl;

/// Owners, namespaces, and a garbage collector that must not be misled.
mod collection;

/// Failures in turn, under load.
mod restarts;

/// All of it together, in the order of an operator's days.
mod whole;

/// Registered, available, discovered; also while certificates change.
mod registration;

/// Karmada's definitions on the host.
mod definitions;

/// Templates that a host keeps.
mod templates;

/// Templates that a host runs itself.
mod workloads;

/// The host's admission webhooks, called for our kinds.
mod webhooks;
