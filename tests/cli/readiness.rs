//! Waits of kubectl and Helm for templates: they end by the conditions of the aggregated status.

use harness::objects::{deployment, policy};
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, run_command};

const NAMESPACE: &str = "readiness";
const MEMBERS: [&str; 2] = ["member1", "member2"];

fn kubectl(fixture: &CliFixture, line: &str) -> String {
    let line = format!("{line} --namespace {NAMESPACE} --timeout 60s");
    let words: Vec<&str> = line.split(' ').collect();
    run_command(&fixture.command_of("kubectl", &words)).succeeded()
}

/// A template of another kind with the pod template of a Deployment.
fn workload(kind: &str, name: &str) -> Value {
    let mut workload = deployment(NAMESPACE, name, 2);
    workload["kind"] = kind.into();
    match kind {
        "StatefulSet" => workload["spec"]["serviceName"] = name.into(),
        "DaemonSet" => {
            workload["spec"].as_object_mut().unwrap().remove("replicas");
        }
        _ => {
            let pod = workload["spec"]["template"]["spec"].take();
            workload = json!({"apiVersion": "v1", "kind": kind, "spec": pod,
                "metadata": {"name": name, "namespace": NAMESPACE}});
        }
    }
    workload
}

#[test]
fn kubectl_waits_for_templates() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    fixture.propagate_deployment(NAMESPACE);
    for (kind, name) in [("StatefulSet", "s"), ("DaemonSet", "d"), ("Pod", "p")] {
        let template = workload(kind, name);
        fixture.create(policy(NAMESPACE, name, &template, &MEMBERS));
        fixture.create(template);
    }
    for line in [
        "wait --for=condition=Available deployment/web",
        "rollout status deployment/web",
        "rollout status statefulset/s",
        "rollout status daemonset/d",
        "wait --for=condition=Ready pod/p",
    ] {
        kubectl(&fixture, line);
    }
    // The edit is observed, rolled out and available.
    let set = "set image deployment/web --namespace readiness *=other";
    let words: Vec<&str> = set.split(' ').collect();
    run_command(&fixture.command_of("kubectl", &words)).succeeded();
    kubectl(&fixture, "rollout status deployment/web");
    kubectl(&fixture, "wait --for=condition=Available deployment/web");
    let web = fixture.json("get deployment web --namespace readiness");
    let status = &web["status"];
    assert_eq!(status["observedGeneration"], web["metadata"]["generation"]);
    assert_eq!(status["updatedReplicas"], 4);
}

/// A release with a workload of each kind that Helm waits for.
const CHART: [(&str, &str); 2] = [
    (
        "Chart.yaml",
        "{apiVersion: v2, name: web, version: 0.1.0}\n",
    ),
    (
        "templates/all.yaml",
        "{{- $pod := dict \"containers\" (list (dict \"name\" \"c\" \"image\" .Values.image)) }}
{{- $labels := dict \"app\" .Release.Name }}
{{- range $kind := list \"Deployment\" \"StatefulSet\" \"DaemonSet\" }}
---
apiVersion: apps/v1
kind: {{ $kind }}
metadata: {name: release}
spec:
  {{- if ne $kind \"DaemonSet\" }}
  replicas: 4
  {{- end }}
  selector: {matchLabels: {{ toJson $labels }}}
  template: {metadata: {labels: {{ toJson $labels }}}, spec: {{ toJson $pod }}}
{{- end }}
---
{apiVersion: v1, kind: Pod, metadata: {name: release-{{ .Values.image }}}, spec: {{ toJson $pod }}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: release-{{ .Values.image }}}
spec: {template: {spec: {{ toJson (merge (dict \"restartPolicy\" \"Never\") $pod) }}}}
",
    ),
];

/// Clusters divide the replicas: a StatefulSet of which each cluster has all replicas has more than
/// its template asks for, which Helm takes for replicas that still have to go.
#[harness::slow]
#[test]
fn helm_waits_for_a_release() {
    let Some([helm]) = harness::tools(["helm"]) else {
        return;
    };
    let fixture = CliFixture::shared();
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "helm"}}));
    let kinds = [
        "apps/v1 Deployment",
        "apps/v1 StatefulSet",
        "apps/v1 DaemonSet",
        "v1 Pod",
        "batch/v1 Job",
    ];
    let selectors = kinds.map(|kind| {
        let (api_version, kind) = kind.split_once(' ').unwrap();
        json!({"apiVersion": api_version, "kind": kind})
    });
    fixture.create(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "release", "namespace": "helm"},
        "spec": {"resourceSelectors": selectors, "placement": {
            "clusterAffinity": {"clusterNames": MEMBERS},
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}}}}));
    let chart = fixture.dir().join("chart");
    for (name, text) in CHART {
        let file = chart.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let helm = helm.to_str().unwrap();
    for (command, image) in [("install", "one"), ("upgrade --rollback-on-failure", "two")] {
        let line = format!(
            "{command} release chart --namespace helm --set image={image} --wait --wait-for-jobs --timeout 60s"
        );
        let words: Vec<&str> = line.split(' ').collect();
        let printed = run_command(&fixture.command_of(helm, &words)).succeeded();
        assert!(printed.contains("STATUS: deployed"), "{printed}");
    }
    let ready = fixture.json("get deployment release --namespace helm");
    assert_eq!(ready["status"]["updatedReplicas"], 4);
}
