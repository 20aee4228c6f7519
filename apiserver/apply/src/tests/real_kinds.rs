//! Built-in kinds with the schemas of the catalog.

use machinery::Gvk;
use openapi::{Schema, catalog};
use serde_json::{Value, json};

use super::ManagedObjectHistory;
use super::fixtures::OneSchema;
use crate::field_type::FieldType;
use crate::typed::{DuplicateItems, field_set_of, validate};

fn builtin_schema(gvk: Gvk) -> Schema {
    let catalog = catalog();
    catalog.schema(catalog.kind(&gvk).unwrap())
}

fn deployment(template_spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "labels": {"app": "web"},
            "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
        },
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": template_spec},
        },
    })
}

#[test]
fn lists_of_built_in_kinds_are_merged_by_their_keys() {
    let schema = builtin_schema(Gvk::from_static("apps", "v1", "Deployment"));
    let field_type = FieldType::of_schema(&schema);
    let object = deployment(json!({
        "containers": [{
            "name": "app",
            "image": "i",
            "args": ["a", "b"],
            "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http"}},
        }],
        "nodeSelector": {"disk": "ssd"},
    }));
    validate(field_type, &object, DuplicateItems::Forbidden).unwrap();
    let set = serde_json::to_value(field_set_of(field_type, &object)).unwrap();
    assert_eq!(
        set["f:spec"],
        json!({
            "f:selector": {},
            "f:template": {"f:spec": {
                "f:containers": {"k:{\"name\":\"app\"}": {
                    ".": {},
                    "f:name": {},
                    "f:image": {},
                    "f:args": {},
                    "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                        "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}},
                    },
                    "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}},
                    "f:livenessProbe": {"f:httpGet": {"f:port": {}}},
                }},
                "f:nodeSelector": {},
            }},
        })
    );
    assert_eq!(
        set["f:metadata"],
        json!({
            "f:name": {},
            "f:labels": {"f:app": {}},
            "f:finalizers": {"v:\"example.com/f\"": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}},
        })
    );
}

#[test]
fn containers_of_two_appliers_are_merged() {
    let converter = OneSchema::new(builtin_schema(Gvk::from_static("apps", "v1", "Deployment")));
    let with_containers = |containers: Value| deployment(json!({"containers": containers}));
    let mut history = ManagedObjectHistory::new(&converter);
    history
        .apply(
            "one",
            "v1",
            with_containers(json!([{"name": "a", "image": "1"}])),
        )
        .apply(
            "two",
            "v1",
            with_containers(json!([{"name": "b", "image": "1"}])),
        )
        .conflicting(
            "two",
            "v1",
            with_containers(json!([{"name": "a", "image": "2"}])),
            &[("one", r#".spec.template.spec.containers[name="a"].image"#)],
        )
        .live(
            "v1",
            with_containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])),
        );
}

#[test]
fn raw_extensions_are_owned_as_a_whole() {
    let schema = builtin_schema(Gvk::from_static("apps", "v1", "ControllerRevision"));
    let object = json!({"data": {"spec": {"a": 1}}, "revision": 1});
    let set = field_set_of(FieldType::of_schema(&schema), &object);
    assert_eq!(set.to_string(), ".data\n.revision");
}
