//! Promises of Kubernetes' end-to-end specs (`test/e2e/apimachinery`, `test/e2e/auth`,
//! `test/e2e/network`) that no other module has.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TIMEOUT: Duration = Duration::from_secs(90);

/// Repeats a check until it holds.
fn eventually(description: &str, check: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !check() {
        assert!(Instant::now() < end, "{description}");
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
    let rejection = post("Strict");
    assert_eq!(rejection.code, 400);
    let expected = r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas""#;
    assert_eq!(rejection.json()["message"], expected);
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

/// Each object of a circle is owned by the one before; the deletion of one, or of all, ends.
#[test]
fn circles_of_owners_are_deleted_in_the_foreground() {
    let server = ApiTestServer::shared();
    let names = ["a", "b", "c"];
    for deleted in [&names[..1], &names[..]] {
        let namespace = format!("circle-{}", deleted.len());
        server.create_namespace(&namespace);
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let uids = names.map(|name| {
            let created = server.post(&maps, &json!({"metadata": {"name": name}}));
            created.json()["metadata"]["uid"].clone()
        });
        for (i, name) in names.iter().enumerate() {
            let owner = (i + 2) % 3;
            let references = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": names[owner],
                "uid": uids[owner], "controller": true, "blockOwnerDeletion": true}]);
            let patched = server
                .request("PATCH", &format!("{maps}/{name}"))
                .body(
                    "application/merge-patch+json",
                    json!({"metadata": {"ownerReferences": references}}).to_string(),
                )
                .send();
            assert_eq!(patched.code, 200, "{}", patched.text());
        }
        for name in deleted {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                "propagationPolicy": "Foreground"});
            let reply = server
                .request("DELETE", &format!("{maps}/{name}"))
                .json(&options)
                .send();
            assert!(matches!(reply.code, 200 | 404), "{}", reply.text());
        }
        eventually("the circle is deleted", || {
            names
                .iter()
                .all(|name| server.get(&format!("{maps}/{name}")).code == 404)
        });
    }
}

#[test]
fn reviews_have_no_table() {
    let server = ApiTestServer::shared();
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (accept, code) in [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 406),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            201,
        ),
    ] {
        let request = server.request("POST", path).json(&review);
        assert_eq!(request.header("Accept", accept).send().code, code);
    }
}

/// The metadata that a write of the status changes too, and the reads of subresources.
#[test]
fn statuses_are_written_with_their_annotations() {
    let server = ApiTestServer::shared();
    server.create_namespace("statuses");
    let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let deployment = json!({"selector": selector, "template": pods});
    let budget = json!({"selector": selector});
    let ingress = json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}});
    let schema = json!({"matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "global-default"}});
    let quota = json!({"hard": {"pods": "1"}});
    let label = Some("true");
    for (collection, spec, labels) in [
        (
            "/apis/apps/v1/namespaces/statuses/deployments",
            deployment,
            None,
        ),
        (
            "/apis/policy/v1/namespaces/statuses/poddisruptionbudgets",
            budget,
            label,
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/statuses/ingresses",
            ingress,
            label,
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            schema,
            label,
        ),
        ("/api/v1/namespaces/statuses/resourcequotas", quota, label),
    ] {
        let object = json!({"metadata": {"name": "annotated"}, "spec": spec});
        let created = server.post(collection, &object);
        assert_eq!(created.code, 201, "{}", created.text());
        let patch = json!({"metadata": {"annotations": {"patched": "true"}, "labels": {"patched": "true"}}});
        let patched = server
            .request("PATCH", &format!("{collection}/annotated/status"))
            .body("application/merge-patch+json", patch.to_string())
            .send();
        assert_eq!(patched.code, 200, "{}", patched.text());
        let metadata = &patched.json()["metadata"];
        assert_eq!(metadata["annotations"]["patched"], "true", "{collection}");
        assert_eq!(
            metadata["labels"]["patched"].as_str(),
            labels,
            "{collection}"
        );
    }
}

#[test]
fn certificate_requests_are_read_and_annotated_by_their_approval() {
    let server = ApiTestServer::shared();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["e2e.example.com".to_owned()]).unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let created = server.post(requests, &json!({"metadata": {"name": "approval"}, "spec": {"request": encoded,
        "signerName": "example.com/e2e", "usages": ["digital signature", "key encipherment", "server auth"]}}));
    assert_eq!(created.code, 201, "{}", created.text());
    let at = format!("{requests}/approval");
    for subresource in ["approval", "status"] {
        let read = server.get(&format!("{at}/{subresource}"));
        assert_eq!(read.code, 200, "{}", read.text());
        assert_eq!(
            read.json()["metadata"]["uid"],
            created.json()["metadata"]["uid"]
        );
        let patch = json!({"metadata": {"annotations": {subresource: "true"}}, "status":
            {"conditions": [{"type": "ApprovalPatch", "status": "True", "reason": "e2e"}]}});
        let patched = server
            .request("PATCH", &format!("{at}/{subresource}"))
            .body("application/merge-patch+json", patch.to_string())
            .send();
        assert_eq!(
            patched.json()["metadata"]["annotations"][subresource],
            "true",
            "{}",
            patched.text()
        );
        assert_eq!(
            patched.json()["status"]["conditions"][0]["type"],
            "ApprovalPatch"
        );
    }
}

#[test]
fn events_are_selected_by_the_controller_that_reports_them() {
    let server = ApiTestServer::shared();
    server.create_namespace("reported");
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Do",
        "reportingController": "test-controller", "reportingInstance": "test-node", "reason": "Test",
        "note": "n", "type": "Normal", "regarding": {"namespace": "reported"}});
    let created = server.post("/apis/events.k8s.io/v1/namespaces/reported/events", &event);
    assert_eq!(created.code, 201, "{}", created.text());
    for (path, selector, count) in [
        (
            "/apis/events.k8s.io/v1",
            "reportingController%3Dtest-controller",
            1,
        ),
        ("/api/v1", "source%3Dtest-controller", 1),
        ("/api/v1", "source%3Dother", 0),
    ] {
        let list = server.get(&format!(
            "{path}/namespaces/reported/events?fieldSelector={selector}"
        ));
        assert_eq!(
            list.json()["items"].as_array().unwrap().len(),
            count,
            "{selector}"
        );
    }
}
