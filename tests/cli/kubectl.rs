//! The commands that kubectl does, on the control plane and on members through the cluster
//! proxy, and the binary as a plugin of kubectl.

use harness::port_forward::echo_through_port_forward;
use serde_json::json;

use crate::cli::fixture::CliFixture;

/// The commands whose examples run as they are written.
pub(crate) const COMMANDS: [&str; 11] = [
    "describe",
    "logs",
    "exec",
    "explain",
    "api-resources",
    "api-versions",
    "create",
    "patch",
    "label",
    "annotate",
    "delete",
];

#[test]
fn the_examples_of_the_help_work() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    for command in COMMANDS {
        fixture.run_examples(command);
    }
}

// proves: CLI-exec-without-nodes
#[test]
fn a_command_in_a_pod_of_no_member_fails_at_once() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let failed = fixture.run("exec deployment/web -- true");
    failed.failed_with("the control plane has no nodes, so no pod runs there");
}

#[test]
fn a_member_is_reached_through_the_proxy() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let described = fixture
        .run("describe pods -l app=web -C member1")
        .succeeded();
    assert!(described.contains("Node:"), "{described}");
    let described = fixture.run("describe deployment web").succeeded();
    assert!(
        described.contains("propagationpolicy.karmada.io/name"),
        "{described}"
    );
    let groups = fixture.run("api-versions").succeeded();
    assert!(groups.contains("policy.karmada.io/v1alpha1"), "{groups}");
    let groups = fixture.run("api-versions --operation-scope members --cluster member2");
    assert!(!groups.succeeded().contains("policy.karmada.io"));
    let image = fixture.run("get deployment/web -C member1 -o jsonpath={.spec.replicas}");
    assert_eq!(image.succeeded(), "2");

    let refusals = [
        ("logs web", "must specify a cluster"),
        ("logs web -C moon", "clusters don't exist: moon"),
        ("describe pods -s all", "not support operation scope: all"),
        ("describe pods -s members", "must specify a cluster"),
        (
            "describe pods nothing -C member1",
            "pods \"nothing\" not found",
        ),
    ];
    for (line, message) in refusals {
        fixture.run(line).failed_with(message);
    }
}

#[test]
fn without_kubectl_the_command_says_what_to_install() {
    let fixture = CliFixture::shared();
    let out = fixture
        .command(&["describe", "pods"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(
        errors.contains("kubectl, which is not on the PATH; install it"),
        "{errors}"
    );
}

/// Simulated pods send back what they receive.
#[test]
fn port_forward_reaches_the_member() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let container = json!({"name": "c", "image": "x"});
    fixture.create_in_member(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"containers": [container]}}));
    fixture.wait_for_output("get pod echo -n default -C member1", |out| {
        out.contains("Running")
    });
    let forward = ["port-forward", "echo", ":80", "-C", "member1"];
    let echoed = echo_through_port_forward(&fixture.command(&forward));
    assert_eq!(echoed, ["first", "second"]);
    fixture
        .run("port-forward deployment/web :80")
        .failed_with("must specify a cluster");
}

#[test]
fn an_object_is_edited() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    fixture
        .run("create configmap edited --from-literal=mode=slow")
        .succeeded();
    let mut edit = fixture.command(&["edit", "configmap", "edited"]);
    let edited = edit.env("EDITOR", "sed -i s/slow/fast/").output().unwrap();
    assert!(edited.status.success(), "{edited:?}");
    let mode = fixture.json("get configmap edited")["data"]["mode"].clone();
    assert_eq!(mode, "fast");
}

#[test]
fn the_binary_is_a_plugin_of_kubectl() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    for plugin in ["flotilla", "karmada"] {
        let arguments = [
            plugin,
            "get",
            "deployment",
            "web",
            "-C",
            "member1",
            "-o",
            "name",
        ];
        let out = fixture.command_of("kubectl", &arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{plugin}: {errors}");
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            "deployment.apps/web\n"
        );
    }
}
