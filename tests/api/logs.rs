//! The log that a server process writes to standard error.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{ApiServerClient, ServerProcess};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::test_server::BINARY;

const RETRIES_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A server command whose standard error goes to a file.
struct LoggedServer {
    process: Option<ServerProcess>,
    address: String,
    dir: TempDir,
}

impl LoggedServer {
    /// Starts a command, whose last argument is the flag for its directory.
    fn start(command: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data").display().to_string();
        let arguments = [command, &[&data, "--listen", "127.0.0.1:0"]].concat();
        let (process, address) = ServerProcess::start(BINARY, &arguments, &dir.path().join("log"));
        Self {
            process: Some(process),
            address,
            dir,
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> String {
        read(&self.dir.path().join("log"))
    }

    /// Stops the server and returns its log.
    fn stop(mut self) -> String {
        self.process.take().unwrap().stop();
        self.log()
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn a_log_file_has_no_color_codes() {
    let server = LoggedServer::start(&["-v=2", "serve", "--data-dir"]);
    let log = server.stop();
    assert!(log.contains("INFO"), "no lines of level INFO: {log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn startup_log_line_names_mode_store_and_address() {
    for (command, mode) in [
        (&["serve", "--data-dir"][..], "standalone"),
        (&["up", "--dir"], "standalone"),
        (&["member", "--dir"], "member"),
    ] {
        let server = LoggedServer::start(command);
        let log = server.log();
        let serving_lines: Vec<&str> = log.lines().filter(|l| l.contains("serving")).collect();
        let [line] = *serving_lines else {
            panic!("{command:?}: {log}");
        };
        for part in [
            format!("mode=\"{mode}\""),
            "store=embedded".into(),
            format!("address={}", server.address),
            format!("data={}", server.data().display()),
        ] {
            assert!(line.contains(&part), "no {part} in {line}");
        }
    }
}

#[test]
fn json_log_format_writes_one_document_per_line() {
    let server = LoggedServer::start(&["-v=2", "serve", "--logging-format=json", "--data-dir"]);
    let (address, data) = (server.address.clone(), server.data());
    let log = server.stop();
    let documents: Vec<Value> = log
        .lines()
        .map(|line| {
            machinery::json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        })
        .collect();
    for document in &documents {
        for field in ["timestamp", "level", "message", "target"] {
            assert!(document[field].is_string(), "no {field}: {document}");
        }
    }
    let startup = documents
        .iter()
        .find(|d| d["message"] == "serving")
        .unwrap();
    assert_eq!(startup["mode"], "standalone");
    assert_eq!(startup["store"], "embedded");
    assert_eq!(startup["address"], *address);
    assert_eq!(startup["data"], data.display().to_string());
}

#[test]
fn json_log_format_covers_startup_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let mut command = std::process::Command::new(BINARY);
    let command = command.args(["serve", "--logging-format=json", "--data-dir"]);
    let out = harness::process::run(command.arg(&file));
    assert_eq!(out.status.code(), Some(1));
    let document: Value = machinery::json::from_slice(&out.stderr).unwrap();
    assert_eq!(document["level"], "ERROR");
    let message = document["message"].as_str().unwrap();
    assert!(message.contains(file.to_str().unwrap()), "{message}");
}

/// A Work that its member rejects is retried, and logged once.
#[tokio::test(flavor = "multi_thread")]
async fn a_work_that_keeps_failing_is_logged_once() {
    let started =
        tokio::task::spawn_blocking(|| LoggedServer::start(&["up", "--members=1", "--dir"]));
    let up = started.await.unwrap();
    let control = ApiServerClient::connect("control", &up.data().join("kubeconfig"));
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}},
                 "template": {"metadata": {"labels": {"app": "another"}}, "spec": {
                     "containers": [{"name": "web", "image": "web"}]}}}});
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "refused-work", "namespace": "karmada-es-member1"},
        "spec": {"workload": {"manifests": [manifest]}}});
    control.create(work).await;
    let retries = "workqueue_retries_total{name=\"execution\"}";
    let end = Instant::now() + RETRIES_TIMEOUT;
    loop {
        let metrics = control.api.get_raw("/metrics").await.unwrap();
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(retries));
        if line.is_some_and(|count| count.trim().parse::<f64>().unwrap() >= 8.0) {
            break;
        }
        assert!(Instant::now() < end, "no retries: {line:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let log = up.log();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("refused-work")).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
}

