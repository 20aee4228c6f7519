//! The story of a staged rollout, behind a kube-apiserver.

use harness::kubectl::Kubectl;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::join_cluster;
use crate::aggregated::simulated_member::SimulatedMember;
use crate::flow::rollout_story::{MEMBERS, NAMESPACE, run_story};

// proves: ROL-stages, ROL-deadline, ROL-status, ROL-restart-pods
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_goes_through_twelve_members_behind_a_host() {
    let Some(_) = harness::tools(["kubectl-1.36"]) else {
        return;
    };
    let Some(control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    control_plane.wait_until_available().await;
    let (control, kubeconfig) = (&control_plane.client, &control_plane.host.kubeconfig);
    let mut members = Vec::new();
    for name in MEMBERS {
        let member = SimulatedMember::start(name).await;
        join_cluster(control, kubeconfig, name, &member.kubeconfig()).await;
        members.push(member);
    }
    let folder = control_plane.host.dir();
    tokio::task::block_in_place(|| {
        let kubectl = Kubectl::of_1_36(kubeconfig, folder, NAMESPACE).unwrap();
        run_story(&kubectl);
    });
}
