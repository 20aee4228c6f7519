//! Error responses have the code, reason, details and message of kube-apiserver.

use std::sync::atomic::{AtomicBool, Ordering};

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

/// Asserts that a reply is a Status with this code and reason, whose message contains `message`,
/// and that has these details unless they are null.
fn assert_status(reply: &RawHttpResponse, code: u16, reason: &str, message: &str, details: Value) {
    let body = reply.text();
    assert_eq!(reply.code, code, "{body}");
    let status = reply.json();
    for (field, expected) in [
        ("kind", json!("Status")),
        ("apiVersion", json!("v1")),
        ("metadata", json!({})),
        ("status", json!("Failure")),
        ("reason", json!(reason)),
        ("code", json!(code)),
    ] {
        assert_eq!(status[field], expected, "{field}: {body}");
    }
    let text = status["message"].as_str().unwrap();
    assert!(text.contains(message), "{text}");
    if !details.is_null() {
        assert_eq!(status["details"], details, "{body}");
    }
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/errors/configmaps";

#[test]
fn every_error_has_its_status() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("errors");
    assert_eq!(
        test_server.post(CONFIG_MAPS_PATH, &configmap("there")).code,
        201
    );
    let about = |name: &str| json!({"name": name, "kind": "configmaps"});
    let one = format!("{CONFIG_MAPS_PATH}/there");

    assert_status(
        &test_server.get(&format!("{CONFIG_MAPS_PATH}/none")),
        404,
        "NotFound",
        r#"configmaps "none" not found"#,
        about("none"),
    );
    assert_status(
        &test_server.post(CONFIG_MAPS_PATH, &configmap("there")),
        409,
        "AlreadyExists",
        r#"configmaps "there" already exists"#,
        about("there"),
    );
    let stale = json!({"metadata": {"name": "there", "resourceVersion": "1"}});
    let reply = test_server.request("PUT", &one).json(&stale).send();
    assert_status(
        &reply,
        409,
        "Conflict",
        r#"Operation cannot be fulfilled on configmaps "there": "#,
        about("there"),
    );
    let other = json!({"preconditions": {"uid": "other"}});
    let reply = test_server.request("DELETE", &one).json(&other).send();
    assert_status(
        &reply,
        409,
        "Conflict",
        "the UID in the precondition (other) does not match the UID in record",
        json!({"name": "there", "kind": "ConfigMap"}),
    );
    let reply = test_server.post("/api/v1/namespaces/nowhere/configmaps", &configmap("a"));
    assert_status(
        &reply,
        404,
        "NotFound",
        r#"namespaces "nowhere" not found"#,
        json!({"name": "nowhere", "kind": "namespaces"}),
    );
    let reply = test_server.post(CONFIG_MAPS_PATH, &json!({"metadata": {}}));
    assert_status(
        &reply,
        422,
        "Invalid",
        "name or generateName is required",
        json!({
            "kind": "ConfigMap",
            "causes": [{"reason": "FieldValueRequired", "field": "metadata.name",
                        "message": "Required value: name or generateName is required"}]
        }),
    );
    let reply = test_server
        .request("GET", "/api/v1/secrets")
        .with_identity(&test_server.anonymous)
        .send();
    assert_status(
        &reply,
        403,
        "Forbidden",
        r#"secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" at the cluster scope"#,
        json!({"kind": "secrets"}),
    );
    let reply = test_server
        .request("GET", "/api/v1/secrets")
        .header("Authorization", "Bearer nonsense")
        .with_identity(&test_server.anonymous)
        .send();
    assert_status(&reply, 401, "Unauthorized", "Unauthorized", Value::Null);
    let reply = test_server.get("/api/v1/pods?resourceVersion=999999999");
    assert_status(
        &reply,
        504,
        "Timeout",
        "Too large resource version: 999999999",
        Value::Null,
    );
    assert_eq!(reply.header("retry-after"), "1");
    assert_eq!(
        reply.json()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    let reply = test_server
        .request("PUT", CONFIG_MAPS_PATH)
        .json(&json!({}))
        .send();
    assert_status(
        &reply,
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        json!({}),
    );
    let reply = test_server.post(&one, &configmap("there"));
    assert_status(
        &reply,
        405,
        "MethodNotAllowed",
        "the server does not allow this method",
        json!({}),
    );
    for path in ["/api/v1/nothings", "/apis/apps/v1/nothings"] {
        assert_status(
            &test_server.get(path),
            404,
            "NotFound",
            "the server could not find the requested resource",
            json!({}),
        );
    }
    for path in [
        "/apis/none.io/v1/things",
        "/apis/none.io",
        "/api/v2",
        "/apis/apps/v9/deployments",
        "/apis/policy.karmada.io/v1alpha1/nothings",
    ] {
        let reply = test_server.get(path);
        let expected = (404, "404 page not found\n");
        assert_eq!((reply.code, reply.text().as_str()), expected, "{path}");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    }
    for query in ["watch=1&resourceVersion=abc", "watch=1&resourceVersion=-1"] {
        let reply = test_server.get(&format!("/api/v1/pods?{query}"));
        assert_eq!(reply.code, 500, "{}", reply.text());
        assert_eq!(reply.json().get("reason"), None);
    }
    let patch = json!([{"op": "test", "path": "/data", "value": 1}]);
    let reply = test_server
        .request("PATCH", &one)
        .body("application/json-patch+json", patch.to_string())
        .send();
    assert_status(
        &reply,
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        json!({}),
    );
}

#[test]
fn invalid_query_parameters_are_rejected() {
    let test_server = ApiTestServer::shared();
    let table: &[(&str, u16, &str)] = &[
        ("limit=x", 400, "strconv.ParseInt"),
        (
            "resourceVersion=x",
            400,
            r#"invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#,
        ),
        (
            "resourceVersion=99999999999999999999",
            400,
            r#"parsing "99999999999999999999": value out of range"#,
        ),
        ("timeoutSeconds=x", 400, "strconv.ParseInt"),
        (
            "continue=zzz",
            400,
            "invalid continue token: continue key is not valid: expected value at line 1 column 1",
        ),
        (
            "continue=z%25z",
            400,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 1",
        ),
        (
            "resourceVersionMatch=Foo",
            422,
            r#"[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""]"#,
        ),
        (
            "watch=1&resourceVersionMatch=Foo",
            422,
            r#"[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Foo": supported values: "NotOlderThan"]"#,
        ),
        (
            "fieldSelector=a",
            400,
            "invalid selector: 'a'; can't understand 'a'",
        ),
        (
            "fieldSelector=spec.foo%3Dx",
            400,
            "field label not supported: spec.foo",
        ),
        (
            "labelSelector=a%20b",
            400,
            "unable to parse requirement: found 'b', expected: in, notin",
        ),
        (
            "labelSelector=a%3D%3D%3D",
            400,
            "unable to parse requirement",
        ),
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            422,
            r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
        ),
        (
            "sendInitialEvents=true",
            422,
            "sendInitialEvents is forbidden for list",
        ),
        (
            "watch=1&sendInitialEvents=true",
            422,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&labelSelector=a%20b",
            400,
            "unable to parse requirement",
        ),
    ];
    for (query, code, text) in table {
        let reason = if *code == 400 {
            "BadRequest"
        } else {
            "Invalid"
        };
        assert_status(
            &test_server.get(&format!("/api/v1/pods?{query}")),
            *code,
            reason,
            text,
            Value::Null,
        );
    }
}