/// The secrets of the objects and requests of the test below; each contains this.
const SECRET: &str = "5ecre7";

/// Objects with credentials: in Secrets, and in the ways to members, stores and webhooks that nobody
/// answers.
fn objects_with_secrets() -> Vec<Value> {
    let secret = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "default", "name": name}, "stringData": data})
    };
    let reference = |name: &str| json!({"namespace": "default", "name": name});
    let (user, password) = (format!("user-{SECRET}"), format!("password-{SECRET}"));
    vec![
        secret("member", json!({"token": format!("token-{SECRET}")})),
        secret("store", json!({"username": user, "password": password})),
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "proxied"}, "spec": {"syncMode": "Push",
                "apiEndpoint": "https://127.0.0.1:1", "insecureSkipTLSVerification": true,
                "proxyURL": format!("http://{user}:{password}@127.0.0.1:1"),
                "proxyHeader": {"Proxy-Authorization": format!("Basic {SECRET}")},
                "secretRef": reference("member"), "impersonatorSecretRef": reference("member")}}),
        json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
            "metadata": {"name": "store"}, "spec": {"targetCluster": {},
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
                "backendStore": {"openSearch": {"addresses": ["https://127.0.0.1:1"],
                    "secretRef": reference("store")}}}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "unanswered"}, "webhooks": [{"name": "w.example.io",
                "clientConfig": {"url": format!("https://127.0.0.1:1/{SECRET}")},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["secrets"]}],
                "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"]}]}),
        secret("last", json!({"key": format!("value-{SECRET}")})),
    ]
}

/// At every level of `-v` up to that at which libraries log what they send.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_has_a_secret() {
    let command = ["-v=4", "serve", "--data-dir"];
    let started = tokio::task::spawn_blocking(move || LoggedServer::start(&command));
    let server = started.await.unwrap();
    let control = ApiServerClient::connect("control", &server.data().join("kubeconfig"));
    for object in objects_with_secrets() {
        control.create(object).await;
    }
    let token = format!("{SECRET}.{}", "x".repeat(32));
    let config =
        harness::raw_http::TestTlsClientConfig::new(&read(&server.data().join("pki/ca.crt")), None);
    let address = server.address.clone();
    let reply = tokio::task::spawn_blocking(move || {
        harness::raw_http::RawHttpRequest::new(&address, &config, "GET", "/api/v1/pods")
            .header("Authorization", &format!("Bearer {token}"))
            .send()
    });
    assert_eq!(reply.await.unwrap().code, 401);
    let accounts = machinery::Gvr::from_static("", "v1", "serviceaccounts");
    control
        .wait_until_exists(&accounts, "default", "default")
        .await;
    let token = client::ResourcePath::object(&accounts, "default", "default").subresource("token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let options = client::WriteOptions::default();
    let issued = control.api.create(token, request.into(), &options).await;
    let issued = issued.unwrap().value().unwrap();
    let issued = issued["status"]["token"].as_str().unwrap().to_owned();
    // The control plane has tried to reach the member.
    let has_condition = |cluster: &Value| cluster["status"]["conditions"].is_array();
    let clusters = machinery::Gvr::from_static("cluster.karmada.io", "v1alpha1", "clusters");
    control
        .wait_until(&clusters, "", "proxied", "a condition", has_condition)
        .await;
    let log = tokio::task::spawn_blocking(move || server.stop())
        .await
        .unwrap();
    assert!(
        log.contains("proxied"),
        "the log has no line about the member"
    );
    for secret in [
        SECRET,
        issued.as_str(),
        "BEGIN EC PRIVATE KEY",
        "BEGIN PRIVATE KEY",
    ] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(secret)).collect();
        assert!(lines.is_empty(), "{secret}: {lines:#?}");
    }
}
