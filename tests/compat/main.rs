//! What others send that know Karmada or Kubernetes, and not us: the cluster proxy
//! byte by byte, and the requests of karmadactl as a table.
//!
//! Clusters are servers of the test, so that it sees what arrives there and says
//! what comes back; simulated clusters where their answers are enough.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

/// A running control plane.
mod plane;

/// The cluster proxy: requests, streams, who is told to ask, and refusals.
mod proxy;

/// The cluster proxy: upgrades.
mod tunnel;

/// Logs and commands of containers at simulated clusters.
mod containers;

/// What karmadactl sends.
mod karmadactl;

#[tokio::test(flavor = "multi_thread")]
async fn karmadactl_is_understood_by_a_plane_alone() {
    let planes = tokio::task::spawn_blocking(|| (plane::Plane::start(), plane::Plane::member()));
    let (control, member) = planes.await.unwrap();
    karmadactl::replay(&control.admin, &member.admin, "legacy1").await;
}
