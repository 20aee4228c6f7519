//! `promote`: an object of a member becomes a template, and is adopted where it is.

use harness::objects::config_map;
use serde_json::json;

use crate::fixture::CliFixture;

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
    fixture.run_examples("promote");
}
