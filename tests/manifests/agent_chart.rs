//! The chart of the agent renders the objects that `flotilla register` creates.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use harness::{FlotillaUpProcess, ServerProcess, tools};
use serde_json::{Value, json};

use crate::manifests::chart::{remove_release_metadata, run_helm};
use crate::manifests::install::{parse_objects, run_flotilla};
use crate::manifests::{BINARY, manifest_path};

const NAMESPACE: &str = "karmada-system";

/// A control plane, and a member that has not registered.
struct Fixture {
    up: FlotillaUpProcess,
    member: tempfile::TempDir,
    _process: ServerProcess,
}

impl Fixture {
    fn start() -> Self {
        let member = tempfile::tempdir().unwrap();
        let process = ServerProcess::start_member(BINARY, member.path(), 1, &[]);
        let up = FlotillaUpProcess::start(BINARY, 0, &[]);
        Self {
            up,
            member,
            _process: process,
        }
    }

    /// The output of `flotilla register` with a new token, without its progress.
    async fn register(&self, more: &[&str]) -> String {
        let control = self.up.dir().join("kubeconfig").display().to_string();
        let create = ["token", "create", "--print-register-command"];
        let printed = run_flotilla(&[&create[..], &["--kubeconfig", &control]].concat()).await;
        let line = printed.lines().find(|l| l.starts_with("flotilla register"));
        let mut command = Command::new(BINARY);
        command.args(line.unwrap().split_whitespace().skip(1));
        command.arg("--kubeconfig");
        command.arg(self.member.path().join("kubeconfig"));
        command.args(more);
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = output.await.unwrap().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// The objects of the chart without what only a release of Helm has.
async fn render(helm: &Path, values: &Value) -> BTreeMap<String, Value> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    let (chart, file) = (manifest_path("agent-chart"), file.display().to_string());
    let chart = chart.display().to_string();
    let command = ["template", "agent", &chart, "-n", NAMESPACE, "-f", &file];
    let text = run_helm(helm, &command).await;
    let documents = text.split("\n---\n").filter(|text| text.contains("kind:"));
    let mut objects = parse_objects(&documents.collect::<Vec<_>>().join("\n---\n"));
    objects.values_mut().for_each(remove_release_metadata);
    objects
}

/// The objects that `flotilla register` prints, but the namespace, which Helm creates itself.
fn printed_objects(printed: &str) -> BTreeMap<String, Value> {
    let mut objects = parse_objects(printed);
    let namespace = format!("\"Namespace\" /\"{NAMESPACE}\"");
    objects.remove(&namespace).unwrap();
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_chart_renders_what_register_creates() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let fixture = tokio::task::spawn_blocking(Fixture::start).await.unwrap();
    let print = ["--cluster-name", "edge", "--print", "manifests"];
    let registered = printed_objects(&fixture.register(&print).await);
    let secret = &registered[&format!("\"Secret\" {NAMESPACE}/\"karmada-kubeconfig\"")];
    let kubeconfig = &secret["stringData"]["karmada-kubeconfig"];
    let deployment = &registered[&format!("\"Deployment\" {NAMESPACE}/\"karmada-agent\"")];
    let command = deployment["spec"]["template"]["spec"]["containers"][0]["command"].as_array();
    let mut words = command.unwrap().iter().filter_map(Value::as_str);
    let endpoint = words.find_map(|word| word.strip_prefix("--cluster-api-endpoint="));
    let values = json!({"clusterName": "edge", "clusterApiEndpoint": endpoint,
        "kubeconfig": kubeconfig});
    assert_eq!(render(&helm, &values).await, registered);

    let flags = "--cluster-provider p --cluster-region r --cluster-zones a,b --feature-gates Failover=true \
                 --report-secrets None --karmada-agent-replicas 2 --enable-cert-rotation --print manifests \
                 --proxy-server-address http://proxy:3128 --cluster-name west --karmada-agent-image r/f:v2";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let mut registered = printed_objects(&fixture.register(&flags).await);
    // Who lets the agent write its Secret creates it without the chart.
    registered.retain(|name, _| !name.starts_with("\"Secret\""));
    let values = json!({"clusterName": "west", "clusterApiEndpoint": endpoint, "replicas": 2,
        "clusterProvider": "p", "clusterRegion": "r", "clusterZones": ["a", "b"],
        "featureGates": {"Failover": true}, "reportSecrets": ["None"], "enableCertRotation": true,
        "proxyServerAddress": "http://proxy:3128", "image": {"repository": "r/f", "tag": "v2"}});
    assert_eq!(render(&helm, &values).await, registered);

    let print = ["--cluster-name", "south", "--print", "kubeconfig"];
    let kubeconfig: Value = serde_saphyr::from_str(&fixture.register(&print).await).unwrap();
    assert_eq!(kubeconfig["users"][0]["name"], "south");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_of_the_agent_chart_are_refused() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let chart = manifest_path("agent-chart");
    for (values, error) in [
        ("replicas=1", "at '/clusterName': minLength"),
        (
            "clusterName=Edge",
            "at '/clusterName': 'Edge' does not match",
        ),
        (
            "clusterName=a,replica=2",
            "additional properties 'replica' not allowed",
        ),
        ("clusterName=a,reportSecrets={All}", "at '/reportSecrets/0'"),
        (
            "clusterName=a,kubeconfig=x,enableCertRotation=true",
            "at '/kubeconfig': maxLength",
        ),
    ] {
        let mut command = Command::new(&helm);
        command.args(["template", "agent"]).arg(&chart);
        command.args(["--set", values]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(error),
            "{values}: {text}"
        );
    }
}
