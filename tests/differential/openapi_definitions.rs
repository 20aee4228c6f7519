//! Compares the OpenAPI definitions of `meta/v1`: kube-apiserver merges the documents of its
//! aggregated servers by the names of the definitions, so equal names must mean equal types.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::differential::request::PreparedRequest;
use crate::differential::servers::{ServerConnection, ServerPair};

const DOCUMENT: &str = "/openapi/v3/apis/apiextensions.k8s.io/v1";
const META_PREFIX: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Replies of discovery and of watches, which the paths of Flotilla's documents do not describe.
const UNDESCRIBED: [&str; 3] = ["APIResource", "APIResourceList", "WatchEvent"];

/// The definitions of `meta/v1` that a server publishes.
async fn meta_definitions(server: &ServerConnection) -> BTreeMap<String, Value> {
    let reply = server.send(PreparedRequest::get(DOCUMENT)).await;
    let mut document = reply.json().unwrap();
    let definitions = document["components"]["schemas"].as_object_mut();
    let definitions = definitions.unwrap_or_else(|| panic!("{}", reply.text()));
    let all = std::mem::take(definitions).into_iter();
    let meta = all.filter(|(name, _)| name.starts_with(META_PREFIX));
    let typed = |(name, mut definition): (String, Value)| {
        keep_types_only(&mut definition);
        (name, definition)
    };
    meta.map(typed).collect()
}

/// Descriptions and defaults of absent text say nothing about types, nor does a reference in
/// an `allOf` of its own; and the kinds that share a type are those that a server has.
fn keep_types_only(definition: &mut Value) {
    match definition {
        Value::Object(fields) => {
            for key in ["description", "default", "x-kubernetes-group-version-kind"] {
                fields.remove(key);
            }
            if let Some(Value::Array(one)) = fields.remove("allOf") {
                fields.extend(one[0].as_object().unwrap().clone());
            }
            fields.values_mut().for_each(keep_types_only);
        }
        Value::Array(items) => items.iter_mut().for_each(keep_types_only),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_definitions_of_meta_are_those_of_kubernetes() {
    if let Some(servers) = ServerPair::shared().await {
        compare_definitions(servers.connect().await).await;
    }
}

async fn compare_definitions([reference, flotilla]: [ServerConnection; 2]) {
    let expected = meta_definitions(&reference).await;
    let published = meta_definitions(&flotilla).await;
    assert!(expected.len() > 5, "{expected:?}");
    let mut wrong = Vec::new();
    for (name, definition) in &expected {
        match published.get(name) {
            Some(same) if same == definition => {}
            Some(other) => wrong.push(format!("{name}\n  {definition}\n  {other}")),
            None if UNDESCRIBED.iter().any(|reply| name.ends_with(reply)) => {}
            None => wrong.push(format!("{name} is not published")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
