//! What the user guide of Karmada tells users to apply: one object of each family, at once.

use std::time::{Duration, Instant};

use crate::fixture::{CliFixture, TIMEOUT, run_command};

const NAMESPACE: &str = "guide";

fn kubectl(fixture: &CliFixture, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    run_command(fixture.command_of("kubectl", &words)).succeeded()
}

#[test]
fn the_objects_of_the_guide_are_accepted_and_act() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let file = fixture.dir().join("guide.yaml");
    std::fs::write(&file, include_str!("guide.yaml")).unwrap();
    kubectl(&fixture, &format!("create namespace {NAMESPACE}"));
    kubectl(&fixture, &format!("apply -f {}", file.display()));
    let wait = |condition: &str, object: &str| {
        let of = format!("--for=condition={condition} {object} --namespace {NAMESPACE}");
        kubectl(&fixture, &format!("wait --timeout 60s {of}"));
    };
    wait("Available", "deployment/web");
    for binding in [
        "web-deployment",
        "web-service",
        "web-serviceexport",
        "web-serviceimport",
        "settings-configmap",
    ] {
        wait("FullyApplied", &format!("resourcebinding/{binding}"));
    }
    for plural in ["serviceexports", "serviceimports"] {
        let name = format!("{plural}.multicluster.x-k8s.io-customresourcedefinition");
        wait("FullyApplied", &format!("clusterresourcebinding/{name}"));
    }
    let rebalanced = "--for=jsonpath={.status.observedWorkloads[0].result}=Successful";
    kubectl(
        &fixture,
        &format!("wait --timeout 60s {rebalanced} workloadrebalancer/guide"),
    );
    let path = "search/cache/apis/apps/v1/namespaces/guide/deployments/web";
    let search = format!("get --raw /apis/search.karmada.io/v1alpha1/{path}");
    let deadline = Instant::now() + TIMEOUT;
    while !kubectl(&fixture, &search).contains("cached-from-cluster") {
        assert!(Instant::now() < deadline, "the search finds nothing");
        harness::sleep_blocking(Duration::from_millis(100));
    }
}
