//! Tests of the OpenAPI documents.

use std::collections::{BTreeMap, BTreeSet};

use machinery::{Gvk, Gvr};

use super::*;
use crate::catalog::catalog;
use crate::model::KindInfo;
use crate::schema::Schema;

fn kinds() -> Vec<(&'static KindInfo, Schema)> {
    let catalog = catalog();
    let kinds = catalog.kinds().iter();
    kinds.map(|k| (&**k, catalog.schema(k))).collect()
}

fn resources<'a>(
    kinds: &'a [(&'static KindInfo, Schema)],
    filter: impl Fn(&KindInfo) -> bool,
) -> Vec<PublishedResource<'a>> {
    kinds
        .iter()
        .filter(|(k, _)| filter(k))
        .map(|(kind, schema)| PublishedResource { kind, schema })
        .collect()
}

/// Collects all `$ref`s of a document.
fn references<'v>(value: &'v Value, into: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                match child {
                    Value::String(target) if key == "$ref" => {
                        into.insert(target);
                    }
                    child => references(child, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|i| references(i, into)),
        _ => {}
    }
}

fn check_closed(document: &Value) {
    let mut targets = BTreeSet::new();
    references(document, &mut targets);
    assert!(!targets.is_empty());
    for target in targets {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{target} is missing");
    }
}

fn check_operations(document: &Value) {
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice, {path}");
            assert!(operation["x-kubernetes-group-version-kind"].is_object());
            assert!(operation["x-kubernetes-action"].is_string());
        }
    }
}

/// The name of the type of a property, or of the items it contains.
fn type_of(property: &Value) -> Option<&str> {
    let reference = property.get("$ref").or(property.pointer("/allOf/0/$ref"));
    if let Some(reference) = reference {
        return reference.as_str()?.rsplit('/').next();
    }
    let inner = property
        .get("items")
        .or(property.get("additionalProperties"));
    inner.and_then(type_of)
}

/// `kubectl explain` prints the description of a field followed by that of its type.
#[test]
fn a_field_is_described_once() {
    let kinds = kinds();
    let all = resources(&kinds, |_| true);
    // Scalars describe their format, and kinds are explained on their own.
    let scalar = |name: &str| {
        ["Quantity", "IntOrString", "Duration"]
            .iter()
            .any(|s| name.ends_with(s))
    };
    for (form, definitions) in [
        (OpenApiVersion::V2, v2_document(&all)["definitions"].clone()),
        (
            OpenApiVersion::V3,
            v3_document(&all)["components"]["schemas"].clone(),
        ),
    ] {
        for (name, definition) in definitions.as_object().unwrap() {
            let properties = definition["properties"].as_object().into_iter().flatten();
            for (field, property) in properties {
                let Some(of) = type_of(property).filter(|of| !scalar(of)) else {
                    continue;
                };
                let of_type = &definitions[of];
                let is_repeated = property["description"].is_string()
                    && of_type["description"].is_string()
                    && of_type["x-kubernetes-group-version-kind"].is_null();
                assert!(!is_repeated, "{form:?}: {name}.{field} and {of}");
            }
        }
    }
}

#[test]
fn every_group_document_is_closed_and_deterministic() {
    let kinds = kinds();
    let mut groups = BTreeMap::new();
    for (kind, _) in &kinds {
        groups.insert(kind.gvr.api_version(), ());
    }
    for version in groups.keys() {
        let rows = resources(&kinds, |k| k.gvr.api_version() == *version);
        let document = v3_document(&rows);
        check_closed(&document);
        check_operations(&document);
        assert_eq!(document.to_string(), v3_document(&rows).to_string());
    }
    let version_2 = v2_document(&resources(&kinds, |_| true));
    check_closed(&version_2);
    check_operations(&version_2);
    let text = version_2.to_string();
    assert!(!text.contains("\"oneOf\":[") && !text.contains("\"nullable\":true"));
}

