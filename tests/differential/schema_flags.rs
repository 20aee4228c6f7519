//! Sets every flag of a structural schema beside every type and compares whether a definition is
//! accepted, and how values of every type are created, applied, patched and replaced.

use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use crate::differential::case::CaseStep;
use crate::differential::comparison::compare_case;
use crate::differential::crd;
use crate::differential::request::{CRDS, CaseContext, PreparedRequest};
use crate::differential::servers::{ServerConnection, ServerPair};

const GROUP: &str = "flags.example.com";
const PLURAL: &str = "flags";
const KIND: &str = "Flag";
const CONCURRENT_FIELDS: usize = 4;

/// A schema of each type, with and without more about its values.
fn types() -> Vec<Value> {
    let inner = json!({"a": {"type": "string"}, "o": {"type": "object", "properties": {
        "k": {"type": "string"}}}});
    vec![
        json!({}),
        json!({"properties": inner}),
        json!({"items": {"type": "object", "properties": inner}}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": inner}),
        json!({"type": "object", "additionalProperties": {"type": "object", "properties": inner}}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "array", "items": {"type": "object", "properties": inner}}),
        json!({"type": "array", "items": {"type": "array", "items": {
            "type": "object", "properties": inner}}}),
        json!({"type": "string"}),
        json!({"type": "integer"}),
        json!({"type": "number"}),
        json!({"type": "boolean"}),
    ]
}

