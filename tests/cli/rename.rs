//! `rename` and `replace`: a cluster gets another name, or another cluster its name, and no
//! workload is deleted.

use std::time::Duration;

use harness::ApiServerClient;
use harness::objects::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, policy};
use serde_json::{Value, json};

use crate::cli::adopt::identities;
use crate::cli::fixture::CliFixture;
use crate::cli::join::{UnjoinedMember, join_line};

const NAMESPACE: &str = "fleet";

/// A Deployment and a ConfigMap that a policy each places in a cluster.
fn place_objects(fixture: &CliFixture, namespace: &str, cluster: &str) {
    for object in [
        deployment(namespace, cluster, 2),
        config_map(namespace, &format!("{cluster}-map"), "v"),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap();
        fixture.create(policy(namespace, name, &object, &[cluster]));
        fixture.create(object);
    }
}

// proves: REN-moves, REN-interrupted
#[test]
fn a_renamed_cluster_keeps_what_runs() {
    let fixture = CliFixture::with_changing_clusters();
    let _edge = fixture.join_member("edge", &[]);
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    fixture.create(namespace);
    place_objects(&fixture, NAMESPACE, "edge");
    fixture.wait_until_ready(NAMESPACE, "edge", 2);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let kubeconfig = fixture.dir().join("edge/kubeconfig");
    let member = runtime.block_on(async {
        let member = ApiServerClient::connect("edge", &kubeconfig);
        member
            .wait_until_exists(&CONFIG_MAPS, NAMESPACE, "edge-map")
            .await;
        member
    });
    let before = runtime.block_on(identities(&member, NAMESPACE));
    fixture
        .run("rename cluster edge edge-eu")
        .failed_with("--rewrite-policies changes them");
    fixture.run_examples("rename");
    fixture.run_examples("rename cluster");
    let assert_unchanged = |name: &str| {
        assert_eq!(runtime.block_on(identities(&member, NAMESPACE)), before);
        let web = fixture.json(&format!("get deployment edge -n {NAMESPACE} -C {name}"));
        assert_eq!(web["status"]["readyReplicas"], 2);
        let policy = fixture.json(&format!("get propagationpolicy edge -n {NAMESPACE}"));
        let names = &policy["spec"]["placement"]["clusterAffinity"]["clusterNames"];
        assert_eq!(*names, json!([name]));
    };
    assert_unchanged("edge-eu");
    fixture.run("get cluster edge").failed_with("not found");

    let line = [
        "rename",
        "cluster",
        "edge-eu",
        "edge-us",
        "--rewrite-policies",
    ];
    let interrupted = fixture.spawn(&line);
    harness::sleep_blocking(Duration::from_millis(400));
    drop(interrupted);
    fixture.run(&line.join(" ")).succeeded();
    assert_unchanged("edge-us");
    fixture.run("get cluster edge-eu").failed_with("not found");
    // An edit reaches the member under its new name.
    let template = format!("get deployment edge -n {NAMESPACE} -C edge-us -o json");
    runtime.block_on(async {
        let config = fixture.dir().join("kubeconfig");
        let control = ApiServerClient::connect("control plane", &config);
        let patch = json!({"spec": {"replicas": 3}});
        control
            .merge_patch(&DEPLOYMENTS, NAMESPACE, "edge", patch)
            .await;
    });
    fixture.wait_for_output(&template, |out| out.contains("\"readyReplicas\": 3"));
}

// proves: RPL-points
#[test]
fn the_name_of_a_dead_cluster_points_at_its_replacement() {
    let fixture = CliFixture::with_changing_clusters();
    let mut lost = UnjoinedMember::start();
    fixture.write_kubeconfig("lost", &lost.kubeconfig());
    fixture.run(&join_line("lost")).succeeded();
    place_objects(&fixture, "default", "lost");
    fixture.wait_until_ready("default", "lost", 2);
    let replacement = UnjoinedMember::start();
    fixture.write_kubeconfig("replacement", &replacement.kubeconfig());
    fixture
        .run("replace cluster lost --cluster-kubeconfig replacement.kubeconfig")
        .failed_with("cluster \"lost\" is Ready");
    lost.kill();
    fixture.run_examples("replace");
    fixture.run_examples("replace cluster");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let member = replacement.client();
        member
            .wait_until_exists(&CONFIG_MAPS, "default", "lost-map")
            .await;
        let is_ready = |d: &Value| d["status"]["readyReplicas"] == 2;
        member
            .wait_until(&DEPLOYMENTS, "default", "lost", "ready", is_ready)
            .await;
    });
}
