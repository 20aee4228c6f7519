//! `promote`: an object of a member becomes a template, and is adopted where it is.

use harness::objects::{SECRETS, config_map, deployment, secret};
use serde_json::{Value, json};

use crate::cli::fixture::CliFixture;

#[test]
fn an_object_of_a_member_is_adopted() {
    let fixture = CliFixture::shared();
    fixture.create_in_member(config_map("default", "adopted", "of the member"));
    let line = "promote configmap adopted -C member1";
    let printed = fixture.run(&format!("{line} -o yaml")).succeeded();
    assert!(printed.contains("kind: PropagationPolicy"), "{printed}");
    assert!(!printed.contains("resourceVersion"), "{printed}");
    let dry = fixture.run(&format!("{line} --dry-run")).succeeded();
    assert!(dry.contains("(dry run)"), "{dry}");
    fixture
        .run("get configmap adopted")
        .failed_with("\"adopted\" not found");

    let resource = "Resource \"/v1, Resource=configmaps\"(default/adopted)";
    let promoted = fixture.run(line).succeeded();
    assert_eq!(
        promoted.trim_end(),
        format!("{resource} is promoted successfully")
    );
    let template = fixture.json("get configmap adopted");
    assert_eq!(
        template["data"],
        fixture.json("get configmap adopted -C member1")["data"]
    );
    assert_eq!(
        template["metadata"]["annotations"]["work.karmada.io/conflict-resolution"],
        "overwrite"
    );
    let policies = fixture.json("get propagationpolicies");
    let spec = policies["items"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|policy| {
            let spec = &policy["spec"];
            (spec["resourceSelectors"][0]["name"] == "adopted").then_some(spec)
        });
    let spec = spec.unwrap();
    assert_eq!(spec["conflictResolution"], "Overwrite");
    assert_eq!(spec["preserveResourcesOnDeletion"], true);
    let clusters = json!(["member1"]);
    assert_eq!(
        spec["placement"]["clusterAffinity"]["clusterNames"],
        clusters
    );

    let again = fixture.run(line).succeeded();
    assert!(
        again.starts_with(&format!("{resource} already exist")),
        "{again}"
    );
}

/// A Deployment of the member that depends on a ConfigMap and a Secret.
fn create_dependent_in_member(fixture: &CliFixture, namespace: &str, name: &str) {
    fixture.create_in_member(config_map(namespace, &format!("{name}-options"), "x"));
    fixture.create_in_member(secret(namespace, &format!("{name}-password"), "x"));
    let mut dependent = deployment(namespace, name, 1);
    dependent["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([
        {"configMapRef": {"name": format!("{name}-options")}},
        {"secretRef": {"name": format!("{name}-password")}},
    ]);
    fixture.create_in_member(dependent);
}

#[test]
fn dependencies_are_promoted_with_their_object() {
    let fixture = CliFixture::shared();
    create_dependent_in_member(&fixture, "default", "app");
    let line = "promote deployment app -C member1 -d";
    let printed = fixture.run(&format!("{line} -o yaml")).succeeded();
    for kind in ["ConfigMap", "Secret", "Deployment", "PropagationPolicy"] {
        assert!(printed.contains(&format!("kind: {kind}\n")), "{printed}");
    }
    let printed = fixture.run(line).succeeded();
    let ends = printed.matches("is promoted successfully").count();
    assert_eq!(ends, 3, "{printed}");
    for object in ["configmap app-options", "secret app-password"] {
        let template = fixture.json(&format!("get {object}"));
        let annotations = &template["metadata"]["annotations"];
        assert_eq!(
            annotations["work.karmada.io/conflict-resolution"],
            "overwrite"
        );
    }
    let policies = fixture.json("get propagationpolicies");
    let all = policies["items"].as_array().unwrap();
    let selects = |p: &&Value| {
        let selectors = p["spec"]["resourceSelectors"].as_array().unwrap();
        selectors.iter().any(|s| s["name"] == "app")
    };
    let policy = all.iter().find(selects).unwrap();
    assert_eq!(policy["spec"]["propagateDeps"], true);
    assert!(!all.iter().any(|p| p.to_string().contains("app-options")));
}

#[test]
fn a_dependency_that_cannot_be_promoted_releases_those_before_it() {
    let fixture = CliFixture::shared();
    let namespace = "released";
    fixture.propagate_deployment(namespace);
    create_dependent_in_member(&fixture, namespace, "app");
    fixture.create(json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "no-secrets", "namespace": namespace},
        "spec": {"hard": {"secrets": "0"}}}));
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"generateName": "trial-", "namespace": namespace}});
    fixture.wait_until_refused(&SECRETS, namespace, &secret);
    let line = format!("promote deployment app -n {namespace} -C member1 -d");
    fixture.run(&line).failed_with("exceeded quota: no-secrets");
    for object in ["configmap app-options", "deployment app"] {
        let of_control_plane = fixture.run(&format!("get {object} -n {namespace}"));
        of_control_plane.failed_with("not found");
        fixture.json(&format!("get {object} -n {namespace} -C member1"));
    }

    let mut incomplete = deployment(namespace, "incomplete", 1);
    incomplete["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "nothing"}}]);
    fixture.create_in_member(incomplete);
    let line = format!("promote deployment incomplete -n {namespace} -C member1 -d");
    let message = "failed to get dependency ConfigMap nothing in cluster(member1)";
    fixture.run(&line).failed_with(message);
}

#[test]
fn promote_refuses_what_karmadactl_refuses() {
    let fixture = CliFixture::shared();
    let refusals = [
        ("configmap x", "the cluster cannot be empty"),
        ("configmap x -C moon", "clusters don't exist: moon"),
        (
            "configmap x -C member1 -o wide",
            "output format is only one of json and yaml",
        ),
        (
            "configmap nothing -C member1",
            "failed to get resource in cluster(member1): configmaps \"nothing\" not found",
        ),
    ];
    for (line, message) in refusals {
        fixture.run(&format!("promote {line}")).failed_with(message);
    }
}

#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::shared();
    fixture.create_in_member(config_map("default", "legacy", "of the member"));
    fixture.create_in_member(deployment("default", "legacy", 1));
    fixture.run_examples("promote");
}
