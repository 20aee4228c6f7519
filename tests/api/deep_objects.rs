//! HTTP: objects that are nested up to the limit and beyond it, in every format of a request.

use harness::raw_http::RawHttpResponse;
use machinery::json::{MAX_DEPTH, MAX_OBJECT_DEPTH};

use crate::api::test_server::ApiTestServer;

const PATH: &str = "/apis/deep.example.com/v1/namespaces/deep/nests";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const DEFINITION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "nests.deep.example.com"},
    "spec": {"group": "deep.example.com", "scope": "Namespaced",
        "names": {"kind": "Nest", "plural": "nests", "singular": "nest"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "deepest", "type": "string", "jsonPath": "..end"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "x-kubernetes-validations": [{"rule": "self == self && self != null"}]},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}"#;

/// JSON that is nested `depth` levels deep: maps, lists, or both in turn.
fn nested(depth: usize, lists: ListPredicate) -> String {
    let is_list = |level: &usize| *level > 0 && *level + 1 < depth && lists(*level);
    let opening = |level: usize| if is_list(&level) { "[" } else { r#"{"n":"# };
    let closing = |level: usize| if is_list(&level) { "]" } else { "}" };
    let opened: String = (0..depth - 1).map(opening).collect();
    let closed: String = (0..depth - 1).rev().map(closing).collect();
    format!(r#"{opened}{{"end":"x"}}{closed}"#)
}

/// Whether the value at a level is a list.
type ListPredicate = fn(usize) -> bool;

const SHAPES: [(&str, ListPredicate); 3] = [
    ("maps", |_| false),
    ("lists", |_| true),
    ("both", |level| level % 2 == 1),
];

/// An object of `depth` levels.
fn nest(name: &str, field: &str, value: &str) -> String {
    format!(
        r#"{{"apiVersion":"deep.example.com/v1","kind":"Nest","metadata":{{"name":"{name}"}},"{field}":{value}}}"#
    )
}

/// The same map in YAML with a line for each level.
fn block_yaml(name: &str, depth: usize) -> String {
    let head =
        format!("apiVersion: deep.example.com/v1\nkind: Nest\nmetadata: {{name: {name}}}\nspec:\n");
    let levels = (1..depth - 1).map(|level| format!("{}\"n\":\n", " ".repeat(level)));
    let end = format!("{}end: x\n", " ".repeat(depth));
    head + &levels.collect::<String>() + &end
}

fn send(
    server: &ApiTestServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> RawHttpResponse {
    server.request(method, path).body(kind, body).send()
}

#[track_caller]
fn expect(reply: &RawHttpResponse, code: u16, text: &str) {
    let shown = &reply.text()[..reply.text().len().min(300)];
    assert_eq!(reply.code, code, "{shown}");
    assert!(reply.text().contains(text), "{shown}");
}

fn start() -> ApiTestServer {
    let server = ApiTestServer::start();
    server.create_namespace("deep");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    expect(
        &send(&server, "POST", definitions, JSON, DEFINITION),
        201,
        "",
    );
    server
}

/// Every format of a request stores the value, and every reader gets it.
fn check_accepted(server: &ApiTestServer, depth: usize) {
    for (shape, lists) in SHAPES {
        let value = nested(depth - 1, lists);
        let name = format!("{shape}-{depth}");
        let path = format!("{PATH}/{name}");
        let object = |suffix: &str| nest(&format!("{name}{suffix}"), "spec", &value);
        for (method, path, kind, body, code) in [
            ("POST", PATH, JSON, object(""), 201),
            ("POST", PATH, YAML, object("-yaml"), 201),
            (
                "PATCH",
                &*format!("{path}-apply?fieldManager=a"),
                APPLY,
                object("-apply"),
                201,
            ),
            (
                "PATCH",
                &*format!("{path}-apply?fieldManager=a"),
                APPLY,
                object("-apply"),
                200,
            ),
            (
                "PATCH",
                &*format!("{path}-apply?fieldManager=b"),
                APPLY,
                object("-apply"),
                200,
            ),
            (
                "PATCH",
                &*path,
                MERGE,
                format!(r#"{{"spec":{value}}}"#),
                200,
            ),
            (
                "PATCH",
                &*path,
                JSON_PATCH,
                format!(r#"[{{"op":"replace","path":"/spec","value":{value}}}]"#),
                200,
            ),
            (
                "PATCH",
                &*format!("{path}/status"),
                MERGE,
                format!(r#"{{"status":{value}}}"#),
                200,
            ),
            ("GET", &*path, JSON, String::new(), 200),
            ("GET", &*format!("{path}-yaml"), JSON, String::new(), 200),
            ("GET", &*format!("{path}-apply"), JSON, String::new(), 200),
            (
                "GET",
                &*format!("{PATH}?fieldSelector=metadata.name={name}"),
                JSON,
                String::new(),
                200,
            ),
            (
                "GET",
                &*format!("{PATH}?watch=true&timeoutSeconds=5&fieldSelector=metadata.name={name}"),
                JSON,
                String::new(),
                200,
            ),
        ] {
            expect(
                &send(server, method, path, kind, &body),
                code,
                &format!(r#""spec":{value}"#),
            );
        }
        let conflict = format!("{path}-apply?fieldManager=c");
        let changed = object("-apply").replace(r#""end":"x""#, r#""end":"z""#);
        let reply = send(server, "PATCH", &conflict, APPLY, &changed);
        expect(&reply, 409, "Apply failed with 2 conflicts");
        // An object that was read can be written again, with all its managers.
        let read = server.get(&format!("{path}-apply")).text();
        expect(
            &send(server, "PUT", &format!("{path}-apply"), JSON, &read),
            200,
            &value,
        );
        for accept in [
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ] {
            let reply = server.request("GET", &path).header("Accept", accept).send();
            expect(&reply, 200, &name);
        }
        let yaml = server.request("GET", &path).header("Accept", YAML).send();
        // A value that would be indented too far is written in one line.
        let ends = [r#""end":"x""#, "end: x"].map(|end| yaml.text().matches(end).count());
        assert_eq!(ends.iter().sum::<usize>(), 2, "spec and status");
        assert_eq!(ends[0] == 0, depth < 120 || depth < 129 && shape != "maps");
        assert!(yaml.text().len() < 200_000);
        expect(&server.request("DELETE", &path).send(), 200, "");
    }
    let name = format!("block-{depth}");
    let apply = format!("{PATH}/{name}?fieldManager=a");
    let reply = send(server, "PATCH", &apply, APPLY, &block_yaml(&name, depth));
    expect(&reply, 201, &nested(depth - 1, |_| false));
}

/// Every format of a request is refused, and the error says why.
fn check_refused(server: &ApiTestServer, depth: usize, limit: usize) {
    let path = format!("{PATH}/kept");
    let message = format!("exceeded max depth: JSON may be nested {limit} levels deep");
    for (_, lists) in SHAPES {
        let value = nested(depth - 1, lists);
        let object = |name: &str| nest(name, "spec", &value);
        let put = server
            .get(&path)
            .text()
            .replace("\"spec\":{}", &format!("\"spec\":{value}"));
        for (method, path, kind, body) in [
            ("POST", PATH, JSON, object("a")),
            ("PUT", &*path, JSON, put),
            ("PATCH", &*path, MERGE, format!(r#"{{"spec":{value}}}"#)),
            (
                "PATCH",
                &*path,
                JSON_PATCH,
                format!(r#"[{{"op":"add","path":"/spec","value":{value}}}]"#),
            ),
            (
                "PATCH",
                &*format!("{path}/status"),
                MERGE,
                format!(r#"{{"status":{value}}}"#),
            ),
            ("POST", &*format!("{PATH}?dryRun=All"), JSON, object("a")),
        ] {
            let reply = send(server, method, path, kind, &body);
            expect(&reply, 400, &message);
            assert!(reply.body.len() < 1_000, "{}", reply.text());
        }
        for (method, path, kind) in [
            ("POST", PATH, YAML),
            ("PATCH", &*format!("{path}?fieldManager=a"), APPLY),
        ] {
            let reply = send(server, method, path, kind, &object("kept"));
            expect(&reply, 400, "exceeded max depth");
            assert!(reply.body.len() < 1_500, "{}", reply.text());
        }
    }
}

/// A schema is bounded more tightly than an object.
fn check_schemas(server: &ApiTestServer) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (levels, code, text) in [(60, 200, "nests"), (65, 422, "nested at most 128 levels")] {
        let opened = r#"{"type":"object","properties":{"n":"#.repeat(levels);
        let schema = format!(r#"{opened}{{"type":"string"}}{}"#, "}}".repeat(levels));
        let patch = format!(
            r#"[{{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":{schema}}}]"#
        );
        let path = format!("{definitions}/nests.deep.example.com?dryRun=All");
        expect(
            &send(server, "PATCH", &path, JSON_PATCH, &patch),
            code,
            text,
        );
    }
}

#[test]
fn objects_come_back_as_they_were_nested() {
    let server = start();
    for depth in [100, 127, 128, 500, 1_000] {
        check_accepted(&server, depth);
    }
    let kept = nest("kept", "spec", "{}");
    expect(&send(&server, "POST", PATH, JSON, &kept), 201, "kept");
    check_refused(&server, MAX_OBJECT_DEPTH + 1, MAX_OBJECT_DEPTH);
    check_refused(&server, MAX_DEPTH + 1, MAX_DEPTH);
    check_refused(&server, 20_000, MAX_DEPTH);
    // Copies of copies are nested deeper than anything that was sent.
    let add = format!(
        r#"{{"op":"add","path":"/spec","value":{}}}"#,
        nested(62, |_| false)
    );
    let copy = format!(
        r#",{{"op":"copy","from":"/spec","path":"/spec{}"}}"#,
        "/n".repeat(60)
    );
    for (copies, code, text) in [
        (15, 200, "kept"),
        (17, 400, "exceeded max depth"),
        (40, 413, "nests deeper"),
    ] {
        let patch = format!("[{add}{}]", copy.repeat(copies));
        expect(
            &send(
                &server,
                "PATCH",
                &format!("{PATH}/kept"),
                JSON_PATCH,
                &patch,
            ),
            code,
            text,
        );
    }
    expect(&server.get(&format!("{PATH}/kept")), 200, "kept");
    check_schemas(&server);
    // A stored object is read again.
    let server = server.restart();
    expect(
        &server.get(&format!("{PATH}/block-1000")),
        200,
        &nested(999, |_| false),
    );
    expect(&server.get(PATH), 200, &nested(999, |_| true));
}
