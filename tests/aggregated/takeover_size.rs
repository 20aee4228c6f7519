//! The takeover of a Karmada with thousands of bindings in twenty clusters, and the way back.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use harness::ApiServerClient;
use harness::api_server_client::find_condition;
use harness::objects::{BINDINGS, config_map};
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::karmada_records::{WRITERS, become_karmada};
use crate::aggregated::real_clusters::{join_cluster, path_string, run_flotilla};
use crate::aggregated::simulated_member::SimulatedMember;
use crate::aggregated::takeover::{NS, member_versions, uids};

const CLUSTERS: usize = 20;
const TEMPLATES: usize = 2_000;
/// The clusters that each template is in.
const COPIES: usize = 2;

// proves: TKO-identity, TKO-no-member-write, TKO-back
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_large_karmada_is_taken_over_and_given_back() {
    let Some(mut plane) = AggregatedControlPlane::start().await else {
        return;
    };
    plane.wait_until_available().await;
    let members = join_members(&plane).await;
    create_templates(&plane.client).await;
    wait_until_applied(&plane.client).await;
    become_karmada(&mut plane).await;
    let records = uids(&plane.client).await;
    let copies = copies(&members).await;
    // Each namespace has the root certificate of its cluster, too.
    assert_eq!(copies.len(), TEMPLATES * COPIES + CLUSTERS);

    plane.start_flotilla_with(&["--await-takeover"]);
    let kubeconfig = path_string(&plane.host.kubeconfig);
    let dir = tempfile::tempdir().unwrap();
    let backup = path_string(&dir.path().join("karmada.json"));
    let common = ["takeover", "--kubeconfig", &kubeconfig, "--backup", &backup];
    for arguments in [["--watch", "2s"].as_slice(), &["--back"]] {
        let start = Instant::now();
        run_flotilla(&[&common, arguments].concat()).await;
        println!("takeover {arguments:?}: {:?}", start.elapsed());
        assert_eq!(uids(&plane.client).await, records);
        assert_eq!(self::copies(&members).await, copies);
    }
}

async fn join_members(plane: &AggregatedControlPlane) -> Vec<SimulatedMember> {
    let mut members = Vec::new();
    for n in 0..CLUSTERS {
        let name = cluster_name(n);
        let member = SimulatedMember::start(&name).await;
        let kubeconfig = member.kubeconfig();
        join_cluster(&plane.client, &plane.host.kubeconfig, &name, &kubeconfig).await;
        members.push(member);
    }
    members
}

fn cluster_name(n: usize) -> String {
    format!("m{}", n % CLUSTERS + 1)
}

/// Creates the templates and a policy for each group of them, which lies in the same clusters.
async fn create_templates(control: &ApiServerClient) {
    control.create_namespace(NS).await;
    for group in 0..CLUSTERS {
        let clusters: Vec<String> = (group..group + COPIES).map(cluster_name).collect();
        let selector = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "labelSelector": {"matchLabels": {"group": group.to_string()}}});
        let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": format!("group-{group}"), "namespace": NS},
            "spec": {"resourceSelectors": [selector],
                "placement": {"clusterAffinity": {"clusterNames": clusters}}}});
        control.create(policy).await;
    }
    let templates = (0..TEMPLATES).map(|n| {
        let mut template = config_map(NS, &format!("c{n}"), "1");
        template["metadata"]["labels"] = json!({"group": (n % CLUSTERS).to_string()});
        async { drop(control.create(template).await) }
    });
    let templates = stream::iter(templates).buffer_unordered(WRITERS);
    templates.collect::<()>().await;
}

async fn wait_until_applied(control: &ApiServerClient) {
    let is_applied = |b: &Value| find_condition(b, "FullyApplied")["status"] == "True";
    for n in 0..TEMPLATES {
        let binding = format!("c{n}-configmap");
        control
            .wait_until(&BINDINGS, NS, &binding, "applied", is_applied)
            .await;
    }
}

/// The versions of the copies in all members.
async fn copies(members: &[SimulatedMember]) -> BTreeMap<String, String> {
    let mut copies = BTreeMap::new();
    for (n, member) in members.iter().enumerate() {
        let versions = member_versions(member).await;
        copies.extend(
            versions
                .into_iter()
                .map(|(key, version)| (format!("{n} {key}"), version)),
        );
    }
    copies
}
