//! Validation rules of custom resources: `x-kubernetes-validations`.

use std::time::{Duration, Instant};

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const MERGE_PATCH: &str = "application/merge-patch+json";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(plural: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cel.example.com")},
        "spec": {
            "group": "cel.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "properties": {"ready": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.ready <= 3", "message": "at most 3 are ready"}]},
                }}}}],
        },
    })
}

/// Creates the definition and waits until its resource is served; returns the path of its
/// collection.
fn serve(server: &ApiTestServer, definition: &Value) -> String {
    let reply = server.post(CRDS, definition);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
    let path = format!("/apis/cel.example.com/v1/namespaces/default/{plural}");
    let deadline = Instant::now() + Duration::from_secs(90);
    while server.get(&path).code != 200 {
        assert!(Instant::now() < deadline, "{path} is not served");
        harness::sleep_blocking(Duration::from_millis(20));
    }
    path
}

fn patch(server: &ApiTestServer, path: &str, kind: &str, body: &Value) -> RawHttpResponse {
    let request = server.request("PATCH", path);
    request.body(kind, body.to_string()).send()
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "cel.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Rules like the rules of the Gateway API: protocols and ports of listeners, names unique
/// together.
fn gateway_spec() -> Value {
    json!({"type": "object", "required": ["listeners"], "properties": {
        "listeners": {"type": "array", "maxItems": 64, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name", "port", "protocol"], "properties": {
                "name": {"type": "string", "maxLength": 253},
                "hostname": {"type": "string", "maxLength": 253},
                "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                "protocol": {"type": "string", "maxLength": 255},
                "tls": {"type": "object", "properties": {"mode": {"type": "string", "enum": ["Terminate", "Passthrough"]}}},
            }},
            "x-kubernetes-validations": [
                {"rule": "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
                 "message": "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']"},
                {"rule": "self.all(l, l.protocol in ['TCP', 'UDP']  ? (!has(l.hostname) || l.hostname == '') : true)",
                 "message": "hostname must not be specified for protocols ['TCP', 'UDP']"},
                {"rule": "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))",
                 "message": "Combination of port, protocol and hostname must be unique for each listener"},
            ]},
    }})
}

#[test]
fn gateway_rules_are_evaluated() {
    let server = ApiTestServer::shared();
    let path = serve(&server, &crd("celgateways", "CelGateway", &gateway_spec()));
    let listener = |name: &str, port: u32, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let mut with_tls = listener("a", 80, "HTTP");
    with_tls["tls"] = json!({"mode": "Terminate"});
    for (name, listeners, message) in [
        (
            "good",
            json!([listener("a", 80, "HTTP"), listener("b", 443, "HTTPS")]),
            None,
        ),
        (
            "tls",
            json!([with_tls]),
            Some(
                "spec.listeners: Invalid value: tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
            ),
        ),
        (
            "same",
            json!([listener("a", 80, "HTTP"), listener("b", 80, "HTTP")]),
            Some(
                "spec.listeners: Invalid value: Combination of port, protocol and hostname must be unique for each listener",
            ),
        ),
    ] {
        let reply = server.post(
            &path,
            &object("CelGateway", name, &json!({"listeners": listeners})),
        );
        match message {
            None => assert_eq!(reply.code, 201, "{}", reply.text()),
            Some(message) => {
                assert_eq!(reply.code, 422, "{}", reply.text());
                let expected_message =
                    format!("CelGateway.cel.example.com \"{name}\" is invalid: {message}");
                assert_eq!(reply.json()["message"], expected_message);
                assert_eq!(
                    reply.json()["details"]["causes"][0]["field"],
                    "spec.listeners"
                );
            }
        }
    }
    // An object without a required field is not shown to the rules.
    let reply = server.post(&path, &object("CelGateway", "none", &json!({})));
    assert!(
        reply
            .text()
            .contains("some validation rules were not checked because the object was invalid"),
        "{}",
        reply.text()
    );
}

/// Rules like the rules of Cluster API: immutable fields, ranges that depend on each other.
fn cluster_spec() -> Value {
    json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "messageExpression": "self.max > 4 ? 'min is above max' : 'min is above a small max'", "fieldPath": ".min"},
    ], "properties": {
        "min": {"type": "integer", "default": 0}, "max": {"type": "integer", "default": 10},
        "version": {"type": "string", "maxLength": 64, "x-kubernetes-validations": [
            {"rule": "isSemver(self, true)", "message": "version must be semantic"},
            {"rule": "!semver(self, true).isLessThan(semver(oldSelf, true))", "message": "version cannot be decreased"}]},
        "topology": {"type": "string", "maxLength": 64, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "topology is immutable", "reason": "FieldValueForbidden"}]},
        "cidrs": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 43,
            "x-kubernetes-validations": [{"rule": "isCIDR(self)", "message": "value must be a CIDR"}]}},
    }})
}

