//! Objects of built-in kinds are decoded as Kubernetes' own types decode them: every field of
//! every kind with null, empty, zero and mistyped values.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use harness::process::run_with_input;
use machinery::FieldErrorType;
use openapi::{KindInfo, SchemaCursor, SchemaType, catalog, defaults};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::test_server::ApiTestServer;

/// Groups whose Go types are in none of the judge's libraries.
const UNKNOWN_GROUPS: [&str; 2] = ["apiregistration.k8s.io", "metrics.k8s.io"];
const MAX_SHOWN_DIFFERENCES: usize = 60;

/// The judge's answer about an object.
#[derive(Deserialize)]
struct DecodeResult {
    object: Option<Value>,
    #[serde(default)]
    strict: String,
    #[serde(default)]
    error: String,
}

/// The way from an object to one of its fields.
#[derive(Clone)]
enum PathStep {
    Field(String),
    Item,
    Key,
}

/// Collects objects of one kind in which one field has a value that is at the edge of its type.
struct ProbeGenerator<'a> {
    kind: &'a KindInfo,
    probes: &'a mut Vec<Value>,
}

impl ProbeGenerator<'_> {
    /// `visited`: definitions that were probed before, in this kind or another.
    fn probe_fields(
        &mut self,
        cursor: SchemaCursor<'_>,
        path: &mut Vec<PathStep>,
        visited: &mut BTreeSet<String>,
    ) {
        let Some(definition) = cursor.definition() else {
            return;
        };
        if !visited.insert(definition.name.to_string()) {
            return;
        }
        for field in &definition.fields {
            let is_root = path.is_empty();
            if is_root && matches!(&*field.name, "apiVersion" | "kind") {
                continue;
            }
            path.push(PathStep::Field(field.name.to_string()));
            if let Some(cursor) = cursor.field(&field.name) {
                self.probe_value(cursor, path, visited);
            }
            path.pop();
        }
    }

    fn probe_value(
        &mut self,
        cursor: SchemaCursor<'_>,
        path: &mut Vec<PathStep>,
        visited: &mut BTreeSet<String>,
    ) {
        // Kubernetes takes any JSON where an object is meant, and refuses it later.
        if matches!(cursor.ty(), SchemaType::Any | SchemaType::Object) {
            for value in [json!(null), json!({})] {
                let object = self.object_with(path, value);
                self.probes.push(object);
            }
            return;
        }
        let values = [
            json!(null),
            json!(""),
            json!("x"),
            json!(0),
            json!(1.5),
            json!(1e20),
            json!(false),
            json!([]),
            json!({}),
        ];
        for value in values {
            let object = self.object_with(path, value);
            self.probes.push(object);
        }
        let below = match cursor.ty() {
            SchemaType::Array(_) => cursor.item().map(|item| (PathStep::Item, item)),
            SchemaType::Map(_) => cursor.field("k").map(|value| (PathStep::Key, value)),
            _ => None,
        };
        match below {
            Some((step, cursor)) => {
                path.push(step);
                self.probe_value(cursor, path, visited);
                path.pop();
            }
            None => self.probe_fields(cursor, path, visited),
        }
    }

    fn object_with(&self, path: &[PathStep], value: Value) -> Value {
        let mut object = path.iter().rev().fold(value, |below, step| match step {
            PathStep::Field(name) => json!({ name: below }),
            PathStep::Item => json!([below]),
            PathStep::Key => json!({ "k": below }),
        });
        object["apiVersion"] = self.kind.gvk.api_version().into();
        object["kind"] = self.kind.gvk.kind.to_string().into();
        object
    }
}

fn built_in_kinds() -> impl Iterator<Item = &'static KindInfo> {
    let kinds = catalog().kinds().iter().map(|kind| &**kind);
    kinds.filter(|kind| kind.protobuf && !UNKNOWN_GROUPS.contains(&&*kind.gvk.group))
}

fn probes() -> Vec<Value> {
    let mut probes = Vec::new();
    let mut visited = BTreeSet::new();
    for kind in built_in_kinds() {
        let schema = catalog().schema(kind);
        let mut generator = ProbeGenerator {
            kind,
            probes: &mut probes,
        };
        generator.probe_fields(schema.root(), &mut Vec::new(), &mut visited);
    }
    probes
}

