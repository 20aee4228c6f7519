//! `orphan`: a template is deleted, and its objects stay in the members.

use harness::objects::{CONFIG_MAPS, config_map, policy};

use crate::cli::fixture::CliFixture;

// proves: ORP-command, ORP-annotation, CLI-examples
#[test]
fn the_objects_of_an_orphaned_template_outlive_it() {
    let fixture = CliFixture::shared();
    let map = config_map("default", "orphaned", "x");
    fixture.create(policy("default", "orphaned", &map, &["member1"]));
    fixture.create(map);
    let get = "get configmap orphaned -C member1 -s members -o json";
    fixture.wait_for_output(get, |out| out.contains("orphaned"));
    let state = |what: &str| format!("configmap/orphaned of namespace default: orphaning {what}\n");
    for (line, expected) in [
        (
            "status",
            "disabled; a deletion leaves the objects of 0 of 1 clusters",
        ),
        (
            "enable",
            "enabled; a deletion leaves the objects of 1 of 1 clusters",
        ),
        (
            "disable",
            "disabled; a deletion leaves the objects of 0 of 1 clusters",
        ),
        (
            "enable",
            "enabled; a deletion leaves the objects of 1 of 1 clusters",
        ),
    ] {
        let printed = fixture.run(&format!("orphan {line} configmap/orphaned"));
        assert_eq!(printed.succeeded(), state(expected));
    }
    fixture.delete(&CONFIG_MAPS, "default", "orphaned");
    fixture.wait_for_output("get works -A -o json", |out| !out.contains("\"orphaned\""));
    let kept = fixture.run(get).succeeded();
    assert!(!kept.contains("karmada.io/managed\""), "{kept}");
}

#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::shared();
    fixture.run_examples("orphan");
    fixture.run_examples("orphan enable");
    fixture.run_examples("orphan disable");
    fixture.run_examples("orphan status");
    fixture.run("orphan disable deployment/web").succeeded();
    for (line, error) in [
        (
            "orphan status deployment/nothing",
            "deployments.apps \"nothing\" not found",
        ),
        (
            "orphan enable deployment",
            "specify one resource as TYPE/NAME",
        ),
    ] {
        fixture.run(line).failed_with(error);
    }
}
