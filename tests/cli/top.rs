//! `top`: the usage of pods and nodes of members, members without metrics, and the fleet.

use std::net::TcpListener;

use harness::process::lines_of;
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, TIMEOUT, rows, spawn_on_terminal};

fn pod(namespace: &str, name: &str, cpu: [&str; 2]) -> Value {
    let container = |name: &str, cpu: &str| {
        json!({"name": name, "image": "x",
               "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "measured"}},
        "spec": {"containers": [container("a", cpu[0]), container("b", cpu[1])]}})
}

/// Creates a namespace with two running pods in the first member.
fn run_pods(fixture: &CliFixture, namespace: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    fixture.create_in_member(object);
    fixture.create_in_member(pod(namespace, "small", ["100m", "200m"]));
    fixture.create_in_member(pod(namespace, "large", ["2", "10m"]));
    let line = format!("top pods -n {namespace} -C member1 --no-headers");
    fixture.wait_for_output(&line, |out| rows(out).len() == 2);
}

// proves: TOP-pods
#[test]
fn pods_of_all_members_are_in_one_table() {
    let fixture = CliFixture::shared();
    run_pods(&fixture, "measured");
    let top = |flags: &str| rows(&fixture.run(&format!("top {flags}")).succeeded());
    assert_eq!(
        top("pods -n measured"),
        [
            "NAME CLUSTER CPU(cores) MEMORY(bytes)",
            "large member1 1005m 64Mi",
            "small member1 150m 64Mi",
        ]
    );
    assert_eq!(
        top("pod -n measured -l app=measured --field-selector metadata.name=small --containers"),
        [
            "POD NAME CLUSTER CPU(cores) MEMORY(bytes)",
            "small a member1 50m 32Mi",
            "small b member1 100m 32Mi",
        ]
    );
    assert_eq!(
        top("po small -n measured -C member1 --sum"),
        [
            "NAME CLUSTER CPU(cores) MEMORY(bytes)",
            "small member1 150m 64Mi",
            "________ ________",
            "150m 64Mi",
        ]
    );
    let sorted = top("pods -A --sort-by cpu --no-headers --containers");
    assert_eq!(sorted[0], "measured large a member1 1000m 32Mi");
    let web = top("pods -l app=web");
    assert_eq!(web.len(), 5, "{web:?}");
    for member in ["member1", "member2"] {
        let suffix = format!(" {member} 1m 4Mi");
        assert_eq!(web.iter().filter(|line| line.ends_with(&suffix)).count(), 2);
    }
    let list = fixture.json("top pods -n measured");
    assert_eq!(
        list["items"][0]["metadata"]["annotations"]["resource.karmada.io/query-from-cluster"],
        "member1"
    );
    let none = fixture.run("top pods -l app=nothing");
    assert_eq!(none.errors, "No resources found in default namespace.\n");
    assert_eq!(none.succeeded(), "");
}

// proves: TOP-nodes
#[test]
fn nodes_have_shares_of_what_is_allocatable() {
    let fixture = CliFixture::shared();
    let nodes = rows(&fixture.run("top nodes").succeeded());
    assert_eq!(
        nodes[0],
        "NAME CLUSTER CPU(cores) CPU% MEMORY(bytes) MEMORY%"
    );
    assert_eq!(nodes.len(), 7, "{nodes:?}");
    let one = rows(
        &fixture
            .run("top node node-1 -C member2 --show-capacity")
            .succeeded(),
    );
    assert!(one[1].starts_with("node-1 member2 "), "{one:?}");
    assert!(one[1].contains("m 0% "), "{one:?}");
    let selected = fixture.run("top no -l kubernetes.io/hostname=node-2 --sort-by memory");
    assert_eq!(rows(&selected.succeeded()).len(), 3);
}

// proves: TOP-refused
#[test]
fn wrong_arguments_are_refused_with_the_texts_of_karmadactl() {
    let fixture = CliFixture::shared();
    let refusals = [
        (
            "top pods --sort-by age",
            "--sort-by accepts only cpu or memory",
        ),
        (
            "top pod web -l a=b",
            "only one of NAME or selector can be provided",
        ),
        (
            "top node node-0 -l a=b",
            "only one of NAME or --selector can be provided",
        ),
        ("top pods -C moon", "clusters don't exist: moon"),
        (
            "top pod none -C member1",
            "Warning: cluster(member1): pods.metrics.k8s.io \"none\" not found",
        ),
    ];
    for (line, message) in refusals {
        fixture.run(line).failed_with(message);
    }
}

// proves: TOP-warnings
#[test]
fn a_member_without_answer_or_metrics_is_one_line_of_warning() {
    let fixture = CliFixture::start();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", silent.local_addr().unwrap());
    fixture.register_cluster("mute", Some(&address));
    let member = fixture.join_member("unmeasured", &["--resource-metrics=false"]);
    let top = fixture.run("top nodes -C member1,mute,unmeasured --request-timeout 2s");
    let warnings: Vec<&str> = top.errors.lines().collect();
    assert_eq!(warnings.len(), 2, "{top:?}");
    assert!(
        warnings[0].starts_with("Warning: cluster(mute) is inaccessible"),
        "{top:?}"
    );
    assert_eq!(
        warnings[1],
        "Warning: cluster(unmeasured): metrics API not available"
    );
    assert_eq!((top.code, rows(&top.out).len()), (1, 4), "{top:?}");

    // Where karmadactl prints an error, the table has what is known.
    let fleet = rows(
        &fixture
            .run("top fleet -C member1,mute,unmeasured")
            .succeeded(),
    );
    assert_eq!(fleet.len(), 4, "{fleet:?}");
    let cells = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(&fleet[1])[..4], ["member1", "Push", "True", "3/3"]);
    assert_eq!(cells(&fleet[2])[..3], ["mute", "Pull", "Unknown"]);
    let unmeasured = cells(&fleet[3]);
    assert_eq!(unmeasured[..4], ["unmeasured", "Push", "True", "2/2"]);
    assert_eq!((&*unmeasured[6], &*unmeasured[9]), ("-", "-"), "{fleet:?}");
    drop(member);
}