#[test]
fn unknown_fields_of_selectors_are_named() {
    let test_server = ApiTestServer::shared();
    for (path, text) in [
        ("/api/v1/pods", "field label not supported: spec.foo"),
        (
            "/api/v1/configmaps",
            r#""spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        (
            "/apis/batch/v1/jobs",
            r#"field label "spec.foo" not supported for Job"#,
        ),
        (
            "/apis/policy.karmada.io/v1alpha1/propagationpolicies",
            "field label not supported: spec.foo",
        ),
    ] {
        for prefix in ["", "watch=1&"] {
            let reply = test_server.get(&format!("{path}?{prefix}fieldSelector=spec.foo%3Dx"));
            assert_status(&reply, 400, "BadRequest", text, Value::Null);
        }
    }
}

#[test]
fn invalid_patches_are_rejected() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("patches");
    let path = "/api/v1/namespaces/patches/configmaps";
    assert_eq!(test_server.post(path, &configmap("a")).code, 201);
    let one = format!("{path}/a");
    let (json, merge) = (
        "application/json-patch+json",
        "application/merge-patch+json",
    );
    let strategic = "application/strategic-merge-patch+json";
    for (kind, body, text) in [
        (
            json,
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            merge,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            merge,
            "{",
            "error decoding patch: EOF while parsing an object at line 1 column 1",
        ),
        (
            strategic,
            "1",
            "json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
    ] {
        let reply = test_server.request("PATCH", &one).body(kind, body).send();
        assert_status(&reply, 400, "BadRequest", text, Value::Null);
    }
}