#[test]
fn policies_are_published_as_clients_expect() {
    let kinds = kinds();
    let rows = resources(&kinds, |k| k.gvk.group == "policy.karmada.io");
    let document = v3_document(&rows);
    let patch = &document["paths"]["/apis/policy.karmada.io/v1alpha1/namespaces/{namespace}/propagationpolicies/{name}"]
        ["patch"];
    let content: Vec<&String> = patch["requestBody"]["content"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(
        content,
        [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json"
        ]
    );
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"fieldValidation"));
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.karmada.policy.v1alpha1.PropagationPolicy"]["x-kubernetes-group-version-kind"],
        json!([{"group": "policy.karmada.io", "version": "v1alpha1", "kind": "PropagationPolicy"}])
    );
    let spec = &schemas["io.karmada.policy.v1alpha1.PropagationSpec"];
    assert_eq!(spec["required"], json!(["resourceSelectors"]));
    assert_eq!(spec["properties"]["priority"]["default"], 0);
    assert_eq!(
        spec["properties"]["preemption"]["enum"],
        json!(["Always", "Never"])
    );
    assert_eq!(
        spec["properties"]["placement"]["allOf"][0]["$ref"],
        "#/components/schemas/io.karmada.policy.v1alpha1.Placement"
    );
    assert!(
        schemas["io.karmada.policy.v1alpha1.PropagationPolicyList"]["properties"]["items"]
            .is_object()
    );
}

#[test]
fn built_in_kinds_have_their_extensions() {
    let kinds = kinds();
    let rows = resources(&kinds, |k| k.gvr.api_version() == "v1");
    let document = v3_document(&rows);
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"]["patch"];
    let content = &patch["requestBody"]["content"];
    assert!(
        content
            .get("application/strategic-merge-patch+json")
            .is_some()
    );
    let ports =
        &document["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
    assert_eq!(ports["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(ports["x-kubernetes-list-type"], "map");
}

#[test]
fn custom_kinds_are_published_inline() {
    let schema = Schema::from_crd(&json!({"type": "object", "description": "a tab",
    "x-kubernetes-validations": [{"rule": "has(self.spec)"}],
    "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.n)"}], "properties": {
        "n": {"x-kubernetes-int-or-string": true},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "list": {"type": "array", "nullable": true, "items": {"type": "string", "enum": ["a"]}},
    }}}}))
    .unwrap();
    let kind = KindInfo {
        gvk: Gvk::from_static("stable.example.com", "v1", "CronTab"),
        gvr: Gvr::from_static("stable.example.com", "v1", "crontabs"),
        list_kind: "CronTabList".into(),
        namespaced: true,
        ..KindInfo::default()
    };
    let rows = [PublishedResource {
        kind: &kind,
        schema: &schema,
    }];
    let document = v3_document(&rows);
    check_closed(&document);
    let tab = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(tab["description"], "a tab");
    let rules = |schema: &Value| schema["x-kubernetes-validations"][0]["rule"].clone();
    assert_eq!(rules(tab), "has(self.spec)");
    assert_eq!(rules(&tab["properties"]["spec"]), "has(self.n)");
    let spec = &tab["properties"]["spec"]["properties"];
    assert_eq!(spec["n"]["x-kubernetes-int-or-string"], true);
    assert_eq!(spec["free"]["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(spec["list"]["items"]["enum"], json!(["a"]));
    assert_eq!(spec["list"]["nullable"], true);
    assert!(
        tab["properties"]["metadata"]
            .to_string()
            .contains("meta.v1.ObjectMeta")
    );
    let old = v2_document(&rows);
    check_closed(&old);
    let tab = &old["definitions"]["com.example.stable.v1.CronTab"];
    assert!(
        tab["properties"]["spec"]["properties"]["list"]
            .get("nullable")
            .is_none()
    );
}

/// kubectl takes the fields that version 2 has of a custom resource for all fields.
#[test]
fn version_2_has_no_part_of_the_fields_of_a_custom_resource() {
    const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
    let fields = json!({"a": {"type": "string"}});
    let published = |root: Value| {
        let schema = Schema::from_crd(&root).unwrap();
        let kind = KindInfo {
            gvk: Gvk::from_static("g.io", "v1", "Thing"),
            gvr: Gvr::from_static("g.io", "v1", "things"),
            list_kind: "ThingList".into(),
            ..KindInfo::default()
        };
        let resource = PublishedResource {
            kind: &kind,
            schema: &schema,
        };
        let mut definition = v2_document(&[resource])["definitions"]["io.g.v1.Thing"].clone();
        let gvks = definition.as_object_mut().unwrap();
        assert!(gvks.remove("x-kubernetes-group-version-kind").is_some());
        definition
    };
    let root = json!({"type": "object", PRESERVE: true, "properties": {"spec": {"type": "object", "properties": fields}}});
    assert_eq!(published(root), json!({"type": "object"}));
    let full_object = json!({"type": "object", "properties": fields});
    let spec = published(
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "required": ["null", "whole"], "properties": {
                "whole": full_object,
                "null": {"type": "object", "nullable": true, "properties": fields},
                "nulls": {"type": "array", "items": {"type": "string", "nullable": true}},
                "list": {"type": "array", PRESERVE: true, "items": full_object},
                "more": {"type": "object", PRESERVE: true, "properties": fields},
                "resource": {"type": "object", PRESERVE: true, "x-kubernetes-embedded-resource": true},
        }}}}),
    );
    let spec = &spec["properties"]["spec"];
    assert_eq!(spec["required"], json!(["whole"]));
    for (name, expected) in [
        ("whole", full_object),
        ("null", json!({})),
        ("nulls", json!({"type": "array", "items": {}})),
        ("list", json!({PRESERVE: true})),
        ("more", json!({PRESERVE: true})),
        (
            "resource",
            json!({PRESERVE: true, "x-kubernetes-embedded-resource": true}),
        ),
    ] {
        assert_eq!(spec["properties"][name], expected, "{name}");
    }
}

