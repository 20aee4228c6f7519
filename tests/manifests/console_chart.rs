//! The console of the Helm chart: it is off by default, has no rights, and starts as the chart says.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use auth::pki::Pki;
use harness::process::{RunningCommand, lines_of};
use harness::raw_http::{RawHttpRequest, TestTlsClientConfig};
use harness::tools;
use serde_json::{Value, json};

use crate::manifests::BINARY;
use crate::manifests::chart::render_in;

const VALUES: &str = "console.enabled=true,console.externalUrl=https://console.example.com,console.tlsSecretName=console-tls";

/// The objects of the console in the chart.
fn console_objects(objects: &BTreeMap<String, Value>) -> BTreeMap<&str, &Value> {
    let name = " fleet/\"flotilla-console\"";
    let objects = objects.iter();
    objects
        .filter_map(|(key, object)| Some((key.strip_suffix(name)?.trim_matches('"'), object)))
        .collect()
}

// proves: CON-chart
#[tokio::test(flavor = "multi_thread")]
async fn the_console_of_the_chart_has_no_rights_and_is_off_by_default() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let without = render_in(&helm, "fleet", &[]).await;
    assert!(console_objects(&without).is_empty());
    let with = render_in(&helm, "fleet", &["--set", VALUES]).await;
    let objects = console_objects(&with);
    let kinds: Vec<&str> = objects.keys().copied().collect();
    assert_eq!(kinds, ["Deployment", "Service", "ServiceAccount"]);
    // Nothing else is different: no role is granted.
    assert_eq!(with.len(), without.len() + 3);
    assert!(
        without
            .iter()
            .all(|(key, object)| with.get(key) == Some(object))
    );
    assert_eq!(
        objects["ServiceAccount"]["automountServiceAccountToken"],
        false
    );
    let pod = &objects["Deployment"]["spec"]["template"];
    let selector = &objects["Service"]["spec"]["selector"];
    assert_eq!(*selector, pod["metadata"]["labels"]);
    assert_ne!(
        *selector,
        with["\"Service\" fleet/\"flotilla\""]["spec"]["selector"]
    );
    let pod = &pod["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &pod["containers"][0];
    let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}});
    assert_eq!(container["securityContext"], expected);
    let volumes = json!([{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}},
        {"name": "tls", "secret": {"secretName": "console-tls"}}]);
    assert_eq!(pod["volumes"], volumes);
    let plain = "console.enabled=true,console.externalUrl=https://console.example.com,console.insecureHttp=true";
    let plain = render_in(&helm, "fleet", &["--set", plain]).await;
    let plain = console_objects(&plain);
    let pod = &plain["Deployment"]["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"],
        "HTTP"
    );
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(plain["Service"]["spec"]["ports"][0]["port"], 80);
}

// proves: CON-chart
#[tokio::test(flavor = "multi_thread")]
async fn the_console_of_the_chart_starts_and_is_probed() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let objects = render_in(&helm, "fleet", &["--set", VALUES]).await;
    let container =
        &console_objects(&objects)["Deployment"]["spec"]["template"]["spec"]["containers"][0];
    let probe = container["readinessProbe"]["httpGet"]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    let arguments = container["args"].as_array().unwrap().iter();
    let arguments: Vec<String> = arguments.map(|a| a.as_str().unwrap().to_owned()).collect();
    let checked = tokio::task::spawn_blocking(move || {
        let dir = tempfile::tempdir().unwrap();
        let names = ["console.example.com".to_owned()];
        let pki = Pki::open(&dir.path().join("pki"), &names, jiff::Timestamp::now()).unwrap();
        for (folder, file, content) in [
            ("ca", "ca.crt", &pki.ca_pem),
            ("tls", "tls.crt", &pki.serving.certificate_pem),
            ("tls", "tls.key", &pki.serving.key_pem),
        ] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            std::fs::write(dir.path().join(folder).join(file), content).unwrap();
        }
        let mounts = dir.path().display().to_string();
        let local = |argument: &String| {
            let argument = argument.replace("/etc/flotilla", &mounts);
            argument.replace("0.0.0.0:8443", "127.0.0.1:0")
        };
        let mut command = Command::new(BINARY);
        command.args(arguments.iter().map(local));
        let mut console = RunningCommand::start(&command);
        let ready = lines_of(&mut console.child).recv_timeout(Duration::from_secs(60));
        let ready = ready.unwrap();
        let address = ready.strip_prefix("ready https://").unwrap();
        let address = address.split(' ').next().unwrap();
        let client = TestTlsClientConfig::new(&pki.ca_pem, None);
        let request = RawHttpRequest::new(address, &client, "GET", &probe);
        let answer = request
            .server_name("console.example.com")
            .host(address)
            .send();
        (answer.code, answer.text())
    });
    assert_eq!(checked.await.unwrap(), (200, "ok".to_owned()));
}
