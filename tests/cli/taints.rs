//! `cordon`, `uncordon` and `taint`: messages of karmadactl and the taints of the cluster.

use serde_json::json;

use crate::cli::fixture::CliFixture;

#[test]
fn a_cluster_is_cordoned_and_uncordoned() {
    let fixture = CliFixture::with_changing_clusters();
    fixture.register_cluster("cordoned", None);
    let taints = || fixture.json("get cluster cordoned")["spec"]["taints"].clone();
    let unschedulable = json!("cluster.karmada.io/unschedulable");

    let dry = fixture.run("cordon cordoned --dry-run").succeeded();
    assert_eq!(dry, "cordoned cluster cordoned\n");
    let has_taint = |taints: &serde_json::Value| {
        let all = taints.as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|taint| taint["key"] == unschedulable && taint["effect"] == "NoSchedule")
    };
    assert!(!has_taint(&taints()));

    let line = fixture.run("cordon cordoned").succeeded();
    assert_eq!(line, "cordoned cluster cordoned\n");
    assert!(has_taint(&taints()));
    let again = fixture.run("cordon cordoned").succeeded();
    assert_eq!(again, "cordoned cluster already cordoned\n");

    fixture
        .run("taint clusters cordoned other:NoSchedule")
        .succeeded();
    let line = fixture.run("uncordon cordoned").succeeded();
    assert_eq!(line, "cordoned cluster uncordoned\n");
    assert!(!has_taint(&taints()));
    assert!(taints().to_string().contains("other"), "{}", taints());
    let again = fixture.run("uncordon cordoned").succeeded();
    assert_eq!(again, "cordoned cluster already uncordoned\n");
}

#[test]
fn cordon_refuses_what_karmadactl_refuses() {
    let fixture = CliFixture::with_changing_clusters();
    fixture
        .run("cordon")
        .failed_with("cluster name is required");
    fixture
        .run("uncordon a b")
        .failed_with("more than one cluster name is not supported");
    fixture
        .run("cordon nowhere")
        .failed_with("clusters.cluster.karmada.io \"nowhere\" not found");
}

#[test]
fn taints_are_set_overwritten_and_removed() {
    let fixture = CliFixture::with_changing_clusters();
    fixture.register_cluster("tainted", None);
    let steps = [
        ("dedicated=a:NoSchedule", "cluster/tainted tainted"),
        (
            "dedicated=b:NoSchedule --overwrite",
            "cluster/tainted modified",
        ),
        ("dedicated:NoExecute", "cluster/tainted tainted"),
        ("dedicated:NoSchedule-", "cluster/tainted untainted"),
        ("--dry-run dedicated-", "cluster/tainted untainted"),
        ("spare:NoSchedule dedicated-", "cluster/tainted modified"),
    ];
    for (update, line) in steps {
        let printed = fixture.run(&format!("taint clusters tainted {update}"));
        assert_eq!(printed.succeeded().trim_end(), line, "{update}");
    }
    let taints = fixture.json("get cluster tainted")["spec"]["taints"].to_string();
    assert!(
        taints.contains("spare") && !taints.contains("dedicated"),
        "{taints}"
    );

    let refusals = [
        (
            "tainted spare=a:NoSchedule",
            "cluster tainted already has spare taint(s) with same effect(s) and --overwrite is false",
        ),
        ("tainted nothing-", "taint \"nothing\" not found"),
        (
            "tainted spare:Never",
            "invalid taint effect: Never, unsupported taint effect",
        ),
        ("tainted", "at least one taint update is required"),
        ("nowhere spare:NoExecute", "\"nowhere\" not found"),
    ];
    for (update, message) in refusals {
        fixture
            .run(&format!("taint clusters {update}"))
            .failed_with(message);
    }
    // A failure on one cluster does not keep the next from being changed.
    fixture
        .run("taint clusters nowhere tainted last:NoSchedule")
        .failed_with("\"nowhere\" not found");
    let taints = fixture.json("get cluster tainted")["spec"]["taints"].to_string();
    assert!(taints.contains("last"), "{taints}");
}

#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::with_changing_clusters();
    fixture.run_examples("cordon");
    fixture.run_examples("uncordon");
    fixture.run_examples("taint");
}
