//! All scenarios in one aggregated control plane with real clusters as members, from the first
//! start to restarts of each component.

use crate::behind::Behind;
use crate::world::{Members, join};
use crate::{adopted, collection, kubectl, propagation, restarts};

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_control_plane_lifecycle() {
    let Some(mut behind) = Behind::start_on_etcd().await else {
        return;
    };
    let Some(members) = Members::start().await else {
        return;
    };
    behind.until_available().await;
    for member in &members.all {
        join(&behind.control, &behind.host.kubeconfig, member).await;
    }
    kubectl::story(&behind).await;
    propagation::story(&behind.control, &members, "behind").await;
    adopted::story(&behind.control, &members, "adopted-behind").await;
    collection::story(&mut behind, &members).await;
    behind.stop();
    behind.run();
    behind.until_available().await;
    restarts::story(&mut behind, &members).await;
}
