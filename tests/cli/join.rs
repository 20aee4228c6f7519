//! `join` and `unjoin`: the checks before a join, and what a removal accounts for.

use harness::https_server::FakeHttpsServer;
use harness::objects::{CONFIG_MAPS, NAMESPACES, config_map, policy};
use harness::{ApiServerClient, ServerProcess};
use serde_json::{Value, json};

use crate::cli::fixture::{BINARY, CliFixture, CommandOutput};

/// A simulated cluster that is not joined.
pub(crate) struct UnjoinedMember {
    dir: tempfile::TempDir,
    /// `None` after a kill.
    process: Option<ServerProcess>,
}

impl UnjoinedMember {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = ServerProcess::start_member(BINARY, dir.path(), 1, &[]);
        Self {
            dir,
            process: Some(process),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// A client of the cluster. Must be called where tokio runs.
    pub(crate) fn client(&self) -> ApiServerClient {
        ApiServerClient::connect("member", &self.dir.path().join("kubeconfig"))
    }

    pub(crate) fn kubeconfig(&self) -> Value {
        let text = std::fs::read_to_string(self.dir.path().join("kubeconfig")).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    }
}

/// The command that joins a cluster of this name.
pub(crate) fn join_line(name: &str) -> String {
    format!("join {name} --cluster-kubeconfig {name}.kubeconfig")
}

fn assert_refused(output: &CommandOutput, check: &str, reason: &str, remedy: &str) {
    let line = output
        .errors
        .lines()
        .find(|line| line.contains(&format!("[ERROR {check}]: ")));
    assert!(line.is_some(), "no {check} in {output:?}");
    let line = line.unwrap();
    assert!(line.contains(reason), "{reason:?} not in {line}");
    assert!(line.contains(remedy), "{remedy:?} not in {line}");
    assert_eq!(output.code, 1, "{output:?}");
}

// proves: UNJ-account
#[test]
fn the_examples_join_and_unjoin_a_cluster() {
    let fixture = CliFixture::with_changing_clusters();
    let member = UnjoinedMember::start();
    fixture.write_kubeconfig("m1", &member.kubeconfig());
    let dry = fixture
        .run(&format!("{} --dry-run", join_line("m1")))
        .succeeded();
    assert_eq!(dry, "cluster(m1) is joined successfully (dry run)\n");
    fixture.run("get cluster m1").failed_with("not found");

    fixture.run_examples("join");
    let cluster = fixture.json("get cluster m1");
    assert_eq!(cluster["spec"]["region"], "eu");
    let again = fixture.run("join m2 --cluster-kubeconfig m1.kubeconfig");
    again.failed_with("has been registered as \"m1\"");

    let dry = fixture.run("unjoin m1 --dry-run").succeeded();
    assert!(dry.contains("would be deleted with their"), "{dry}");
    fixture.run("get cluster m1").succeeded();
    let unjoined = fixture
        .run("unjoin m1 --cluster-kubeconfig m1.kubeconfig --wait 1m")
        .succeeded();
    for line in [
        "execution space: karmada-es-m1 deleted",
        "credentials: karmada-cluster/m1, karmada-cluster/m1-impersonator deleted",
        "member: ClusterRoleBinding karmada-controller-manager:karmada-m1, ",
        "cluster(m1) is unjoined successfully",
    ] {
        assert!(unjoined.contains(line), "{line:?} not in {unjoined}");
    }
    fixture.run("get cluster m1").failed_with("not found");
    // A namespace that is being deleted takes no account.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let api = member.client();
        api.wait_until_deleted(&NAMESPACES, "", "karmada-cluster")
            .await;
    });
    fixture.run_examples("join");
    fixture.run_examples("unjoin");
    let help = fixture.run("unjoin m1 --wait 0s");
    assert!(
        help.errors.contains("must be a positive duration"),
        "{help:?}"
    );
}

/// The name in the kubeconfig is in no certificate.
// proves: TLV-annotation
#[test]
fn a_certificate_of_another_name_is_accepted_if_that_is_asked_for() {
    let fixture = CliFixture::with_changing_clusters();
    let member = UnjoinedMember::start();
    let mut kubeconfig = member.kubeconfig();
    fixture.write_kubeconfig("plain", &kubeconfig);
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "elsewhere.example".into();
    fixture.write_kubeconfig("named", &kubeconfig);
    let join = join_line("named");
    fixture.run(&join).failed_with("elsewhere.example");
    fixture
        .run(&format!("{join} --disable-tls-validation Name"))
        .failed_with("must be SubjectName, ValidityPeriod or both");
    fixture
        .run(&format!("{join} --disable-tls-validation SubjectName"))
        .succeeded();
    let cluster = fixture.json("get cluster named");
    assert_eq!(
        cluster["metadata"]["annotations"]["flotilla.io/disabled-tls-validations"],
        "SubjectName"
    );
    fixture
        .run("unjoin named --cluster-kubeconfig plain.kubeconfig --wait 1m")
        .succeeded();
}