#[test]
fn transition_rules_compare_with_the_stored_object() {
    let server = ApiTestServer::shared();
    let path = serve(&server, &crd("celclusters", "CelCluster", &cluster_spec()));
    let spec = json!({"version": "v1.30.2", "topology": "a", "cidrs": ["10.0.0.0/8"]});
    assert_eq!(
        server.post(&path, &object("CelCluster", "c", &spec)).code,
        201
    );
    let one = format!("{path}/c");
    for (change, message) in [
        (
            json!({"spec": {"version": "v1.30.1"}}),
            Some("spec.version: Invalid value: \"v1.30.1\": version cannot be decreased"),
        ),
        (
            json!({"spec": {"topology": "b"}}),
            Some("spec.topology: Forbidden: topology is immutable"),
        ),
        (
            json!({"spec": {"min": 20}}),
            Some("spec.min: Invalid value: min is above max"),
        ),
        (
            json!({"spec": {"cidrs": ["10.0.0.0/8", "10.0.0.1"]}}),
            Some("spec.cidrs[1]: Invalid value: \"10.0.0.1\": value must be a CIDR"),
        ),
        (json!({"spec": {"version": "v1.31.0"}}), None),
    ] {
        let reply = patch(&server, &one, MERGE_PATCH, &change);
        match message {
            None => assert_eq!(reply.code, 200, "{}", reply.text()),
            Some(message) => {
                assert_eq!(reply.code, 422, "{}", reply.text());
                let expected_message =
                    format!("CelCluster.cel.example.com \"c\" is invalid: {message}");
                assert_eq!(reply.json()["message"], expected_message, "{change}");
            }
        }
    }
    let status = |ready: u32| json!({"status": {"ready": ready}});
    let path = format!("{one}/status");
    assert_eq!(patch(&server, &path, MERGE_PATCH, &status(3)).code, 200);
    let reply = patch(&server, &path, MERGE_PATCH, &status(4));
    assert_eq!(reply.code, 422, "{}", reply.text());
    assert!(
        reply
            .text()
            .contains("status: Invalid value: at most 3 are ready"),
        "{}",
        reply.text()
    );
}

#[test]
fn unchanged_values_are_tolerated_when_rules_are_added() {
    let server = ApiTestServer::shared();
    let field = |rules: &Value| {
        json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": rules}, "b": {"type": "string"}}})
    };
    let before = crd(
        "celratchets",
        "CelRatchet",
        &field(&json!([{"rule": "true"}])),
    );
    let path = serve(&server, &before);
    let created = object("CelRatchet", "r", &json!({"a": "long", "b": "x"}));
    assert_eq!(server.post(&path, &created).code, 201);
    let rules = json!([{"rule": "self.size() < 3", "message": "a is short"}]);
    let schema = field(&rules);
    let change = json!([{"op": "replace", "value": schema,
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec"}]);
    let reply = patch(
        &server,
        &format!("{CRDS}/celratchets.cel.example.com"),
        "application/json-patch+json",
        &change,
    );
    assert_eq!(reply.code, 200, "{}", reply.text());
    let one = format!("{path}/r");
    let deadline = Instant::now() + Duration::from_secs(90);
    // A value that a write before the new rule has set is tolerated, so each is another.
    let rejected = |attempt: u32| {
        let change = json!({"spec": {"a": format!("other-{attempt}")}});
        patch(&server, &one, MERGE_PATCH, &change).code == 422
    };
    let mut attempts = 0..;
    while !attempts.next().is_some_and(rejected) {
        assert!(Instant::now() < deadline, "the new rule is not evaluated");
        harness::sleep_blocking(Duration::from_millis(20));
    }
    let reply = patch(&server, &one, MERGE_PATCH, &json!({"spec": {"b": "y"}}));
    assert_eq!(reply.code, 200, "{}", reply.text());
}

#[test]
fn rules_that_cannot_be_evaluated_are_refused() {
    let server = ApiTestServer::shared();
    let rule_at = "spec.validation.openAPIV3Schema.properties[spec].properties[f].x-kubernetes-validations[0].rule";
    for (field, rule, message) in [
        (
            json!({"type": "string"}),
            "self > 1",
            "compilation failed: ERROR: <input>:1:6: found no matching overload for '_>_' applied to '(string, int)'\n | self > 1\n | .....^",
        ),
        (
            json!({"type": "string"}),
            "self.foo()",
            "compilation failed: ERROR: <input>:1:9: undeclared reference to 'foo' (in container '')\n | self.foo()\n | ........^",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            "self.all(x, self.all(y, x == y))",
            "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ),
    ] {
        let mut field = field;
        field["x-kubernetes-validations"] = json!([{"rule": rule}]);
        let spec = json!({"type": "object", "properties": {"f": field}});
        let reply = server.post(CRDS, &crd("celwrongs", "CelWrong", &spec));
        assert_eq!(reply.code, 422, "{}", reply.text());
        let text = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(rule_at) && text.contains(message), "{text}");
    }
}

#[test]
fn rules_are_published_in_openapi_v3() {
    let server = ApiTestServer::shared();
    serve(
        &server,
        &crd("celpublisheds", "CelPublished", &cluster_spec()),
    );
    let deadline = Instant::now() + Duration::from_secs(90);
    let published = || {
        let document = server.get("/openapi/v3/apis/cel.example.com/v1").json();
        let kind = &document["components"]["schemas"]["com.example.cel.v1.CelPublished"];
        kind["properties"]["spec"]["x-kubernetes-validations"].clone()
    };
    let mut rules = published();
    while rules.is_null() && Instant::now() < deadline {
        harness::sleep_blocking(Duration::from_millis(20));
        rules = published();
    }
    assert_eq!(rules[0]["rule"], "self.min <= self.max", "{rules}");
}
