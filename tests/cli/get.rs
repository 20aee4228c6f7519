//! `get`: tables of the control plane and of members, documents, watches, and members that
//! do not answer.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use harness::objects::CONFIG_MAPS;
use harness::process::lines_of;
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, TIMEOUT, rows, spawn_on_terminal};

#[test]
fn a_table_has_the_cluster_and_the_adoption_of_each_row() {
    let fixture = CliFixture::shared();
    let text = fixture.run("get deployments web -s all").succeeded();
    let lines = rows(&text);
    assert_eq!(
        lines[0],
        "NAME CLUSTER READY UP-TO-DATE AVAILABLE AGE ADOPTION"
    );
    assert!(lines[1].starts_with("web Karmada 4/2 "), "{text}");
    assert!(lines[1].ends_with(" -"), "{text}");
    for (line, member) in lines[2..4].iter().zip(["member1", "member2"]) {
        assert!(line.starts_with(&format!("web {member} 2/2 ")), "{text}");
        assert!(line.ends_with(" Y"), "{text}");
    }
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("web ")).count(),
        lines.len() - 1
    );

    let control = rows(&fixture.run("get deploy").succeeded());
    assert!(
        control.iter().all(|line| !line.contains("member")),
        "{control:?}"
    );
    let member = rows(&fixture.run("get deploy/web -C member2").succeeded());
    assert_eq!(member.len(), 2, "{member:?}");
    let namespace = rows(
        &fixture
            .run("get namespace kube-system -C member1")
            .succeeded(),
    );
    assert!(namespace[1].ends_with(" N"), "{namespace:?}");
    let pods = rows(&fixture.run("get pods -C member1").succeeded());
    assert_eq!(pods[0], "NAME CLUSTER READY STATUS RESTARTS AGE");
    let wide = rows(&fixture.run("get pods -C member1 -o wide").succeeded());
    assert!(wide[0].ends_with(" ADOPTION"), "{wide:?}");
}

#[test]
fn columns_of_labels_namespaces_and_kinds_are_added() {
    let fixture = CliFixture::shared();
    let text = fixture
        .run("get deployments -A -C member1 --field-selector metadata.name=web -L karmada.io/managed")
        .succeeded();
    let lines = rows(&text);
    assert!(lines[0].starts_with("NAMESPACE NAME CLUSTER "), "{text}");
    assert!(lines[0].ends_with("ADOPTION MANAGED"), "{text}");
    assert!(lines[1].ends_with("Y true"), "{text}");
    let kinds = fixture
        .run("get deployments,namespaces --no-headers --show-labels")
        .succeeded();
    assert!(kinds.contains("deployment.apps/web "), "{kinds}");
    assert!(kinds.contains("namespace/default "), "{kinds}");
    assert!(
        kinds.contains("kubernetes.io/metadata.name=default"),
        "{kinds}"
    );
    let none = fixture.run("get deployments -l app=nothing");
    assert_eq!(none.errors, "No resources found in default namespace.\n");
    assert_eq!(none.succeeded(), "");
}

#[test]
fn rows_and_documents_of_all_clusters_are_sorted_by_a_field() {
    let fixture = CliFixture::shared();
    let names = |line: &str| -> Vec<String> {
        let text = fixture.run(line).succeeded();
        let first = |line: &String| line.split(' ').next().unwrap().to_owned();
        rows(&text).iter().map(first).collect()
    };
    let is_sorted = |names: &[String]| {
        names.is_sorted() && names.iter().filter(|n| *n == "default").count() == 3
    };
    let ascending = names("get namespaces -s all --no-headers --sort-by .metadata.name");
    assert!(is_sorted(&ascending), "{ascending:?}");
    let documents = fixture.json("get namespaces -s all --sort-by {.metadata.name}");
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let items = documents["items"].as_array().unwrap().iter();
    let items: Vec<String> = items.map(name).collect();
    assert!(is_sorted(&items), "{items:?}");
    // A field that the rows' metadata does not have.
    let nodes = names("get nodes -C member1,member2 --no-headers --sort-by .status.capacity.cpu");
    assert_eq!(nodes.len(), 6, "{nodes:?}");
    fixture
        .run("get namespaces --sort-by .spec.nothing.here")
        .failed_with("couldn't find any field with path \"{.spec.nothing.here}\"");
    fixture
        .run("get namespaces --sort-by .items[*]")
        .failed_with("--sort-by takes a path of fields and positions");
    let kinds = names("get namespaces default --no-headers --show-kind");
    assert_eq!(kinds, ["namespace/default"]);
}

#[test]
fn managed_fields_are_shown_when_asked_for() {
    let fixture = CliFixture::shared();
    let line = "get deployment web";
    let fields = |document: Value| document["metadata"]["managedFields"].clone();
    assert_eq!(fields(fixture.json(line)), Value::Null);
    let shown = fields(fixture.json(&format!("{line} --show-managed-fields")));
    assert!(!shown.as_array().unwrap().is_empty(), "{shown}");
}

