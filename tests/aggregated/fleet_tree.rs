//! The fleet tree through a kube-apiserver: templates of the host, and their copies in the members.

use serde_json::json;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::auth::grant_cluster_role;
use crate::aggregated::proxy::{LOOPBACK, connect};
use crate::aggregated::real_clusters::join_cluster;
use crate::aggregated::simulated_member::SimulatedMember;
use crate::flow::fleet_tree_watches::follow_a_template;

const TREE: &str = "/apis/search.karmada.io/v1alpha1/proxying/fleet-tree/proxy";
const USER: &str = "gitops";
const NAMESPACE: &str = "fleet-tree";

// proves: FLT-host
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_template_of_the_host_owns_a_tree() {
    let Some(control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    control_plane.wait_until_available().await;
    let (control, host) = (&control_plane.client, &control_plane.host);
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let mut members = Vec::new();
    for name in ["member1", "member2"] {
        let member = SimulatedMember::start(name).await;
        join_cluster(control, &host.kubeconfig, name, &member.kubeconfig()).await;
        grant_cluster_role(&member.server, USER, USER, &everything).await;
        members.push(member);
    }
    grant_cluster_role(control, USER, USER, &everything).await;
    control.create_namespace(NAMESPACE).await;
    let identity = host.client_certificate(USER, &["team"]);
    let client = || connect(&host.server, LOOPBACK, host.ca_pem(), &identity);
    follow_a_template(client, TREE, NAMESPACE).await;
}
