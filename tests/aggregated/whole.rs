//! All scenarios in one aggregated control plane with real clusters as members, from the first
//! start to restarts of each component.

use crate::behind::Behind;
use crate::world::{Members, join};
use crate::{adopted, collection, kubectl, propagation, restarts};

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_control_plane_lifecycle() {
    let Some(mut control_plane) = Behind::start_on_etcd().await else {
        return;
    };
    let Some(members) = Members::start().await else {
        return;
    };
    control_plane.until_available().await;
    for member in &members.all {
        join(
            &control_plane.control,
            &control_plane.host.kubeconfig,
            member,
        )
        .await;
    }
    kubectl::story(&control_plane).await;
    propagation::story(&control_plane.control, &members, "behind").await;
    adopted::story(&control_plane.control, &members, "adopted-behind").await;
    collection::story(&mut control_plane, &members).await;
    control_plane.stop();
    control_plane.run();
    control_plane.until_available().await;
    restarts::story(&mut control_plane, &members).await;
}
