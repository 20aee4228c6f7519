//! The help of every command has an example, and a test runs it: here, or in the file of the
//! command by `run_examples`.

use harness::objects::resource_selector;
use harness::process::RunningCommand;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::fixture::CliFixture;
use crate::cli::join::UnjoinedMember;
use crate::cli::kubectl;

/// Commands whose examples tests elsewhere run with other addresses and names, in this file.
const RUN_ELSEWHERE: [(&str, &str); 7] = [
    ("console", "tests/cli/console.rs"),
    ("register", "tests/flow/pull_members.rs"),
    ("install", "tests/manifests/install.rs"),
    ("uninstall", "tests/manifests/install.rs"),
    ("takeover", "tests/aggregated/takeover.rs"),
    ("edit", "tests/cli/kubectl.rs"),
    ("port-forward", "tests/cli/kubectl.rs"),
];
/// An attach does not end, and simulated containers print nothing.
const NOT_RUN: [&str; 1] = ["attach"];
/// Servers, which the tests of this file start, and what removes one of them.
const STARTED_HERE: [&str; 8] = [
    "up",
    "demo",
    "serve",
    "member",
    "agent",
    "estimator",
    "service-name-resolution-detector",
    "unregister",
];

/// All commands and their subcommands.
fn commands(fixture: &CliFixture) -> Vec<String> {
    let (mut commands, mut open) = (Vec::new(), vec![String::new()]);
    while let Some(command) = open.pop() {
        let help = fixture.run(format!("{command} --help").trim()).succeeded();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            // Continued descriptions are indented deeper.
            let Some(name) = line.strip_prefix("  ").filter(|l| !l.starts_with(' ')) else {
                continue;
            };
            let name = name.split_whitespace().next().unwrap();
            if name != "help" {
                open.push(format!("{command} {name}").trim().to_owned());
            }
        }
        if !command.is_empty() {
            commands.push(command);
        }
    }
    commands
}

fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The commands whose examples a test runs.
fn tested_commands() -> BTreeSet<String> {
    let mut tested: BTreeSet<String> = BTreeSet::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cli");
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let calls = ["run_examples(\"", "run_examples_in(\""];
        let calls = calls.iter().flat_map(|call| text.split(call).skip(1));
        tested.extend(calls.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    for (command, file) in RUN_ELSEWHERE {
        assert!(source(file).contains(command), "{command} in {file}");
        tested.insert(command.to_owned());
    }
    let others = kubectl::COMMANDS
        .iter()
        .chain(&NOT_RUN)
        .chain(&STARTED_HERE);
    tested.extend(others.map(|command| (*command).to_owned()));
    tested
}

// proves: CLI-examples
#[test]
fn every_command_has_an_example_that_a_test_runs() {
    let fixture = CliFixture::shared();
    let tested = tested_commands();
    let all = commands(&fixture);
    assert!(all.len() > 30, "{all:?}");
    for command in all {
        assert!(!fixture.examples(&command).is_empty());
        assert!(
            tested.contains(&command),
            "no test runs the examples of {command}"
        );
    }
}

// proves: CLI-examples
#[test]
fn the_examples_of_decisions_and_tokens_work() {
    let fixture = CliFixture::shared();
    fixture.propagate_deployment("shop");
    for (file, namespace) in [("policy.yaml", "default"), ("policies.yaml", "shop")] {
        let policy = fixture.json(&format!("get propagationpolicy web -n {namespace}"));
        let policy = json!({"apiVersion": policy["apiVersion"], "kind": policy["kind"],
            "metadata": {"name": "web", "namespace": namespace}, "spec": policy["spec"]});
        fixture.write(file, policy.to_string());
    }
    let web = fixture.json("get deployment web -n shop");
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": web["spec"],
        "metadata": {"name": "web", "namespace": "shop", "labels": web["metadata"]["labels"]}});
    fixture.write("deployment.yaml", web.to_string());
    let rollout_policy = json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"resourceSelectors": [resource_selector(&web)], "stages": [{"name": "all"}]}});
    fixture.write("rolloutpolicy.yaml", rollout_policy.to_string());
    fixture.run_examples("why");
    fixture.run_examples("plan");
    fixture.run_examples("version");
    fixture.run_examples("completion");
    fixture.run_examples("man");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef"}});
    fixture.create(secret);
    fixture.run_examples("token");
    fixture.run_examples("token create");
    fixture.run_examples("token list");
    fixture.run_examples("token delete");
}

