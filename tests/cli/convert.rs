//! `convert`: KubeFed's objects become templates and policies that take over the copies.

use harness::objects::config_map;
use serde_json::json;

use crate::cli::fixture::CliFixture;

/// A federated ConfigMap in one of two clusters, and its namespace.
const FEDERATED: &str = r#"
apiVersion: types.kubefed.io/v1beta1
kind: FederatedNamespace
metadata: {namespace: federated, name: federated}
spec: {placement: {clusterSelector: {}}}
---
apiVersion: types.kubefed.io/v1beta1
kind: FederatedConfigMap
metadata: {namespace: federated, name: settings}
spec:
  template: {data: {color: blue}}
  placement: {clusters: [{name: member1}]}
  overrides:
  - clusterName: member1
    clusterOverrides: [{path: /data/color, value: green}]
"#;
/// A replica preference without its target, and an object of a kind without equal.
const PREFERENCE_AND_DNS: &str = r#"
apiVersion: scheduling.kubefed.io/v1alpha1
kind: ReplicaSchedulingPreference
metadata: {namespace: federated, name: settings}
spec: {targetKind: FederatedDeployment, totalReplicas: 2}
---
apiVersion: multiclusterdns.kubefed.io/v1alpha1
kind: ServiceDNSRecord
metadata: {namespace: federated, name: settings}
"#;

#[test]
fn converted_templates_take_over_the_copies_of_kubefed() {
    let fixture = CliFixture::shared();
    fixture.write("federated.yaml", FEDERATED);
    fixture.write("preferences.yaml", PREFERENCE_AND_DNS);
    fixture.run_examples("convert");
    fixture.run_examples("convert kubefed");
    fixture
        .run("convert kubefed -f federated.yaml -f preferences.yaml")
        .failed_with("ServiceDNSRecord federated/settings: kind");

    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "federated"}});
    fixture.create_in_member(namespace);
    let mut copy = config_map("federated", "settings", "stale");
    copy["metadata"]["labels"] = json!({"kubefed.io/managed": "true"});
    fixture.create_in_member(copy);
    let get = "get configmap settings -n federated -C member1";
    let uid = fixture.json(get)["metadata"]["uid"].clone();

    let line = "convert kubefed -f federated.yaml";
    let manifests = fixture.run(line).succeeded();
    fixture.write("converted.yaml", manifests);
    fixture.run("apply -f converted.yaml").succeeded();
    fixture.wait_for_output(&format!("{get} -o json"), |out| out.contains("green"));
    let copy = fixture.json(get);
    assert_eq!(copy["metadata"]["uid"], uid);
    assert_eq!(copy["data"]["color"], "green");
    fixture
        .run("get configmap settings -n federated -C member2")
        .failed_with("not found");
}
