//! Expands the short form of a CustomResourceDefinition in the case files, creates it on both
//! servers, and waits until its objects are served.
//!
//! The short form of `things` is `{kind: Thing, schema: SCHEMA}` with, optionally,
//! `scope: Cluster`, `subresources`, `columns` (additionalPrinterColumns) and `selectable`
//! (selectableFields), or instead of a schema `versions`, a list of versions in which `served`
//! is true unless said otherwise and the first one is stored. Other fields are those of `spec`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::differential::conversion_webhook::fill_webhook;
use crate::differential::request::{CRDS, PreparedRequest};
use crate::differential::servers::ServerConnection;

const SERVED_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The API group of a theme's definitions.
pub(crate) fn group(theme: &str) -> String {
    format!("{theme}.example.com")
}

fn move_field(from: &mut Map<String, Value>, old: &str, to: &mut Map<String, Value>, new: &str) {
    if let Some(value) = from.remove(old) {
        to.insert(new.to_owned(), value);
    }
}

fn expand_version(short: &mut Map<String, Value>, name: &str, storage: bool) -> Value {
    let mut version = Map::new();
    version.insert("name".to_owned(), json!(name));
    version.insert("served".to_owned(), json!(true));
    version.insert("storage".to_owned(), json!(storage));
    if let Some(schema) = short.remove("schema") {
        let schema = json!({"openAPIV3Schema": schema});
        version.insert("schema".to_owned(), schema);
    }
    move_field(short, "subresources", &mut version, "subresources");
    move_field(short, "columns", &mut version, "additionalPrinterColumns");
    move_field(short, "selectable", &mut version, "selectableFields");
    Value::Object(version)
}

/// The complete definition.
pub(crate) fn expand(group: &str, plural: &str, short: &Value) -> Value {
    let mut spec = short.as_object().unwrap().clone();
    let kind = spec
        .remove("kind")
        .unwrap_or_else(|| panic!("{plural}: no kind"));
    let versions = match spec.remove("versions") {
        Some(Value::Array(list)) => list
            .into_iter()
            .enumerate()
            .map(|(n, version)| {
                let Value::Object(mut version) = version else {
                    panic!("{plural}: a version is not an object")
                };
                let name = version.remove("name").unwrap();
                let mut expanded = expand_version(&mut version, name.as_str().unwrap(), n == 0);
                expanded.as_object_mut().unwrap().extend(version);
                expanded
            })
            .collect(),
        _ => vec![expand_version(&mut spec, "v1", true)],
    };
    let singular = kind.as_str().unwrap().to_lowercase();
    let list_kind = format!("{}List", kind.as_str().unwrap());
    let names =
        json!({"plural": plural, "singular": singular, "kind": kind, "listKind": list_kind});
    spec.insert("group".to_owned(), json!(group));
    spec.entry("names").or_insert(names);
    spec.entry("scope").or_insert(json!("Namespaced"));
    spec.insert("versions".to_owned(), Value::Array(versions));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": spec,
    })
}

/// Creates the definition and waits until every served version lists.
pub(crate) async fn create(server: &ServerConnection, definition: &Value) {
    let definition = &fill_webhook(definition);
    let created = server
        .send(PreparedRequest::json("POST", CRDS, definition))
        .await;
    assert_eq!(created.code, 201, "{}: {}", server.name, created.text());
    let spec = &definition["spec"];
    for version in spec["versions"].as_array().unwrap() {
        if version["served"] == json!(true) {
            let field = |value: &Value| value.as_str().unwrap().to_owned();
            let (group, plural) = (field(&spec["group"]), field(&spec["names"]["plural"]));
            let version = field(&version["name"]);
            wait_served(server, &format!("/apis/{group}/{version}/{plural}")).await;
        }
    }
}

async fn wait_served(server: &ServerConnection, path: &str) {
    let end = Instant::now() + SERVED_TIMEOUT;
    loop {
        let listed = server.send(PreparedRequest::get(path)).await;
        if listed.code == 200 {
            return;
        }
        let late = Instant::now() > end;
        assert!(
            !late,
            "{} does not serve {path}: {}",
            server.name,
            listed.text()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
