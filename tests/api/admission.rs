//! Admission of Karmada's kinds through the served API: the decision and the complete message.
//!
//! `admission.txt` is the table of cases.

use harness::raw_http::RawHttpResponse;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const NAMESPACE: &str = "n";
const CACHE_TIMEOUT: Duration = Duration::from_secs(90);
/// The kinds of the table: kind, group and version, resource, and whether it is namespaced.
const KINDS: [(&str, &str, &str, bool); 21] = [
    ("Cluster", "cluster.karmada.io/v1alpha1", "clusters", false),
    (
        "ClusterOverridePolicy",
        "policy.karmada.io/v1alpha1",
        "clusteroverridepolicies",
        false,
    ),
    (
        "ClusterPropagationPolicy",
        "policy.karmada.io/v1alpha1",
        "clusterpropagationpolicies",
        false,
    ),
    (
        "ClusterResourceBinding",
        "work.karmada.io/v1alpha2",
        "clusterresourcebindings",
        false,
    ),
    (
        "ClusterTaintPolicy",
        "policy.karmada.io/v1alpha1",
        "clustertaintpolicies",
        false,
    ),
    (
        "FederatedResourceQuota",
        "policy.karmada.io/v1alpha1",
        "federatedresourcequotas",
        true,
    ),
    (
        "OverridePolicy",
        "policy.karmada.io/v1alpha1",
        "overridepolicies",
        true,
    ),
    (
        "PropagationPolicy",
        "policy.karmada.io/v1alpha1",
        "propagationpolicies",
        true,
    ),
    (
        "ResourceBinding",
        "work.karmada.io/v1alpha2",
        "resourcebindings",
        true,
    ),
    (
        "ReplicaSchedulingPreference",
        "scheduling.kubefed.io/v1alpha1",
        "replicaschedulingpreferences",
        true,
    ),
    (
        "ResourceInterpreterCustomization",
        "config.karmada.io/v1alpha1",
        "resourceinterpretercustomizations",
        false,
    ),
    (
        "ResourceInterpreterWebhookConfiguration",
        "config.karmada.io/v1alpha1",
        "resourceinterpreterwebhookconfigurations",
        false,
    ),
    ("Work", "work.karmada.io/v1alpha1", "works", true),
    (
        "CronFederatedHPA",
        "autoscaling.karmada.io/v1alpha1",
        "cronfederatedhpas",
        true,
    ),
    (
        "FederatedHPA",
        "autoscaling.karmada.io/v1alpha1",
        "federatedhpas",
        true,
    ),
    (
        "MultiClusterIngress",
        "networking.karmada.io/v1alpha1",
        "multiclusteringresses",
        true,
    ),
    (
        "MultiClusterService",
        "networking.karmada.io/v1alpha1",
        "multiclusterservices",
        true,
    ),
    (
        "ServiceExport",
        "multicluster.x-k8s.io/v1alpha1",
        "serviceexports",
        true,
    ),
    (
        "ServiceImport",
        "multicluster.x-k8s.io/v1alpha1",
        "serviceimports",
        true,
    ),
    (
        "ClusterProfile",
        "multicluster.x-k8s.io/v1alpha1",
        "clusterprofiles",
        true,
    ),
    (
        "ResourceRegistry",
        "search.karmada.io/v1alpha1",
        "resourceregistries",
        false,
    ),
];

/// The group and version of a kind, and the path of its collection.
fn collection(kind: &str) -> (&'static str, String) {
    let row = KINDS.iter().find(|k| k.0 == kind);
    let (_, version, resource, namespaced) = row.unwrap();
    let scope = match namespaced {
        true => format!("namespaces/{NAMESPACE}/"),
        false => String::new(),
    };
    (version, format!("/apis/{version}/{scope}{resource}"))
}