#[test]
fn the_index_names_documents_by_hash() {
    let index = v3_index(&[("apis/a/v1".into(), "H".into())]);
    assert_eq!(
        index,
        json!({"paths": {"apis/a/v1": {"serverRelativeURL": "/openapi/v3/apis/a/v1?hash=H"}}})
    );
}

/// Splits a message into (number, payload of length-delimited fields).
fn split(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut n, mut shift) = (0u64, 0);
        loop {
            let b = bytes[0];
            *bytes = &bytes[1..];
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return n;
            }
            shift += 7;
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => {
                varint(&mut bytes);
            }
            1 => bytes = &bytes[8..],
            _ => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                fields.push((key >> 3, &bytes[..length]));
                bytes = &bytes[length..];
            }
        }
    }
    fields
}

fn text_of<'b>(fields: &[(u64, &'b [u8])], number: u64) -> &'b str {
    let field = fields.iter().find(|(n, _)| *n == number).unwrap();
    std::str::from_utf8(field.1).unwrap()
}

#[test]
fn the_protobuf_encoding_has_the_content_of_the_json_form() {
    let kinds = kinds();
    let document = v2_document(&resources(&kinds, |k| k.gvk.group == "policy.karmada.io"));
    let bytes = v2_protobuf(&document);
    let top = split(&bytes);
    assert_eq!(text_of(&top, 1), "2.0");
    let names_in = |number: u64| -> BTreeSet<String> {
        let (_, inner) = top.iter().find(|(n, _)| *n == number).unwrap();
        split(inner)
            .iter()
            .map(|(_, pair)| text_of(&split(pair), 1).to_owned())
            .collect()
    };
    let keys_of = |key: &str| -> BTreeSet<String> {
        document[key].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names_in(8), keys_of("paths"));
    assert_eq!(names_in(9), keys_of("definitions"));
    let (_, definitions) = top.iter().find(|(n, _)| *n == 9).unwrap();
    let policy = split(definitions)
        .into_iter()
        .map(|(_, pair)| split(pair))
        .find(|pair| text_of(pair, 1) == "io.karmada.policy.v1alpha1.PropagationPolicy")
        .unwrap();
    let schema = split(policy[1].1);
    let extension = split(schema.iter().find(|(n, _)| *n == 31).unwrap().1);
    assert_eq!(text_of(&extension, 1), "x-kubernetes-group-version-kind");
    let yaml = text_of(&split(extension[1].1), 2);
    assert_eq!(
        machinery::json::from_str::<Value>(yaml).unwrap()[0]["kind"],
        "PropagationPolicy"
    );
}