#[test]
fn lists_without_a_go_type_have_an_empty_continue() {
    let test_server = ApiTestServer::shared();
    let policies = test_server.get("/apis/policy.karmada.io/v1alpha1/propagationpolicies");
    assert_eq!(policies.json()["metadata"]["continue"], "");
    for path in ["/api/v1/pods", "/apis/cluster.karmada.io/v1alpha1/clusters"] {
        let list = test_server.get(path).json();
        assert!(list["metadata"].get("continue").is_none(), "{list}");
    }
}

#[test]
fn invalid_bodies_are_rejected() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("bodies");
    let path = "/api/v1/namespaces/bodies/configmaps";
    let deep = format!("{}1{}", r#"{"a":"#.repeat(5000), "}".repeat(5000));
    let wide = format!(
        r#"{{"metadata": {{"name": "big"}}, "data": {{"a": "{}"}}}}"#,
        "x".repeat(4 << 20)
    );
    let large = format!(
        r#"{{"metadata": {{"name": "big"}}, "data": {{"a": "{}"}}}}"#,
        "x".repeat(2 << 20)
    );
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
        d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nmetadata: {name: bomb}\n";
    let (json, yaml) = ("application/json", "application/yaml");
    let table: &[(&str, &str, u16, &str)] = &[
        (
            json,
            "{bad",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: key must be a string at line 1 column 2 ({bad)",
        ),
        (
            json,
            "",
            400,
            "json parse error: EOF while parsing a value at line 1 column 0 (<empty>)",
        ),
        (
            json,
            "[]",
            400,
            "json: cannot unmarshal array into Go value of type struct { APIVersion string",
        ),
        (
            json,
            "\u{0}\u{1}",
            400,
            "expected value at line 1 column 1 (0001)",
        ),
        (json, &"[".repeat(200_000), 400, ""),
        (json, &deep, 400, ""),
        (
            json,
            &wide,
            413,
            "Request entity too large: limit is 3145728",
        ),
        (json, &large, 422, "may not be more than 1048576 bytes"),
        (
            json,
            r#"{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}"#,
            400,
            r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#,
        ),
        (
            json,
            r#"{"kind": "Foo", "apiVersion": "v1", "metadata": {"name": "a"}}"#,
            400,
            r#"Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "v1" in scheme"#,
        ),
        (
            json,
            r#"{"metadata": {"name": "a", "namespace": "other"}}"#,
            400,
            "does not match the namespace sent on the request",
        ),
        (
            json,
            r#"{"metadata": {"name": "a"}, "data": {"a": {}}}"#,
            400,
            "cannot unmarshal object into Go struct field ConfigMap.data of type string",
        ),
        (
            yaml,
            "metadata: {name: y\n",
            400,
            "error converting YAML to JSON",
        ),
        (yaml, bomb, 400, ""),
        (
            "text/plain",
            "{}",
            415,
            "accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ),
        ("application/cbor", "{}", 415, ""),
        ("application/vnd.kubernetes.protobuf", "nonsense", 400, ""),
        (
            "application/vnd.kubernetes.protobuf",
            "k8s\u{0}\u{7f}\u{7f}\u{7f}",
            400,
            "",
        ),
    ];
    for (kind, body, code, text) in table {
        let reply = test_server.request("POST", path).body(kind, *body).send();
        let reason = match code {
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            _ => "BadRequest",
        };
        assert_status(&reply, *code, reason, text, Value::Null);
    }
    let strict =
        r#"{"metadata": {"name": "d", "labels": {"a": "b"}, "labels": {"a": "c"}}, "foo": 1}"#;
    let reply = test_server
        .request("POST", &format!("{path}?fieldValidation=Strict"))
        .body(json, strict)
        .send();
    assert_status(
        &reply,
        400,
        "BadRequest",
        r#"strict decoding error: duplicate field "metadata.labels", unknown field "foo""#,
        Value::Null,
    );
    let reply = test_server.request("POST", path).body(json, strict).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
    assert!(
        reply.header("warning").contains("299 - "),
        "{:?}",
        reply.headers
    );
    for (query, text) in [
        (
            "fieldValidation=Foo",
            r#"fieldValidation: Unsupported value: "Foo""#,
        ),
        ("dryRun=Foo", "dryRun: Unsupported value"),
        ("fieldManager=%00", "fieldManager"),
    ] {
        let reply = test_server.post(&format!("{path}?{query}"), &configmap("q"));
        assert_status(&reply, 422, "Invalid", text, Value::Null);
    }
}

#[test]
fn secrets_are_decoded_and_immutable_data_stays() {
    let server = ApiTestServer::shared();
    server.create_namespace("immutable");
    let secrets = "/api/v1/namespaces/immutable/secrets";
    let malformed = json!({"metadata": {"name": "a"}, "data": {"k": "%%%"}});
    let rejection = server.post(secrets, &malformed);
    assert_eq!(rejection.code, 400, "{}", rejection.text());
    assert!(rejection.text().contains("base64"), "{}", rejection.text());
    let maps = "/api/v1/namespaces/immutable/configmaps";
    for (path, mut object, field) in [
        (secrets, json!({"data": {"k": "dg=="}}), "data"),
        (maps, json!({"data": {"k": "v"}}), "data"),
        (maps, json!({"binaryData": {"k": "dg=="}}), "binaryData"),
    ] {
        let name = format!("kept-{}", field.to_lowercase());
        object["metadata"] = json!({"name": name});
        object["immutable"] = true.into();
        assert_eq!(server.post(path, &object).code, 201);
        for patch in [json!({field: {"k": "bmV3"}}), json!({"immutable": false})] {
            let request = server.request("PATCH", &format!("{path}/{name}"));
            let body = patch.to_string();
            let rejection = request.body("application/merge-patch+json", body).send();
            assert_eq!(rejection.code, 422, "{}", rejection.text());
            let message = rejection.text();
            let immutable = message.contains("field is immutable when `immutable` is set");
            assert!(immutable, "{message}");
        }
    }
}

#[test]
fn a_deletion_without_preconditions_never_conflicts_with_updates() {
    let server = ApiTestServer::shared();
    server.create_namespace("raced");
    let maps = "/api/v1/namespaces/raced/configmaps";
    let path = format!("{maps}/raced");
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let update = || {
            let mut updated = 0;
            while !finished.load(Ordering::Relaxed) {
                let body = json!({"data": {"n": updated.to_string()}}).to_string();
                let request = server.request("PATCH", &path);
                let reply = request.body("application/merge-patch+json", body).send();
                assert!([200, 404].contains(&reply.code), "{}", reply.text());
                updated += usize::from(reply.code == 200);
            }
            updated
        };
        let updates = scope.spawn(update);
        let object = json!({"metadata": {"name": "raced"}});
        for _ in 0..50 {
            assert_eq!(server.post(maps, &object).code, 201);
            let deleted = server.request("DELETE", &path).send();
            assert_eq!(deleted.code, 200, "{}", deleted.text());
        }
        finished.store(true, Ordering::Relaxed);
        assert!(updates.join().unwrap() > 0, "no update met an object");
    });
}
