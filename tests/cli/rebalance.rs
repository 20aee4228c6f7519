//! `rebalance`: a WorkloadRebalancer is created, and its results are printed.

use harness::objects::config_map;

use crate::cli::fixture::CliFixture;

#[test]
fn a_template_is_scheduled_anew() {
    let fixture = CliFixture::shared();
    let triggered = || {
        let binding = fixture.json("get resourcebinding web-deployment");
        binding["spec"]["rescheduleTriggeredAt"].clone()
    };
    let before = triggered();
    let printed = fixture.run("rebalance deployment/web").succeeded();
    assert_eq!(printed, "deployment/web of namespace default rebalanced\n");
    assert_ne!(triggered(), before);
}

#[test]
fn a_template_without_a_policy_is_named() {
    let fixture = CliFixture::shared();
    fixture.create(config_map("default", "unselected", "x"));
    let printed = fixture.run("rebalance configmap/unselected");
    assert!(
        printed.out.starts_with(
            "configmap/unselected of namespace default not rebalanced: ReferencedBindingNotFound: "
        ),
        "{printed:?}"
    );
    printed.failed_with("1 of 1 templates were not rebalanced");
    for (line, message) in [
        (
            "deployment/nothing",
            "deployments.apps \"nothing\" not found",
        ),
        ("deployment", "specify one resource as TYPE/NAME"),
        ("dragons/web", "the server has no resource type"),
    ] {
        fixture
            .run(&format!("rebalance {line}"))
            .failed_with(message);
    }
}

#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::shared();
    fixture.create(config_map("default", "options", "x"));
    fixture.run_examples("rebalance");
}
