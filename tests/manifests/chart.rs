//! The Helm chart: it renders the objects of the other ways to install, its schema refuses wrong values,
//! and a real Helm installs, upgrades, rolls back and uninstalls it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use harness::objects::NAMESPACES;
use harness::tools;
use serde_json::{Value, json};

use crate::manifests::install::{InstallHost, parse_objects, run_command, run_flotilla};
use crate::manifests::manifest_path;

/// Runs Helm, which must succeed; returns its output without its remarks about linked files.
pub(crate) async fn run_helm(helm: &Path, arguments: &[&str]) -> String {
    let output = run_command(helm_command(helm, arguments), String::new()).await;
    let lines = output
        .lines()
        .filter(|line| !line.contains("found symbolic link"));
    lines.collect::<Vec<_>>().join("\n")
}

fn helm_command(helm: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command.args(arguments);
    command
}

pub(crate) fn chart() -> String {
    manifest_path("chart").display().to_string()
}

async fn render(helm: &Path, arguments: &[&str]) -> BTreeMap<String, Value> {
    render_in(helm, "fleet", arguments).await
}

/// The objects of the chart in a namespace, without what only a release of Helm has.
pub(crate) async fn render_in(
    helm: &Path,
    namespace: &str,
    arguments: &[&str],
) -> BTreeMap<String, Value> {
    let chart = chart();
    let command = ["template", "flotilla", &chart, "--namespace", namespace];
    let text = run_helm(helm, &[&command, arguments].concat()).await;
    let documents = text.split("\n---\n").filter(|text| text.contains("kind:"));
    let mut objects = parse_objects(&documents.collect::<Vec<_>>().join("\n---\n"));
    for object in objects.values_mut() {
        remove_release_metadata(object);
    }
    objects
}

/// Removes the metadata that only a release of Helm has.
pub(crate) fn remove_release_metadata(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove("app.kubernetes.io/managed-by");
        labels.remove("helm.sh/chart");
    }
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("helm.sh/resource-policy");
    }
    metadata.retain(|field, value| field != "annotations" || *value != json!({}));
}