/// The flags, alone and in the pairs that are meant for each other.
fn flags() -> Vec<Value> {
    vec![
        json!({}),
        json!({"nullable": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-preserve-unknown-fields": false}),
        json!({"x-kubernetes-embedded-resource": true}),
        json!({"x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-list-type": "atomic"}),
        json!({"x-kubernetes-list-type": "atomic", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-list-type": "set"}),
        json!({"x-kubernetes-list-type": "map"}),
        json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
        json!({"x-kubernetes-list-map-keys": ["a"]}),
        json!({"x-kubernetes-map-type": "atomic"}),
        json!({"x-kubernetes-map-type": "granular", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-validations": [{"rule": "true"}]}),
    ]
}

fn schemas() -> Vec<Value> {
    let mut schemas = Vec::new();
    for base in types() {
        for flag in flags() {
            let mut schema = base.as_object().unwrap().clone();
            schema.extend(flag.as_object().unwrap().clone());
            schemas.push(Value::Object(schema));
        }
    }
    schemas
}

fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!("x"),
        json!(1),
        json!(1.5),
        json!(true),
        json!([]),
        json!(["x", "x"]),
        json!([null]),
        json!([{"a": "1", "z": {"y": [{"q": 1}]}}, {"a": "2"}]),
        json!([{"a": "1", "o": {"k": "1", "q": 1}}]),
        json!([[{"a": "1", "z": 1}]]),
        json!({}),
        json!({"z": {"y": 1}}),
        json!({"o": {"q": 1}}),
        json!({"a": {"q": 1}}),
    ]
}

fn definition(fields: &[(String, Value)]) -> Value {
    let fields: Map<String, Value> = fields.iter().cloned().collect();
    let short = json!({"kind": KIND, "schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields}}}});
    crd::expand(GROUP, PLURAL, &short)
}

/// An object that is embedded in another one.
fn resource(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "K", "z": 1, "metadata": metadata})
}

/// The requests about one field.
fn steps(field: &str, schema: &Value) -> Vec<CaseStep> {
    let mut steps = Vec::new();
    let mut add = |title: String, body: Value| steps.push(CaseStep::from([(title, body)]));
    let mut values = values();
    if schema["x-kubernetes-embedded-resource"] == true {
        values.push(resource(json!({"name": "m", "labels": {"l": null}})));
        values
            .push(json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "m", "bogus": 1}}));
    }
    let declares = |name: &str| schema.get(name).is_some_and(|value| *value != false);
    let keeps_pruned_fields = schema["type"] == "object"
        && !declares("properties")
        && !declares("additionalProperties")
        && !declares("x-kubernetes-preserve-unknown-fields");
    for (n, value) in values.into_iter().enumerate() {
        let created = format!("v{n}");
        let applied = format!("v1/{PLURAL}/a{n}");
        let spec = json!({ field: value });
        add(
            format!("POST v1/{PLURAL}"),
            json!({"metadata": {"name": created}, "spec": spec}),
        );
        add(format!("APPLY:one {applied}"), json!({"spec": spec}));
        add(format!("APPLY:two {applied}"), json!({"spec": spec}));
        // Kubernetes stores what it prunes of an applied object, until the next write.
        if !keeps_pruned_fields {
            add(
                format!("MERGE {applied}"),
                json!({"spec": { field: {"a": "3", "n": 1} }}),
            );
        }
        add(format!("APPLY:one {applied}"), json!({"spec": {}}));
    }
    steps
}

async fn is_accepted(server: &ServerConnection, schema: &Value) -> bool {
    let definition = definition(&[("f".to_owned(), schema.clone())]);
    let path = format!("{CRDS}?dryRun=All");
    let reply = server.send(PreparedRequest::json("POST", &path, &definition));
    reply.await.code == 201
}

/// The names and schemas of the fields that definitions may have. Kubernetes validates an
/// integer-or-string beside a type as such, but applies it as the type; Flotilla does as it
/// validates. Kubernetes does not track the managers of objects with sets of lists.
async fn accepted_fields(server: &ServerConnection) -> Vec<(String, Value)> {
    let mut fields = Vec::new();
    for (n, schema) in schemas().into_iter().enumerate() {
        let is_mixed = schema["x-kubernetes-int-or-string"] == true && schema["type"].is_string();
        let is_set_of_lists =
            schema["x-kubernetes-list-type"] == "set" && schema["items"]["type"] == "array";
        if !is_mixed && !is_set_of_lists && is_accepted(server, &schema).await {
            fields.push((format!("f{n}"), schema));
        }
    }
    fields
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_with_flags_are_accepted_alike() {
    compare_definitions().await;
}

async fn compare_definitions() {
    let Some(pair) = ServerPair::shared().await else {
        return;
    };
    let servers = pair.connect().await;
    let title = "POST crds?dryRun=All".to_owned();
    let steps: Vec<CaseStep> = schemas()
        .into_iter()
        .map(|schema| {
            let definition = definition(&[("f".to_owned(), schema)]);
            CaseStep::from([(title.clone(), definition)])
        })
        .collect();
    let context = CaseContext {
        namespace: "flags-of-definitions",
        group: GROUP,
        kinds: &Map::new(),
    };
    let differences = compare_case(&servers, &steps, &context, false).await;
    assert!(differences.is_none(), "{}", differences.unwrap_or_default());
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_with_flags_are_treated_alike() {
    compare_fields().await;
}

async fn compare_fields() {
    let Some(pair) = ServerPair::shared().await else {
        return;
    };
    let servers = pair.connect().await;
    let fields = accepted_fields(&servers[0]).await;
    let definition = definition(&fields);
    for server in &servers {
        crd::create(server, &definition).await;
    }
    let mut kinds = Map::new();
    kinds.insert(PLURAL.to_owned(), KIND.into());
    let (servers, kinds) = (&servers, &kinds);
    let runs = fields.iter().map(|(field, schema)| async move {
        let context = CaseContext {
            namespace: field,
            group: GROUP,
            kinds,
        };
        let differences = compare_case(servers, &steps(field, schema), &context, true).await?;
        Some(format!("## {field}: {schema}\n{differences}"))
    });
    let results: Vec<Option<String>> = futures_util::stream::iter(runs)
        .buffered(CONCURRENT_FIELDS)
        .collect()
        .await;
    let failures: Vec<String> = results.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
