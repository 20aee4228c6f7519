//! A standalone control plane with real clusters as its members.

use harness::daemon::Kept;
use harness::objects::CLUSTERS;
use harness::{Process, Server};

use crate::world::{BINARY, Members, flotilla, join, path};
use crate::{adopted, completed, propagation};

#[tokio::test(flavor = "multi_thread")]
async fn real_clusters_as_members() {
    let Some(members) = Members::start().await else {
        return;
    };
    let dir = Kept::new();
    let data = path(dir.path());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let (_process, _) = Process::start(BINARY, &arguments, &dir.path().join("log"));
    let kubeconfig = dir.path().join("kubeconfig");
    let control = Server::connect("control plane", &kubeconfig);
    for member in &members.all {
        join(&control, &kubeconfig, member).await;
    }
    propagation::story(&control, &members, "alone").await;
    completed::story(&control, &members, "completed").await;
    adopted::story(&control, &members, "adopted").await;
    for member in &members.all {
        let control_config = path(&kubeconfig);
        let member_config = path(&member.cluster.kubeconfig);
        let arguments = [
            "unjoin",
            member.name,
            "--cluster-kubeconfig",
            &member_config,
            "--kubeconfig",
            &control_config,
        ];
        flotilla(&arguments).await;
        control.until_gone(&CLUSTERS, "", member.name).await;
    }
}
