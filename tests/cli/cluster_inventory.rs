//! The cluster inventory: ClusterProfiles through kubectl, and a consumer that reaches a member by
//! one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::process::run_with_input;
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, CommandOutput, TIMEOUT, run_command};

const NAMESPACE: &str = "karmada-system";

/// Waits for a state of the control plane.
fn wait_until(is_reached: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_reached() {
        assert!(Instant::now() < end, "the state is not reached");
        harness::sleep_blocking(Duration::from_millis(100));
    }
}

fn kubectl(fixture: &CliFixture, line: &str) -> CommandOutput {
    let words = harness::kubectl::split_words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_command(&fixture.command_of("kubectl", &words))
}

fn profile(fixture: &CliFixture, name: &str) -> Value {
    let line = format!("get clusterprofile {name} -n {NAMESPACE} -o json --ignore-not-found");
    let text = kubectl(fixture, &line).succeeded();
    match text.trim() {
        "" => Value::Null,
        text => machinery::json::from_str(text).unwrap(),
    }
}

fn apply(fixture: &CliFixture, object: &Value) {
    let command = fixture.command_of("kubectl", &["apply", "-f", "-"]);
    let output = run_with_input(&command, object.to_string().as_bytes());
    assert!(output.status.success(), "{output:?}");
}

/// The kubeconfig of a consumer who knows a plug-in for the access provider `flotilla`: it prints
/// the token of a service account of the control plane.
fn consumer_kubeconfig(fixture: &CliFixture, profile: &Value) -> PathBuf {
    let rules = json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
        "resourceNames": ["member1"], "verbs": ["*"]}]);
    let version = "rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "ServiceAccount", "name": "consumer", "namespace": "default"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "consumer", "namespace": "default"}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "consumer"},
            "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "consumer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "consumer"},
            "subjects": [subject]}),
    ] {
        apply(fixture, &object);
    }
    let token = kubectl(fixture, "create token consumer").succeeded();
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": token.trim()}});
    let credential_file = fixture.dir().join("consumer-credential");
    std::fs::write(&credential_file, credential.to_string()).unwrap();
    let config = json!({"apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "c", "cluster": profile["status"]["accessProviders"][0]["cluster"]}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
            "command": "cat", "args": [credential_file], "interactiveMode": "Never"}}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x"});
    let file = fixture.dir().join("consumer-kubeconfig");
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

// proves: INV-kind, INV-profile, INV-access, INV-deleted, ADD-cluster-inventory
#[test]
fn consumers_find_and_reach_members_by_their_profiles() {
    let Some(_) = harness::tools(["kubectl-1.36"]) else {
        return;
    };
    let fixture = CliFixture::start();
    for name in ["member1", "member2"] {
        wait_until(|| profile(&fixture, name)["status"]["conditions"][0]["status"] == "True");
    }
    let table = kubectl(&fixture, &format!("get clusterprofiles -n {NAMESPACE}")).succeeded();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(4).collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "MANAGER", "VERSION", "HEALTHY"]);
    assert_eq!(
        [rows[1][0], rows[1][1], rows[1][3]],
        ["member1", "flotilla", "True"]
    );
    kubectl(&fixture, "get crd clusterprofiles.multicluster.x-k8s.io").succeeded();

    let member1 = profile(&fixture, "member1");
    assert!(
        !member1.to_string().to_lowercase().contains("token"),
        "{member1}"
    );
    let consumer = consumer_kubeconfig(&fixture, &member1)
        .display()
        .to_string();
    let as_consumer = |line: &str| kubectl(&fixture, &format!("--kubeconfig {consumer} {line}"));
    // The member knows the user of the control plane, and gives it no right of its own.
    wait_until(|| {
        let denial = as_consumer("get deployments -n default").errors;
        denial.contains("\"system:serviceaccount:default:consumer\" cannot list")
    });
    let member_kubeconfig = fixture
        .dir()
        .join("member1/kubeconfig")
        .display()
        .to_string();
    let grant =
        "create clusterrolebinding consumer --clusterrole=view --serviceaccount=default:consumer";
    kubectl(
        &fixture,
        &format!("--kubeconfig {member_kubeconfig} {grant}"),
    )
    .succeeded();
    wait_until(|| {
        let output = as_consumer("get deployments -n default");
        output.code == 0 && output.out.contains("web")
    });

    fixture
        .run("addons disable flotilla-cluster-inventory --force")
        .succeeded();
    let patch =
        "patch clusterprofile member1 --type merge -p '{\"spec\":{\"displayName\":\"other\"}}'";
    kubectl(&fixture, &format!("{patch} -n {NAMESPACE}")).succeeded();
    fixture
        .run("addons enable flotilla-cluster-inventory")
        .succeeded();
    wait_until(|| profile(&fixture, "member1")["spec"]["displayName"] == "member1");
    kubectl(&fixture, "delete cluster member2 --wait=false").succeeded();
    wait_until(|| profile(&fixture, "member2").is_null());
}