fn decode_with_kubernetes(program: &Path, objects: &[Value]) -> Vec<DecodeResult> {
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let output = run_with_input(&Command::new(program), lines.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let results = text
        .lines()
        .map(|line| machinery::json::from_str(line).unwrap());
    results.collect()
}

/// The object that we store before defaults, or why it is refused.
fn decode(object: &Value) -> Result<Value, String> {
    let kind = built_in_kinds()
        .find(|kind| {
            object["kind"] == *kind.gvk.kind && object["apiVersion"] == kind.gvk.api_version()
        })
        .unwrap();
    let schema = catalog().schema(kind);
    if let Some(message) = schema.decode_error(object) {
        return Err(message);
    }
    let mut object = object.clone();
    let unknown = schema.prune(&mut object);
    assert!(
        unknown.is_empty(),
        "{object} has unknown fields {unknown:?}"
    );
    schema.replace_nulls(&mut object);
    defaults::canonicalize(&kind.gvk, &mut object);
    // A decoded value is not refused for its type later.
    let errors = schema.validate(&object).into_iter();
    let mut mistyped = errors.filter(|error| error.error_type == FieldErrorType::TypeInvalid);
    if let Some(error) = mistyped.next() {
        return Err(error.to_string());
    }
    Ok(without_zeros(schema.root(), object))
}

/// The object without zeros that mean the same as an absent field: Go writes the zeros of required
/// fields even where the client sent none.
fn without_zeros(cursor: SchemaCursor<'_>, value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let item = cursor.item();
            let items = items.into_iter();
            items
                .map(|value| item.map_or(value.clone(), |item| without_zeros(item, value)))
                .collect()
        }
        Value::Object(fields) => {
            let is_struct = cursor.definition().is_some();
            let mut kept = Map::new();
            for (name, value) in fields {
                let Some(field) = cursor.field(&name) else {
                    kept.insert(name, value);
                    continue;
                };
                let value = without_zeros(field, value);
                if !(is_struct && is_zero(field, &value)) {
                    kept.insert(name, value);
                }
            }
            Value::Object(kept)
        }
        other => other,
    }
}

fn is_zero(field: SchemaCursor<'_>, value: &Value) -> bool {
    let is_value_struct = field.default().is_some_and(|d| *d == json!({}));
    match value {
        Value::Null => true,
        Value::String(text) if *field.ty() == SchemaType::Quantity => text == "0",
        Value::Object(fields) if field.definition().is_some() => {
            fields.is_empty() && is_value_struct
        }
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ if field.node().pointer => false,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(is_set) => !is_set,
    }
}

/// How our decoding of an object differs from the judge's.
fn difference(object: &Value, result: &DecodeResult) -> Option<String> {
    let kind = built_in_kinds().find(|kind| {
        object["kind"] == *kind.gvk.kind && object["apiVersion"] == kind.gvk.api_version()
    })?;
    let schema = catalog().schema(kind);
    let expected = match &result.object {
        Some(stored) if result.strict.is_empty() => {
            Ok(without_zeros(schema.root(), stored.clone()))
        }
        Some(_) => Err(result.strict.clone()),
        None => Err(result.error.clone()),
    };
    let decoded = decode(object);
    let is_equal = match (&decoded, &expected) {
        (Ok(decoded), Ok(expected)) => decoded == expected,
        (Err(decoded), Err(expected)) => without_go_names(decoded) == without_go_names(expected),
        _ => false,
    };
    (!is_equal).then(|| format!("{object}\n  Kubernetes: {expected:?}\n  Flotilla:   {decoded:?}"))
}

/// An error without the names of Go's types and of embedded structs, which no schema has.
fn without_go_names(error: &str) -> &str {
    error.split(" into Go ").next().unwrap_or(error)
}

#[test]
fn kubernetes_types_decode_alike() {
    let Some([program]) = harness::tools(["typed-decode"]) else {
        return;
    };
    let probes = probes();
    let results = decode_with_kubernetes(&program, &probes);
    assert_eq!(results.len(), probes.len());
    let pairs = probes.iter().zip(&results);
    let differences: Vec<String> = pairs
        .filter_map(|(object, result)| difference(object, result))
        .collect();
    let mut report = format!("{} of {} differ", differences.len(), probes.len());
    for shown in differences.iter().take(MAX_SHOWN_DIFFERENCES) {
        write!(report, "\n{shown}").unwrap();
    }
    assert!(differences.is_empty(), "{report}");
}