#[test]
fn quantities_of_karmadas_definitions_are_written_out() {
    let kinds = kinds();
    let all = resources(&kinds, |_| true);
    let v2 = v2_document(&all)["definitions"].clone();
    let v3 = v3_document(&all)["components"]["schemas"].clone();
    let quota = "io.karmada.policy.v1alpha1.FederatedResourceQuotaSpec";
    let values =
        |schemas: &Value| schemas[quota]["properties"]["overall"]["additionalProperties"].clone();
    let (old, new) = (values(&v2), values(&v3));
    assert_eq!(
        new["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert!(old["anyOf"].is_null() && old["type"].is_null(), "{old}");
    for schema in [old, new] {
        assert_eq!(schema["x-kubernetes-int-or-string"], true, "{schema}");
        assert!(
            schema["pattern"].as_str().unwrap().contains("[numkMGTPE]"),
            "{schema}"
        );
    }
    let range = &v3["io.karmada.cluster.v1alpha1.ResourceModelRange"]["properties"]["min"];
    assert!(range["pattern"].is_null(), "{range}");
}

/// The paths of empty lists and objects in a document, except for default values and fields that Go
/// keeps when they are empty.
fn empty_values(value: &Value, path: &str, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, child)| (key.clone(), child))
            .collect(),
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered.map(|(i, child)| (i.to_string(), child)).collect()
        }
        _ => return,
    };
    let is_kept = |key: &str| {
        // Values, schemas without rules, and optional security.
        matches!(
            key,
            "default" | "enum" | "additionalProperties" | "items" | "schemas"
        ) || path.ends_with("/properties")
            || path.ends_with("/schemas")
            || path.ends_with("/definitions")
    };
    for (key, child) in children {
        let value_path = format!("{path}/{key}");
        let is_empty = child.as_object().is_some_and(Map::is_empty)
            || child.as_array().is_some_and(Vec::is_empty);
        if is_empty && !is_kept(&key) {
            paths.push(value_path.clone());
        }
        if key != "default" {
            empty_values(child, &value_path, paths);
        }
    }
}

/// Clients decode a document, encode it again and expect the same.
#[test]
fn documents_have_no_empty_lists() {
    let kinds = kinds();
    let mut empty_paths = Vec::new();
    for (group, version) in [("", "v1"), ("apps", "v1"), ("apiextensions.k8s.io", "v1")] {
        let of_version = |k: &KindInfo| *k.gvk.group == *group && *k.gvk.version == *version;
        empty_values(
            &v3_document(&resources(&kinds, of_version)),
            group,
            &mut empty_paths,
        );
    }
    let raw = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = Schema::from_crd(&raw).unwrap();
    let kind = KindInfo {
        gvk: Gvk::new("g.io", "v1", "Thing"),
        gvr: Gvr::new("g.io", "v1", "things"),
        list_kind: "ThingList".into(),
        verbs: KindInfo::default_verbs(),
        namespaced: true,
        ..KindInfo::default()
    };
    let custom = PublishedResource {
        kind: &kind,
        schema: &schema,
    };
    empty_values(&v3_document(&[custom]), "custom", &mut empty_paths);
    assert_eq!(empty_paths, [] as [&str; 0]);
}
