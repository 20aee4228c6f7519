//! `apply`: without clusters as kubectl, with clusters also a policy for each object.

use harness::process::run_with_input;
use serde_json::json;

use crate::cli::fixture::CliFixture;

const MANIFEST: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {mode: fast}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: applied}
rules: []
";

#[test]
fn a_policy_is_applied_for_each_object() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let apply = fixture.command(&["apply", "-f", "-", "-C", "member1,member2"]);
    let out = run_with_input(&apply, MANIFEST.as_bytes());
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8_lossy(&out.stdout);
    for line in [
        "configmap/applied created",
        "clusterrole.rbac.authorization.k8s.io/applied created",
        "propagationpolicy.policy.karmada.io/applied-",
        "clusterpropagationpolicy.policy.karmada.io/applied-",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let policies = fixture.json("get propagationpolicies");
    let spec = policies["items"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|policy| {
            let spec = &policy["spec"];
            (spec["resourceSelectors"][0]["name"] == "applied").then_some(spec)
        });
    let spec = spec.unwrap();
    let clusters = json!(["member1", "member2"]);
    assert_eq!(
        spec["placement"]["clusterAffinity"]["clusterNames"],
        clusters
    );
    assert_eq!(spec["resourceSelectors"][0]["kind"], "ConfigMap");
}

#[test]
fn clusters_that_are_wrong_are_refused_before_anything_is_applied() {
    let fixture = CliFixture::shared();
    let refusals = [
        (
            "-f x --all-clusters -C member1",
            "--all-clusters and --cluster cannot be used together",
        ),
        (
            "-f x -C moon,sun",
            "[cluster moon does not exist, cluster sun does not exist]",
        ),
        ("-f x -C moon", "cluster moon does not exist"),
    ];
    for (line, message) in refusals {
        fixture.run(&format!("apply {line}")).failed_with(message);
    }
}

#[test]
fn the_examples_of_the_help_work() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let manifest = MANIFEST.replace("applied", "example");
    fixture.write("manifest.yaml", manifest);
    fixture.run_examples("apply");
}
