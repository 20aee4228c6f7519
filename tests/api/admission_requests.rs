//! The attributes of a request that admission sees besides its objects, and its additions to audit events.

use std::path::Path;

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::audit::{only_event, start_audited};
use crate::api::test_server::ApiTestServer;
use crate::api::webhook_fixture::{WebhookTest, config_map, retry_until};

const MAPS: &str = "/api/v1/namespaces/hooked/configmaps";
const SECRETS: &str = "/api/v1/namespaces/hooked/secrets";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MUTATING: &str = "mutatingwebhookconfigurations";

fn create(server: &ApiTestServer, resource: &str, body: &Value) {
    let reply = server.post(&format!("{ADMISSION}/{resource}"), body);
    assert_eq!(reply.code, 201, "{}", reply.text());
}

/// Whether the response has a warning with this text.
fn warns(reply: &RawHttpResponse, text: &str) -> bool {
    let mut headers = reply.headers.iter();
    headers.any(|(name, value)| name == "warning" && value.contains(text))
}

/// Creates a policy for ConfigMaps in the namespace of the test, and its binding.
fn put_in_force(server: &ApiTestServer, kind: &str, name: &str, mut spec: Value, binding: Value) {
    spec["matchConstraints"] = json!({
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}}});
    let mut of_binding = binding;
    of_binding["policyName"] = name.into();
    let plural = format!("{kind}admissionpolicies");
    create(
        server,
        &plural,
        &json!({"metadata": {"name": name}, "spec": spec}),
    );
    let bindings = format!("{kind}admissionpolicybindings");
    create(
        server,
        &bindings,
        &json!({"metadata": {"name": name}, "spec": of_binding}),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_have_the_options_of_the_request() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    test.validate_with("see", &["configmaps"], json!({}));
    let mut tries = 0;
    let first = || {
        tries += 1;
        server.post(MAPS, &config_map(&format!("try-{tries}")))
    };
    retry_until(first, |r| !r.header("warning").is_empty()).await;
    let options = |operation: &str, name: &str| {
        test.recorded(|r| r["operation"] == operation && r["name"] == name)["options"].clone()
    };
    assert_eq!(
        options("CREATE", &format!("try-{tries}")),
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"})
    );
    let query = "fieldManager=editor&fieldValidation=Strict";
    let expected_options = |kind: &str| {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": kind,
               "fieldManager": "editor", "fieldValidation": "Strict"})
    };
    let created = server.post(&format!("{MAPS}?{query}"), &config_map("a"));
    assert_eq!(created.code, 201, "{}", created.text());
    assert_eq!(options("CREATE", "a"), expected_options("CreateOptions"));
    let one = format!("{MAPS}/a?{query}");
    let updated = server.request("PUT", &one).json(&config_map("a")).send();
    assert_eq!(updated.code, 200, "{}", updated.text());
    assert_eq!(options("UPDATE", "a"), expected_options("UpdateOptions"));
    let patch = json!({"data": {"a": "b"}}).to_string();
    let path = format!("{MAPS}/a?fieldManager=patcher&dryRun=All");
    let request = server.request("PATCH", &path);
    let patched = request.body("application/merge-patch+json", patch).send();
    assert_eq!(patched.code, 200, "{}", patched.text());
    assert_eq!(
        options("UPDATE", "a"),
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "dryRun": ["All"],
               "fieldManager": "patcher"})
    );
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let request = server.request("PATCH", &format!("{MAPS}/new?{query}"));
    let request = request.body("application/apply-patch+yaml", applied.to_string());
    assert_eq!(request.send().code, 201);
    assert_eq!(options("CREATE", "new"), expected_options("CreateOptions"));
    let uid = created.json()["metadata"]["uid"].clone();
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid},
        "propagationPolicy": "Background"});
    let deleted = server.request("DELETE", &format!("{MAPS}/a")).json(&body);
    assert_eq!(deleted.send().code, 200);
    assert_eq!(
        options("DELETE", "a"),
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
               "preconditions": {"uid": uid}, "propagationPolicy": "Background"})
    );
}

fn parsed(annotation: &Value) -> Value {
    machinery::json::from_str(annotation.as_str().unwrap()).unwrap()
}