// proves: CLI-examples
#[test]
fn the_examples_of_interpret_work() {
    let fixture = CliFixture::shared();
    let script = "function GetReplicas(obj) return obj.spec.replicas, {} end";
    let customization = json!({"apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterCustomization", "metadata": {"name": "widgets"},
        "spec": {"target": {"apiVersion": "example.io/v1", "kind": "Widget"},
            "customizations": {"replicaResource": {"luaScript": script}}}});
    let desired = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"replicas": 2}});
    let deployment = harness::objects::deployment("default", "web", 2);
    let folder = fixture.dir().join("interpret");
    std::fs::create_dir(&folder).unwrap();
    let status = json!({"clusterName": "member1", "status": {"replicas": 2, "readyReplicas": 1}});
    for (file, value) in [
        ("customization.yaml", customization),
        ("desired.yaml", desired),
        ("deployment.yaml", deployment),
        ("status.yaml", status),
    ] {
        std::fs::write(folder.join(file), value.to_string()).unwrap();
    }
    fixture.run_examples_in("interpret", &folder);
}

/// Starts a server by an example in its help, in which some texts are replaced, with more
/// arguments, and waits for a line of its output.
fn start(
    fixture: &CliFixture,
    example: &str,
    replaced: &[(&str, &str)],
    more: &str,
    line: &str,
) -> RunningCommand {
    let mut example = format!("{example} {more}");
    for (text, by) in replaced {
        example = example.replace(text, by);
    }
    let words: Vec<&str> = example.split_whitespace().collect();
    let mut server = fixture.spawn(&words);
    let lines = BufReader::new(server.child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|l| l.starts_with(line)), "{example}: no {line:?}");
    // The rest of the output is read, so that the server does not wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    server
}

// proves: CLI-examples
#[test]
fn the_examples_of_servers_work() {
    let fixture = CliFixture::shared();
    let any_port = "--listen 127.0.0.1:0";
    let first = |command: &str| fixture.examples(command).swap_remove(0);
    drop(start(
        &fixture,
        &first("up"),
        &[],
        any_port,
        "ready https://",
    ));
    let dir = [("/tmp/m1", "m1-data")];
    drop(start(
        &fixture,
        &first("member"),
        &dir,
        "",
        "ready https://",
    ));
    let replaced = [
        ("/var/lib/flotilla", "serve-data"),
        ("0.0.0.0:6443", "127.0.0.1:0"),
    ];
    let examples = fixture.examples("serve");
    drop(start(
        &fixture,
        &examples[0],
        &replaced,
        "",
        "ready https://",
    ));
    // The others need a cluster around them, or an etcd.
    for example in &examples[1..] {
        let line = example.replace("/var/lib/flotilla", "other-data");
        fixture.run(&line).failed_with("error: ");
    }
    let demo = fixture.examples("demo");
    fixture.run(&demo[0]).succeeded();
    drop(start(&fixture, &demo[1], &[], "", ""));
}

// proves: CLI-examples
#[test]
fn the_examples_of_usage_and_backups_work() {
    let fixture = CliFixture::start();
    fixture.run_examples("top");
    fixture.run_examples("top pod");
    fixture.run_examples("top node");
    fixture.run_examples("top fleet");
    fixture.run_examples("backup");
    // `run_examples("restore")` with another directory; the second needs an etcd.
    let examples = fixture.examples("restore");
    let line = examples[0].replace("/var/lib/flotilla", "restored-data");
    fixture.run(&line).succeeded();
    fixture.run(&examples[1]).failed_with("error: ");
}

// proves: CLI-examples
#[test]
fn the_examples_of_agent_estimator_and_unregister_work() {
    let fixture = CliFixture::start();
    let member = UnjoinedMember::start();
    fixture.write_kubeconfig("m1", &member.kubeconfig());
    let own = std::fs::read(fixture.dir().join("kubeconfig")).unwrap();
    for name in ["agent", "plane"] {
        fixture.write(&format!("{name}.kubeconfig"), &own);
    }
    let no_ports = "--metrics-bind-address 0 --health-probe-bind-address 0";
    let agent = fixture.examples("agent").swap_remove(0);
    let agent = start(&fixture, &agent, &[], no_ports, "ready https://");
    let estimator = fixture.examples("estimator").swap_remove(0);
    let more = format!("--server-port 0 {no_ports}");
    drop(start(&fixture, &estimator, &[], &more, "ready http"));
    let detector = fixture.examples("service-name-resolution-detector");
    drop(start(&fixture, &detector[0], &[], "", "ready https://"));
    fixture.run("get cluster m1").succeeded();
    let version = || {
        let lease = fixture.run("get lease m1 -n karmada-cluster --ignore-not-found -o json");
        let lease: Value = machinery::json::from_str(&lease.succeeded()).unwrap_or_default();
        lease["metadata"]["annotations"]["flotilla.io/agent-version"].clone()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while version() != env!("CARGO_PKG_VERSION") {
        assert!(Instant::now() < deadline, "{}", version());
    }
    let unregister = fixture.examples("unregister").swap_remove(0);
    let done = fixture.run(&unregister).succeeded();
    assert!(done.contains("works: "), "{done}");
    assert!(
        done.contains("execution space: karmada-es-m1 deleted"),
        "{done}"
    );
    drop(agent);
    fixture.run("get cluster m1").failed_with("not found");
}
