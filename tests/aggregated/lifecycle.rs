//! All scenarios in one aggregated control plane with real clusters as members, from the first
//! start to restarts of each component.

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{RealMemberClusters, join};
use crate::aggregated::{
    conflict_resolution, garbage_collection, kubectl, propagation_scenario, restarts,
};

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn aggregated_control_plane_lifecycle() {
    // The members start when it is this control plane's turn.
    let Some(mut control_plane) = AggregatedControlPlane::start_on_etcd().await else {
        return;
    };
    let Some(members) = RealMemberClusters::start().await else {
        return;
    };
    control_plane.wait_until_available().await;
    for member in &members.all {
        join(
            &control_plane.client,
            &control_plane.host.kubeconfig,
            member,
        )
        .await;
    }
    kubectl::run_scenario(&control_plane).await;
    propagation_scenario::run_scenario(&control_plane.client, &members, "behind").await;
    conflict_resolution::run_scenario(&control_plane.client, &members, "adopted-behind").await;
    garbage_collection::run_scenario(&mut control_plane, &members).await;
    control_plane.stop();
    control_plane.start_flotilla();
    control_plane.wait_until_available().await;
    restarts::run_scenario(&mut control_plane, &members).await;
}