/// Objects as charts with unset values contain them, and what is stored of them.
fn objects_with_unset_values() -> [(&'static str, Value, &'static str, Value); 9] {
    let rule = json!({"apiGroups": [null], "resources": ["pods"], "verbs": [null, "get"]});
    let template = json!({"metadata": {"labels": {"app": "a"}, "annotations": {"checksum": null}},
        "spec": {"nodeSelector": {"pool": null}, "containers": [{"name": "c", "image": "busybox:1",
            "args": [null], "resources": {"limits": {"memory": null}}}]}});
    [
        (
            "/api/v1/namespaces/unset/configmaps",
            json!({"metadata": {"name": "a", "labels": {"release": null}},
                "data": {"optional": null, "set": "1"}, "binaryData": {"k": "", "n": null}}),
            "/data",
            json!({"optional": "", "set": "1"}),
        ),
        (
            "/api/v1/namespaces/unset/configmaps",
            json!({"metadata": {"name": "b", "labels": {"release": null}},
                "binaryData": {"k": "", "n": null}}),
            "/binaryData",
            json!({"k": "", "n": ""}),
        ),
        (
            "/api/v1/namespaces/unset/secrets",
            json!({"metadata": {"name": "a"}, "data": {"a": "YQ==", "b": "", "c": null}}),
            "/data",
            json!({"a": "YQ==", "b": "", "c": ""}),
        ),
        (
            "/api/v1/namespaces/unset/secrets",
            json!({"metadata": {"name": "b"}, "stringData": {"a": null, "b": ""}}),
            "/data",
            json!({"a": "", "b": ""}),
        ),
        (
            "/api/v1/namespaces/unset/secrets",
            json!({"metadata": {"name": "c"}, "type": "kubernetes.io/tls",
                "data": {"tls.crt": "", "tls.key": ""}}),
            "/data",
            json!({"tls.crt": "", "tls.key": ""}),
        ),
        (
            "/apis/apps/v1/namespaces/unset/deployments",
            json!({"metadata": {"name": "a"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "template": template}}),
            "/spec/template/spec/containers/0/args",
            json!([""]),
        ),
        (
            "/apis/apps/v1/namespaces/unset/deployments",
            json!({"metadata": {"name": "b"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "template": template}}),
            "/spec/template/spec/containers/0/resources",
            json!({"limits": {"memory": "0"}}),
        ),
        (
            "/api/v1/namespaces/unset/services",
            json!({"metadata": {"name": "a"}, "spec": {"selector": {"app": null},
                "ports": [{"port": 80, "targetPort": null}]}}),
            "/spec/selector",
            json!({"app": ""}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/unset/roles",
            json!({"metadata": {"name": "a"}, "rules": [rule]}),
            "/rules",
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["", "get"]}]),
        ),
    ]
}

#[test]
fn unset_values_are_zeros_of_their_types() {
    let server = ApiTestServer::shared();
    server.create_namespace("unset");
    for (path, object, pointer, stored) in objects_with_unset_values() {
        let created = server.post(path, &object);
        assert_eq!(created.code, 201, "{}", created.text());
        assert_eq!(created.json().pointer(pointer), Some(&stored), "{object}");
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        let replaced = server.request("PUT", &path).json(&object).send();
        assert_eq!(replaced.code, 200, "{}", replaced.text());
        let mut applied = created.json();
        let managed = applied["metadata"].as_object_mut().unwrap();
        managed.remove("managedFields");
        managed.remove("resourceVersion");
        applied
            .as_object_mut()
            .unwrap()
            .extend(object.as_object().unwrap().clone());
        let applied = server
            .request("PATCH", &format!("{path}?fieldManager=a&force=true"))
            .body("application/apply-patch+yaml", applied.to_string())
            .send();
        assert_eq!(applied.code, 200, "{}", applied.text());
        assert_eq!(server.get(&path).json().pointer(pointer), Some(&stored));
    }
}
