//! Karmada's user guide, followed alone.

use harness::FlotillaUpProcess;
use harness::kubectl::Kubectl;

use crate::cli::fixture::BINARY;
use crate::cli::guide_families::{FEATURE_GATES, NAMESPACE, follow_guide};

/// The control plane is its own: taints, quotas and interpreters of the guide change what others see.
#[tokio::test(flavor = "multi_thread")]
async fn the_guide_holds_alone() {
    let Some(_) = harness::tools(["kubectl-1.36"]) else {
        return;
    };
    let up = tokio::task::spawn_blocking(|| FlotillaUpProcess::start(BINARY, 2, &FEATURE_GATES));
    let up = up.await.unwrap();
    let kubeconfig = up.dir().join("kubeconfig");
    let kubectl = Kubectl::of_1_36(&kubeconfig, up.dir(), NAMESPACE).unwrap();
    let (control, members) = (up.control_plane(), up.members());
    follow_guide(kubectl, &control, [&members[0], &members[1]]).await;
}