/// Creates an object with this audit ID and returns the annotations of its event.
fn annotations_of(server: &ApiTestServer, log: &Path, path: &str, id: &str) -> Value {
    let request = server.request("POST", path).header("Audit-Id", id);
    let reply = request.json(&config_map(id)).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
    only_event(log, id)["annotations"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_events_have_the_annotations_of_webhooks() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start_audited(&[], dir.path());
    let test = WebhookTest::start_on(server).await;
    let server = &test.server;
    let both = ["configmaps", "secrets"];
    let ignored = json!({"failurePolicy": "Ignore"});
    for (path, change) in [("broken", &ignored), ("label", &json!({}))] {
        let created = test.register(MUTATING, path, &both, change.clone());
        assert_eq!(created.code, 201, "{}", created.text());
    }
    test.validate_with("broken", &both, ignored);
    test.validate_with("explain", &both, json!({}));
    let dry_run = format!("{MAPS}?dryRun=All");
    retry_until(
        || server.post(&dry_run, &config_map("try")),
        |r| warns(r, "labelled") && warns(r, "explained"),
    )
    .await;

    let annotations = annotations_of(server, &log, MAPS, "id-with-body");
    let (mutation, patch) = (
        "mutation.webhook.admission.k8s.io",
        "patch.webhook.admission.k8s.io",
    );
    let written = |key: &str| annotations[key].clone();
    assert_eq!(
        written(&format!("{mutation}/round_0_index_0")),
        r#"{"configuration":"broken","webhook":"broken.example.org","mutated":false}"#
    );
    assert_eq!(
        written(&format!("{mutation}/round_0_index_1")),
        r#"{"configuration":"label","webhook":"label.example.org","mutated":true}"#
    );
    assert_eq!(
        parsed(&written(&format!("{patch}/round_0_index_1"))),
        json!({"configuration": "label", "webhook": "label.example.org", "patchType": "JSONPatch",
            "patch": [{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]})
    );
    assert_eq!(
        written(&format!("failed-open.{mutation}/round_0_index_0")),
        "broken.example.org"
    );
    let validating = "failed-open.validating.webhook.admission.k8s.io/round_0_index_0";
    assert_eq!(written(validating), "broken.example.org");
    assert_eq!(written("explain.example.org/why"), "because");
    assert!(
        !annotations.to_string().contains("not a key"),
        "{annotations}"
    );

    // Events of the level Metadata do not show patches.
    let annotations = annotations_of(server, &log, SECRETS, "id-without-body");
    assert!(annotations[&format!("{mutation}/round_0_index_1")].is_string());
    assert!(!annotations.to_string().contains(patch), "{annotations}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_events_have_the_annotations_of_policies() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start_audited(&[], dir.path());
    server.create_namespace("hooked");
    let spec = json!({
        "validations": [{"expression": "has(object.data)", "message": "there is no data"}],
        "auditAnnotations": [
            {"key": "name", "valueExpression": "'called ' + object.metadata.name"},
            {"key": "silent", "valueExpression": "null"}]});
    let actions = json!({"validationActions": ["Audit", "Warn"]});
    put_in_force(&server, "validating", "audited", spec, actions);
    let dry_run = format!("{MAPS}?dryRun=All");
    retry_until(
        || server.post(&dry_run, &config_map("try")),
        |r| !r.header("warning").is_empty(),
    )
    .await;
    let annotations = annotations_of(&server, &log, MAPS, "id-audited");
    assert_eq!(annotations["audited/name"], "called id-audited");
    assert_eq!(annotations["audited/silent"], Value::Null);
    let failure = &annotations["validation.policy.admission.k8s.io/validation_failure"];
    assert_eq!(
        parsed(failure),
        json!([{"message": "there is no data", "policy": "audited", "binding": "audited",
            "expressionIndex": 0, "validationActions": ["Audit", "Warn"]}])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_called_again_when_policies_change_the_object_after_them() {
    let test = WebhookTest::start().await;
    let server = &test.server;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    for (path, change) in [("label", &again), ("see", &json!({}))] {
        let created = test.register(MUTATING, path, &["configmaps"], change.clone());
        assert_eq!(created.code, 201, "{}", created.text());
    }
    let mirror = "Object{metadata: Object.metadata{annotations: {'seen': has(object.metadata.labels) ? object.metadata.labels.by : 'nothing'}}}";
    let mutation =
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mirror}});
    let spec = json!({"reinvocationPolicy": "IfNeeded", "mutations": [mutation]});
    put_in_force(server, "mutating", "mirror", spec, json!({}));
    let mut tries = 0;
    let create = || {
        tries += 1;
        server.post(MAPS, &config_map(&format!("a{tries}")))
    };
    let created = retry_until(create, |r| {
        r.json()["metadata"]["annotations"]["seen"] == "hook" && warns(r, "seen")
    })
    .await;
    let name = created.json()["metadata"]["name"].clone();
    let requests = test.requests_of(&name);
    let annotation = |request: &Value| request["object"]["metadata"]["annotations"]["seen"].clone();
    let annotation: Vec<Value> = requests.iter().map(annotation).collect();
    // Policy, both webhooks, the policy again, and the webhook that asks for it.
    assert_eq!(annotation, ["nothing", "nothing", "hook"], "{requests:?}");
}