#[test]
fn documents_of_several_clusters_name_their_cluster() {
    let fixture = CliFixture::shared();
    let one = fixture.json("get deployment web -C member1");
    assert_eq!(one["kind"], "Deployment");
    let list = fixture.json("get deployment web -s all");
    let items = list["items"].as_array().unwrap();
    let source = |item: &Value| {
        item["metadata"]["annotations"]["resource.karmada.io/cached-from-cluster"].clone()
    };
    let sources: Vec<Value> = items.iter().map(source).take(3).collect();
    assert_eq!(sources, [Value::Null, "member1".into(), "member2".into()]);
    // Other tests have Deployments beside it.
    let yaml = fixture
        .run("get deployments --field-selector metadata.name=web -C member1 -o yaml")
        .succeeded();
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["items"][0]["metadata"]["name"], "web");
    let names = fixture.run("get deployments/web -C member1,member2 -o name");
    assert_eq!(
        names.succeeded(),
        "deployment.apps/web\ndeployment.apps/web\n"
    );
}

#[test]
fn what_does_not_exist_is_an_error_of_its_cluster() {
    let fixture = CliFixture::shared();
    let refusals = [
        ("get", "You must specify the type of resource to get."),
        ("get deployments -C moon", "clusters don't exist: moon"),
        (
            "get dragons",
            "cluster(Karmada): the server has no resource type",
        ),
        (
            "get deployment nothing -C member1",
            "cluster(member1): deployments.apps \"nothing\" not found",
        ),
        ("get deployment web -s karmada -C member1", "leave one out"),
        (
            "get deployment web -A",
            "a resource cannot be retrieved by name across all namespaces",
        ),
        (
            "get deployment --output-watch-events",
            "--output-watch-events option can only be used with --watch or --watch-only",
        ),
        (
            "get deployments -s members -o jsonpath={.items}",
            "one server at a time",
        ),
    ];
    for (line, message) in refusals {
        fixture.run(line).failed_with(message);
    }
    let ignored = fixture.run("get deployment nothing -C member1 --ignore-not-found");
    assert_eq!(ignored.succeeded(), "");
}

#[test]
fn a_member_that_does_not_answer_is_one_line_of_warning() {
    let fixture = CliFixture::with_changing_clusters();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", silent.local_addr().unwrap());
    fixture.register_cluster("silent", Some(&address));
    let start = Instant::now();
    let actual = fixture.run("get deployment web -C member1,silent --request-timeout 2s");
    assert!(start.elapsed() < Duration::from_secs(20));
    let warnings: Vec<&str> = actual.errors.lines().collect();
    assert_eq!(warnings.len(), 1, "{actual:?}");
    assert!(
        warnings[0].starts_with("Warning: cluster(silent) is inaccessible"),
        "{actual:?}"
    );
    assert_eq!(rows(&actual.succeeded()).len(), 2);
    fixture
        .run("get deployment web -C silent --request-timeout 1s")
        .failed_with("no cluster has answered");
}

#[test]
fn a_watch_prints_the_changes_of_all_members() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    fixture.propagate_deployment("watched");
    let arguments = [
        "get",
        "deployments",
        "-n",
        "watched",
        "-C",
        "member1,member2",
        "-w",
    ];
    let mut watch = fixture.spawn(&arguments);
    let lines = lines_of(&mut watch.child);
    let wait_for = |expected: &[&str]| {
        let mut missing: Vec<&str> = expected.to_vec();
        while !missing.is_empty() {
            let line = lines.recv_timeout(TIMEOUT).unwrap();
            let line = rows(&line).concat();
            missing.retain(|start| !line.starts_with(start));
        }
    };
    wait_for(&["NAME CLUSTER READY"]);
    wait_for(&["web member1 2/2", "web member2 2/2"]);
    let patch = [
        "-n",
        "watched",
        "deployment",
        "web",
        "-p",
        "{\"spec\":{\"replicas\":3}}",
    ];
    let patched = fixture.command(&["patch"]).args(patch).status().unwrap();
    assert!(patched.success());
    wait_for(&["web member1 3/3", "web member2 3/3"]);
}

// proves: CLI-watch-screen
#[test]
fn a_watch_on_a_terminal_is_one_table_that_is_drawn_anew() {
    let fixture = CliFixture::shared();
    let map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
            "labels": {"drawn": "true"}}, "data": {"a": "b"}})
    };
    fixture.create_in_member(map("drawn-a"));
    let line = "get configmaps -l drawn=true -C member1,member2 -w";
    let Some(mut terminal) = spawn_on_terminal(&fixture, line) else {
        return;
    };
    let lines = lines_of(&mut terminal);
    // The tables, each up to the next one.
    let mut table: Vec<String> = Vec::new();
    let mut wait_for = |names: &[&str]| {
        while table != names {
            let line = lines.recv_timeout(TIMEOUT).unwrap();
            let line = rows(&line).concat();
            match line.strip_prefix("\u{1b}[H\u{1b}[J") {
                Some(header) => {
                    assert!(header.starts_with("NAME CLUSTER DATA AGE"), "{header}");
                    table.clear();
                }
                None => table.extend(line.split(' ').next().map(str::to_owned)),
            }
        }
    };
    wait_for(&["drawn-a"]);
    fixture.create_in_member(map("drawn-b"));
    wait_for(&["drawn-a", "drawn-b"]);
    fixture.delete_in_member(&CONFIG_MAPS, "default", "drawn-a");
    wait_for(&["drawn-b"]);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    fixture.delete_in_member(&CONFIG_MAPS, "default", "drawn-b");
}

#[test]
fn the_examples_of_the_help_work() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    fixture.run_examples("get");
}
