//! Promises of Kubernetes' end-to-end specs (`test/e2e/apimachinery`, `test/e2e/auth`,
//! `test/e2e/network`) that no other module has.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test_server::ApiTestServer;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Repeats a check until it holds.
fn eventually(what: &str, check: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !check() {
        assert!(Instant::now() < end, "{what}");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

fn definition(group: &str) -> Value {
    json!({"metadata": {"name": format!("testcrds.{group}")}, "spec": {
        "group": group, "scope": "Namespaced",
        "names": {"plural": "testcrds", "singular": "testcrd", "kind": "testcrd", "listKind": "testcrdList"},
        "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[test]
fn a_new_definition_is_established_served_and_published_at_once() {
    let server = ApiTestServer::shared();
    let group = "at-once.example.com";
    let created = server.post(DEFINITIONS, &definition(group));
    assert_eq!(created.code, 201, "{}", created.text());
    let conditions = &created.json()["status"]["conditions"];
    for (condition, kind) in [(0, "NamesAccepted"), (1, "Established")] {
        assert_eq!(conditions[condition]["type"], kind);
        assert_eq!(conditions[condition]["status"], "True");
    }
    let collection = format!("/apis/{group}/v1beta1/namespaces/default/testcrds");
    let object = json!({"apiVersion": format!("{group}/v1beta1"), "kind": "testcrd",
        "metadata": {"name": "a"}});
    let stored = server.post(&collection, &object);
    assert_eq!(stored.code, 201, "{}", stored.text());

    let path = format!("apis/{group}/v1beta1");
    let url = |index: &Value| {
        let url = index["paths"][&path]["serverRelativeURL"].as_str();
        url.map(str::to_owned)
    };
    let before = url(&server.get("/openapi/v3").json()).unwrap();
    let document = server.get(&before).json();
    let read =
        &document["paths"][format!("/{path}/namespaces/{{namespace}}/testcrds/{{name}}")]["get"];
    assert_eq!(read["x-kubernetes-group-version-kind"]["kind"], "testcrd");
    // A client that decodes the operation and encodes it again has no empty list.
    assert!(read.get("parameters").is_none(), "{read}");

    let second = json!({"spec": {"versions": [{"name": "v1beta1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "description": "Changed."}}}]}});
    let at = format!("{DEFINITIONS}/testcrds.{group}");
    let patched = server
        .request("PATCH", &at)
        .body("application/merge-patch+json", second.to_string())
        .send();
    assert_eq!(patched.code, 200, "{}", patched.text());
    eventually("the document has a new address", || {
        url(&server.get("/openapi/v3").json()).is_some_and(|after| after != before)
    });
    assert_eq!(server.request("DELETE", &at).send().code, 200);
    eventually("the document is gone", || {
        url(&server.get("/openapi/v3").json()).is_none()
    });
}

#[test]
fn strict_decoding_of_a_typed_object_lists_errors_in_the_order_of_the_text() {
    let server = ApiTestServer::shared();
    let body = r#"{"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "my-dep", "labels": {"app": "nginx"}},
        "spec": {"unknownField": "foo", "replicas": 2, "replicas": 3,
            "selector": {"matchLabels": {"app": "nginx"}}, "template": {
                "metadata": {"labels": {"app": "nginx"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}}}}"#;
    let post = |validation: &str| {
        let path = format!(
            "/apis/apps/v1/namespaces/default/deployments?dryRun=All&fieldValidation={validation}"
        );
        server
            .request("POST", &path)
            .body("application/json", body)
            .send()
    };
    let refused = post("Strict");
    assert_eq!(refused.code, 400);
    let expected = r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas""#;
    assert_eq!(refused.json()["message"], expected);
    let warned = post("Warn");
    assert_eq!(warned.code, 201, "{}", warned.text());
    let warning = warned.header("warning");
    assert!(
        warning.contains(r#"unknown field \"spec.unknownField\""#),
        "{warning}"
    );
}

#[test]
fn clients_in_a_cluster_find_the_server_by_its_service() {
    let server = ApiTestServer::shared();
    let at = "/api/v1/namespaces/default/services/kubernetes";
    eventually("the Service exists", || server.get(at).code == 200);
    let service = server.get(at).json();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(service["metadata"]["labels"]["component"], "apiserver");
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["name"], &port["port"]),
        (&json!("https"), &json!(443))
    );
    let own = server.address.rsplit(':').next().unwrap();
    assert_eq!(port["targetPort"].to_string(), own);
    // On a machine without a network, the server has no address that Endpoints may have.
    let endpoints = server.get("/api/v1/namespaces/default/endpoints/kubernetes");
    if endpoints.code == 200 {
        let subset = &endpoints.json()["subsets"][0];
        assert_eq!(subset["ports"][0]["port"].to_string(), own);
    }
}

#[test]
fn quotas_count_claims_by_their_attributes_class() {
    let server = ApiTestServer::shared();
    server.create_namespace("attributes-classes");
    let core = "/api/v1/namespaces/attributes-classes";
    let quota = json!({"metadata": {"name": "gold"}, "spec": {
        "hard": {"persistentvolumeclaims": "1", "requests.storage": "5Gi"},
        "scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}}});
    assert_eq!(
        server.post(&format!("{core}/resourcequotas"), &quota).code,
        201
    );
    let used =
        || server.get(&format!("{core}/resourcequotas/gold")).json()["status"]["used"].clone();
    eventually("the quota is calculated", || {
        used()["persistentvolumeclaims"] == "0"
    });
    let claim = |name: &str, class: &str| {
        let body = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "volumeAttributesClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}});
        server.post(&format!("{core}/persistentvolumeclaims"), &body)
    };
    assert_eq!(claim("one", "gold").code, 201);
    eventually("the claim is counted", || {
        used() == json!({"persistentvolumeclaims": "1", "requests.storage": "1Gi"})
    });
    assert_eq!(claim("two", "gold").code, 403);
    assert_eq!(claim("two", "silver").code, 201);
    let at = format!("{core}/persistentvolumeclaims/one");
    assert_eq!(server.request("DELETE", &at).send().code, 200);
    eventually("the claim is released", || {
        used()["persistentvolumeclaims"] == "0"
    });
}

#[test]
fn a_finished_job_is_deleted_after_its_time_to_live() {
    let server = ApiTestServer::shared();
    server.create_namespace("ttl");
    let jobs = "/apis/batch/v1/namespaces/ttl/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 0, "template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}}});
    let created = server.post(jobs, &job).json();
    let now = &created["metadata"]["creationTimestamp"];
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "R",
        "lastTransitionTime": now, "lastProbeTime": now})
    };
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    let finished = server
        .request("PATCH", &format!("{jobs}/j/status"))
        .body("application/merge-patch+json", status.to_string())
        .send();
    assert_eq!(finished.code, 200, "{}", finished.text());
    eventually("the Job is deleted", || {
        server.get(&format!("{jobs}/j")).code == 404
    });
}
