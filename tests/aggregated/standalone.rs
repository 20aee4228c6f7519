//! A standalone control plane with real clusters as its members.

use harness::daemon::TestDir;
use harness::objects::CLUSTERS;
use harness::{ApiServerClient, ServerProcess};

use crate::aggregated::real_clusters::{
    BINARY, RealMemberClusters, join, path_string, run_flotilla,
};
use crate::aggregated::{conflict_resolution, propagation_scenario, retention};

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn real_clusters_as_members() {
    let Some(members) = RealMemberClusters::start().await else {
        return;
    };
    let dir = TestDir::new();
    let data = path_string(dir.path());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let (_process, _) = ServerProcess::start(BINARY, &arguments, &dir.path().join("log"));
    let kubeconfig = dir.path().join("kubeconfig");
    let control = ApiServerClient::connect("control plane", &kubeconfig);
    for member in &members.all {
        join(&control, &kubeconfig, member).await;
    }
    propagation_scenario::run_scenario(&control, &members, "alone").await;
    retention::run_scenario(&control, &members, "completed").await;
    conflict_resolution::run_scenario(&control, &members, "adopted").await;
    for member in &members.all {
        let control_config = path_string(&kubeconfig);
        let member_config = path_string(&member.cluster.kubeconfig);
        let arguments = [
            "unjoin",
            member.name,
            "--cluster-kubeconfig",
            &member_config,
            "--kubeconfig",
            &control_config,
        ];
        run_flotilla(&arguments).await;
        control.wait_until_deleted(&CLUSTERS, "", member.name).await;
    }
}