fn send_row(
    test_server: &ApiTestServer,
    verb: &str,
    target: &str,
    mut body: Value,
) -> RawHttpResponse {
    let (kind, name) = target.split_once('/').unwrap_or((target, ""));
    let (version, path) = collection(kind);
    match verb {
        "make" | "create" => {
            body["apiVersion"] = version.into();
            body["kind"] = kind.into();
            let dry_run = if verb == "make" { "" } else { "?dryRun=All" };
            test_server.post(&format!("{path}{dry_run}"), &body)
        }
        "merge" => {
            let path = format!("{path}/{name}?dryRun=All");
            let patch = test_server.request("PATCH", &path);
            patch
                .body("application/merge-patch+json", body.to_string())
                .send()
        }
        "delete" => test_server
            .request("DELETE", &format!("{path}/{name}?dryRun=All"))
            .send(),
        other => unreachable!("no such verb: {other}"),
    }
}

/// The paths at which `actual` does not have what `expected` has, with both values.
fn differences(expected: &Value, actual: &Value, at: &str) -> Vec<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(_)) => expected
            .iter()
            .flat_map(|(key, value)| differences(value, &actual[key], &format!("{at}.{key}")))
            .collect(),
        (Value::Array(all), Value::Array(there)) if all.len() == there.len() => all
            .iter()
            .zip(there)
            .enumerate()
            .flat_map(|(n, (a, b))| differences(a, b, &format!("{at}[{n}]")))
            .collect(),
        (Value::String(any), Value::String(text)) if any == "UUID" && text.len() == 36 => vec![],
        (Value::String(any), Value::String(text)) if any == "TIME" && text.len() == 20 => vec![],
        _ if expected == actual => vec![],
        _ => vec![format!("{at}: {actual}, not {expected}")],
    }
}

/// How a reply differs from the expected one; `None` if it does not.
fn mismatch(reply: &RawHttpResponse, expected: &str) -> Option<String> {
    let body = reply.json();
    let good = matches!(reply.code, 200 | 201);
    if let (Some(tree), true) = (expected.strip_prefix("= "), good) {
        let tree: Value = machinery::json::from_str(tree).unwrap();
        let lines = differences(&tree, &body, "");
        return (!lines.is_empty()).then(|| lines.join("\n  "));
    }
    let message = body["message"].as_str().unwrap_or_default();
    let actual = match good {
        true => "ok".to_owned(),
        false => format!("{} {}", reply.code, message.replace('\n', "\\n")),
    };
    (actual != expected).then_some(actual)
}

#[test]
fn admission_rules_are_enforced_by_the_served_api() {
    let gates = "MultiplePodTemplatesScheduling=true,FederatedQuotaEnforcement=true";
    let test_server = ApiTestServer::start_with(&["--feature-gates", gates]);
    test_server.create_namespace(NAMESPACE);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/api/admission.txt");
    let table = std::fs::read_to_string(path).unwrap();
    let mut failed = Vec::new();
    // Some rules read the objects that earlier rows have made from caches.
    let end = Instant::now() + CACHE_TIMEOUT;
    let rows = table
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    for row in rows {
        let cells: Vec<&str> = row.splitn(3, " | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        let [what, body, expected] = [cells[0], cells[1], cells[2]];
        let (verb, target) = what.split_once(' ').unwrap();
        let body: Value = machinery::json::from_str(body).unwrap();
        let compare = || {
            mismatch(
                &send_row(&test_server, verb, target, body.clone()),
                expected,
            )
        };
        let mut difference = compare();
        while difference.is_some() && verb != "make" && Instant::now() < end {
            harness::sleep_blocking(Duration::from_millis(50));
            difference = compare();
        }
        failed.extend(difference.map(|difference| format!("{row}\n  {difference}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

// proves: ADM-cluster-grades-gate
#[test]
fn resource_models_are_not_defaulted_without_their_feature_gate() {
    let feature = "CustomizedClusterResourceModeling=false";
    let test_server = ApiTestServer::start_with(&["--feature-gates", feature]);
    let models = json!([{"grade": 3, "ranges": [{"name": "cpu", "min": "1", "max": "2"}]}]);
    for models in [Value::Null, models] {
        let mut body = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
        if !models.is_null() {
            body["spec"]["resourceModels"] = models.clone();
        }
        let reply = send_row(&test_server, "create", "Cluster", body);
        let models_in_reply = &reply.json()["spec"]["resourceModels"];
        // Models are validated without the feature gate, too.
        match models {
            Value::Null => assert_eq!((reply.code, models_in_reply), (201, &Value::Null)),
            _ => assert_eq!(reply.code, 422, "{}", reply.text()),
        }
    }
}