// proves: TOP-fleet
#[test]
fn the_fleet_has_capacity_usage_and_works() {
    let fixture = CliFixture::shared();
    fixture.wait_for_output("top fleet --no-headers", |out| {
        let is_complete = |line: &String| {
            let cells: Vec<&str> = line.split(' ').collect();
            cells[4] == "192000m" && cells[7] == "786432Mi" && cells[11] != "0"
        };
        rows(out).iter().all(is_complete) && rows(out).len() == 2
    });
    let table = rows(&fixture.run("top fleet").succeeded());
    assert_eq!(
        table[0],
        "NAME MODE READY NODES CPU CPU-ALLOCATED CPU-USED MEMORY MEMORY-ALLOCATED MEMORY-USED \
         PODS WORKS"
    );
    assert!(
        table[1].starts_with("member1 Push True 3/3 192000m "),
        "{table:?}"
    );
    let list = fixture.json("top fleet -C member2");
    assert_eq!(
        (&list[0]["name"], &list[0]["nodes"]),
        (&json!("member2"), &json!(3))
    );
    assert!(list[0]["used"]["cpu"].is_string(), "{list}");
}

// proves: TOP-watch
#[test]
fn a_watched_fleet_is_drawn_anew_on_a_terminal() {
    let fixture = CliFixture::with_changing_clusters();
    let Some(mut terminal) = spawn_on_terminal(&fixture, "top fleet -w") else {
        return;
    };
    let lines = lines_of(&mut terminal);
    let wait_for = |start: &str| {
        while !rows(&lines.recv_timeout(TIMEOUT).unwrap())
            .concat()
            .starts_with(start)
        {}
    };
    wait_for("\u{1b}[H\u{1b}[JNAME MODE READY");
    fixture.register_cluster("drawn", None);
    wait_for("\u{1b}[H\u{1b}[JNAME MODE READY");
    wait_for("drawn Pull Unknown");
    terminal.kill().unwrap();
    terminal.wait().unwrap();
}

#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::shared();
    for command in ["top", "top pod", "top node", "top fleet"] {
        fixture.run_examples(command);
    }
}