// proves: UNJ-ends
#[test]
fn a_member_that_is_dead_is_removed_by_force() {
    let fixture = CliFixture::with_changing_clusters();
    let mut member = UnjoinedMember::start();
    fixture.write_kubeconfig("dead", &member.kubeconfig());
    fixture.run(&join_line("dead")).succeeded();
    let map = config_map("default", "on-dead", "v");
    fixture.create(policy("default", "on-dead", &map, &["dead"]));
    fixture.create(map);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let kubeconfig = member.dir.path().join("kubeconfig");
        let api = ApiServerClient::connect("dead", &kubeconfig);
        api.wait_until_exists(&CONFIG_MAPS, "default", "on-dead")
            .await;
    });
    member.kill();
    let waiting = "works in karmada-es-dead whose objects the member still has";
    let late = fixture.run("unjoin dead --wait 3s");
    assert!(late.errors.contains("still waiting: "), "{late:?}");
    late.failed_with(waiting);
    let forced = fixture.run("unjoin dead --wait 1s --force").succeeded();
    for part in [
        "given up by force; ",
        "ConfigMap default/on-dead",
        "credentials: karmada-cluster/dead, karmada-cluster/dead-impersonator deleted",
        "ClusterRole karmada-controller-manager:karmada-dead",
    ] {
        assert!(forced.contains(part), "{part:?} not in {forced}");
    }
    fixture.run("get cluster dead").failed_with("not found");
}

// proves: JOI-preflight
#[test]
fn members_that_cannot_be_used_are_refused_with_what_to_do() {
    let fixture = CliFixture::with_changing_clusters();
    let member = UnjoinedMember::start();
    let good = member.kubeconfig();
    let join_with = |change: &dyn Fn(&mut Value)| {
        let mut kubeconfig = good.clone();
        change(&mut kubeconfig);
        fixture.write_kubeconfig("unusable", &kubeconfig);
        fixture.run(&join_line("unusable"))
    };
    let output = join_with(&|config| {
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1".into();
    });
    assert_refused(
        &output,
        "Reachable",
        "refused",
        "check that its API server runs",
    );
    let output = join_with(&|config| {
        let own = std::fs::read_to_string(fixture.dir().join("kubeconfig")).unwrap();
        let own: Value = serde_saphyr::from_str(&own).unwrap();
        let other = &own["clusters"][0]["cluster"]["certificate-authority-data"];
        config["clusters"][0]["cluster"]["certificate-authority-data"] = other.clone();
    });
    assert_refused(&output, "TLS", "invalid peer certificate", "certificate");
    let output = join_with(&|config| {
        config["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
    });
    assert_refused(
        &output,
        "TLS",
        "tls-server-name \"localhost\"",
        "use an address",
    );
    let output = join_with(&|config| {
        config["users"][0]["user"] = json!({"token": "expired"});
    });
    assert_refused(&output, "Credentials", "401", "expired");
    let output = join_with(&|config| {
        config["users"][0]["user"]["as"] = "nobody".into();
    });
    assert_refused(
        &output,
        "Rights",
        "create clusterroles",
        "cluster administrator",
    );
    fixture.run("get cluster unusable").failed_with("not found");
}

// proves: JOI-preflight
#[test]
fn a_member_of_another_control_plane_is_refused() {
    let fixture = CliFixture::with_changing_clusters();
    let member = UnjoinedMember::start();
    fixture.write_kubeconfig("taken", &member.kubeconfig());
    let role = "karmada-controller-manager:karmada-theirs";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let role: Value = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role, "labels": {"karmada.io/system": "true"},
            "annotations": {"flotilla.io/control-plane-id": "another"}}, "rules": []});
    runtime.block_on(async {
        let kubeconfig = member.dir.path().join("kubeconfig");
        let api = ApiServerClient::connect("m1", &kubeconfig);
        api.create(role).await;
    });
    let reason = "the control plane another has joined the member as \"theirs\"";
    assert_refused(
        &fixture.run(&join_line("taken")),
        "AlreadyManaged",
        reason,
        "unjoin it there first",
    );
    let forced = fixture.run(&format!(
        "{} --dry-run --ignore-preflight-errors alreadymanaged",
        join_line("taken")
    ));
    assert!(forced.errors.contains("[WARNING]"), "{forced:?}");
    forced.succeeded();
    let unknown = fixture.run(&format!(
        "{} --ignore-preflight-errors Nothing",
        join_line("taken")
    ));
    assert!(unknown.errors.contains("the checks are"), "{unknown:?}");
}

/// A server that answers as an old cluster whose clock has stopped.
fn old_server() -> harness::https_server::TestRequestHandler {
    std::sync::Arc::new(|request| {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Box::pin(async move {
            let (code, body) = match (method.as_str(), path.as_str()) {
                ("GET", "/version") => (200, json!({"gitVersion": "v1.18.2"})),
                ("GET", "/readyz") => (
                    500,
                    json!({"kind": "Status", "code": 500, "message": "etcd failed"}),
                ),
                ("POST", "/api/v1/namespaces") => (
                    201,
                    json!({"kind": "Namespace", "metadata": {"name": "x", "creationTimestamp": "2020-01-01T00:00:00Z"}}),
                ),
                ("POST", _) => (
                    201,
                    json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}}),
                ),
                _ => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ),
            };
            let reply = hyper::Response::builder().status(code);
            let reply = reply.header("content-type", "application/json");
            let body = harness::http_client::full_body(body.to_string());
            reply.body(body).unwrap()
        })
    })
}

// proves: JOI-preflight
#[test]
fn an_old_member_with_another_time_is_refused() {
    let fixture = CliFixture::with_changing_clusters();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(FakeHttpsServer::start(old_server()));
    fixture.write_kubeconfig(
        "old",
        &json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "users": [{"name": "c", "user": {"token": "t"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", server.address),
                "insecure-skip-tls-verify": true}}]}),
    );
    let output = fixture.run(&join_line("old"));
    for (check, reason, remedy) in [
        (
            "Version",
            "the member runs Kubernetes v1.18.2",
            "upgrade the member",
        ),
        ("Ready", "not ready", "wait until"),
        ("ClockSkew", "behind that of the control plane", "NTP"),
    ] {
        assert_refused(&output, check, reason, remedy);
    }
}