/// The objects of `flotilla install`, but the namespace, which Helm creates itself.
async fn install_objects(arguments: &[&str]) -> BTreeMap<String, Value> {
    let command = [
        "install",
        "--namespace",
        "fleet",
        "--image",
        concat!("flotilla:", env!("CARGO_PKG_VERSION")),
    ];
    let mut objects = parse_objects(&run_flotilla(&[&command, arguments].concat()).await);
    objects.remove("\"Namespace\" /\"fleet\"").unwrap();
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_what_install_prints() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let own_etcd = render(&helm, &[]).await;
    assert_eq!(own_etcd, install_objects(&[]).await);
    let values = "replicas=3,hostWorkloads=propagate,awaitTakeover=true,etcd.servers={https://a:2379,https://b:2379},\
                  etcd.prefix=/fleet,etcd.secretName=etcd-client";
    let flags = "--replicas 3 --host-workloads propagate --await-takeover --etcd-servers https://a:2379,https://b:2379 \
                 --etcd-prefix /fleet --etcd-secret etcd-client";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let another_etcd = render(&helm, &["--set", values]).await;
    assert_eq!(another_etcd, install_objects(&flags).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_the_monitoring_manifests() {
    let Some([helm, kubectl]) = tools(["helm", "kubectl-new"]) else {
        return;
    };
    let mut command = Command::new(kubectl);
    command.arg("kustomize").arg(manifest_path("monitoring"));
    let built = run_command(command, String::new()).await;
    let built = parse_objects(&built.replace("flotilla-system", "fleet"));
    let values = "monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,\
                  monitoring.dashboards.enabled=true";
    let rendered = render(&helm, &["--set", values]).await;
    for (key, expected) in &built {
        assert_eq!(rendered.get(key), Some(expected), "{key}");
    }
    // No object of one is overwritten by one of the other.
    let installed = install_objects(&[]).await;
    let both: Vec<&String> = built
        .keys()
        .filter(|key| installed.contains_key(*key))
        .collect();
    assert_eq!(both, Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_acts_and_wrong_values_are_refused() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let deployment = "\"Deployment\" fleet/\"flotilla\"";
    for (value, key, pointer, expected) in [
        (
            "image.tag=v2",
            deployment,
            "/spec/template/spec/containers/0/image",
            json!("flotilla:v2"),
        ),
        (
            "image.pullSecrets={a}",
            deployment,
            "/spec/template/spec/imagePullSecrets",
            json!([{"name": "a"}]),
        ),
        (
            "nodeSelector.disk=ssd",
            deployment,
            "/spec/template/spec/nodeSelector/disk",
            json!("ssd"),
        ),
        (
            "priorityClassName=high",
            deployment,
            "/spec/template/spec/priorityClassName",
            json!("high"),
        ),
        (
            "podLabels.team=a",
            deployment,
            "/spec/template/metadata/labels/team",
            json!("a"),
        ),
        (
            "podAnnotations.a=b",
            deployment,
            "/spec/template/metadata/annotations/a",
            json!("b"),
        ),
        (
            "featureGates.Failover=true",
            deployment,
            "/spec/template/spec/containers/0/args/8",
            json!("--feature-gates=Failover=true"),
        ),
        (
            "metricsApiServices=Always",
            deployment,
            "/spec/template/spec/containers/0/args/8",
            json!("--metrics-api-services=Always"),
        ),
        (
            "extraArgs={--v=2}",
            deployment,
            "/spec/template/spec/containers/0/args/8",
            json!("--v=2"),
        ),
        (
            "addons.karmada-search=disabled",
            "\"ConfigMap\" fleet/\"flotilla-addons\"",
            "/data",
            json!({"karmada-search": "disabled"}),
        ),
        (
            "podDisruptionBudget.minAvailable=50%",
            "\"PodDisruptionBudget\" fleet/\"flotilla\"",
            "/spec/minAvailable",
            json!("50%"),
        ),
        (
            "etcd.storage.className=fast",
            "\"StatefulSet\" fleet/\"flotilla-etcd\"",
            "/spec/volumeClaimTemplates/0/spec/storageClassName",
            json!("fast"),
        ),
    ] {
        let objects = render(&helm, &["--set", value]).await;
        assert_eq!(objects[key].pointer(pointer), Some(&expected), "{value}");
    }
    for (value, removed) in [
        (
            "agents.enabled=false",
            "\"ClusterRole\" /\"flotilla-agents\"",
        ),
        (
            "impersonation.enabled=false",
            "\"ClusterRole\" /\"flotilla-impersonator\"",
        ),
        (
            "podDisruptionBudget.enabled=false",
            "\"PodDisruptionBudget\" fleet/\"flotilla\"",
        ),
    ] {
        assert!(
            !render(&helm, &["--set", value]).await.contains_key(removed),
            "{value}"
        );
    }
    let chart = chart();
    for (value, error) in [
        ("replicas=many", "at '/replicas': got string, want integer"),
        ("replica=3", "additional properties 'replica' not allowed"),
        (
            "hostWorkloads=maybe",
            "at '/hostWorkloads': value must be one of",
        ),
        ("etcd.servers={a:2379}", "at '/etcd/servers/0'"),
        ("etcd.secretName=s", "at '/etcd/servers': minItems"),
        ("etcd=null", "missing property 'etcd'"),
        ("podAnnotations.a=1", "at '/podAnnotations/a': got number"),
        ("image.repository=a b", "at '/image/repository'"),
        (
            "console.enabled=true",
            "at '/console/externalUrl': minLength",
        ),
        (
            "console.enabled=true,console.externalUrl=https://c",
            "at '/console/tlsSecretName': minLength",
        ),
        (
            "console.enabled=true,console.externalUrl=https://c,console.insecureHttp=true,console.tlsSecretName=s",
            "at '/console/tlsSecretName': maxLength",
        ),
        ("console.externalUrl=http://c", "at '/console/externalUrl'"),
        ("console.server=http://c", "at '/console/server'"),
        ("console=null", "missing property 'console'"),
    ] {
        let command = helm_command(&helm, &["template", "flotilla", &chart, "--set", value]);
        let output = harness::process::run(&command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(error),
            "{value}: {text}"
        );
    }
}

/// The hollow kubelet of the cluster runs the pods, so that Helm's wait ends.
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let Some(host) = InstallHost::start().await else {
        return;
    };
    let before = host.inventory().await;
    let (config, chart) = (host.kubeconfig(), chart());
    let replicas = "-n fleet get deployment flotilla -o jsonpath={.status.readyReplicas}";
    let replicas: Vec<&str> = replicas.split(' ').collect();
    let console = "console.enabled=true,console.externalUrl=https://console.example.com,console.insecureHttp=true";
    // Without server-side apply: the status that Kubernetes 1.20 writes takes fields of the StatefulSet.
    let wait = "--wait --timeout 120s --server-side=false";
    for (command, expected) in [
        (
            format!("install flotilla {chart} --create-namespace {wait}"),
            "2",
        ),
        (
            format!("upgrade flotilla {chart} --set replicas=3,{console} {wait}"),
            "3",
        ),
        (format!("rollback flotilla 1 {wait}"), "2"),
    ] {
        let line = format!("{command} --kubeconfig {config} --namespace fleet");
        run_helm(&helm, &line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(host.kubectl(&replicas, "").await, expected, "{command}");
    }
    let uninstall = format!("uninstall flotilla --kubeconfig {config} --namespace fleet");
    run_helm(&helm, &uninstall.split(' ').collect::<Vec<_>>()).await;
    host.server.delete(&NAMESPACES, "", "fleet").await;
    let mut remaining = before;
    // It has the credentials of the members.
    remaining.insert("namespaces /karmada-cluster".into());
    host.wait_for_inventory(&remaining).await;
}
