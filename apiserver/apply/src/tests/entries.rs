//! `metadata.managedFields` and the entries of the `scale` subresource.

use serde_json::{Value, json};

use crate::managed_fields::ManagedFields;
use crate::scale_entries::ScaleEntries;

fn entry(manager: &str, operation: &str, version: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": version, "time": time,
           "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn decode(entries: &Value) -> ManagedFields {
    ManagedFields::decode(Some(entries)).unwrap()
}

const NOON: &str = "2026-01-02T12:00:00Z";
const EVENING: &str = "2026-01-02T18:00:00Z";

#[test]
fn entries_are_read_and_written() {
    let mut scaled = entry(
        "hpa",
        "Update",
        "apps/v1",
        EVENING,
        json!({"f:spec": {"f:replicas": {}}}),
    );
    scaled["subresource"] = "scale".into();
    let entries = json!([
        entry(
            "b",
            "Apply",
            "v1",
            NOON,
            json!({"f:spec": {".": {}, "f:x": {}}})
        ),
        entry(
            "a",
            "Apply",
            "v1beta1",
            EVENING,
            json!({"f:metadata": {"f:labels": {"f:l": {}}}})
        ),
        entry(
            "a",
            "Update",
            "v1",
            NOON,
            json!({"f:spec": {"k:{\"name\":\"x\"}": {}}})
        ),
        entry("a", "Update", "v2", NOON, json!({"f:spec": {}})),
        scaled,
    ]);
    assert_eq!(decode(&entries).encode(), Some(entries.clone()));
    let text = entries.to_string();
    let managed = ManagedFields::decode_json(&text).unwrap();
    assert_eq!(managed.encode_json(), Some(text));
    let mut shuffled = entries.clone();
    shuffled.as_array_mut().unwrap().reverse();
    assert_eq!(decode(&shuffled).encode(), Some(entries));
    assert_eq!(ManagedFields::default().encode(), None);
    assert_eq!(
        ManagedFields::decode_json("null"),
        Ok(ManagedFields::default())
    );
}

#[test]
fn an_applier_has_one_entry_whatever_its_version() {
    let managed = decode(&json!([
        entry("a", "Apply", "v1", NOON, json!({"f:x": {}})),
        entry("a", "Apply", "v2", EVENING, json!({"f:y": {}})),
    ]));
    let expected = json!([entry("a", "Apply", "v2", EVENING, json!({"f:y": {}}))]);
    assert_eq!(managed.encode(), Some(expected));
}

#[test]
fn malformed_entries_are_rejected() {
    let valid = entry("a", "Apply", "v1", NOON, json!({}));
    for (field, value, message) in [
        (
            "operation",
            json!("Create"),
            "operation must be `Apply` or `Update`",
        ),
        ("apiVersion", json!(""), "apiVersion must not be empty"),
        (
            "fieldsType",
            json!(""),
            "missing fieldsType in managed fields entry 0",
        ),
        (
            "fieldsType",
            json!("V2"),
            r#"invalid fieldsType "V2" in managed fields entry 0"#,
        ),
        ("fieldsV1", json!({"x": {}}), ""),
        ("time", json!("noon"), ""),
        ("manager", json!(1), ""),
    ] {
        let mut entry = valid.clone();
        entry[field] = value;
        let error = ManagedFields::decode(Some(&json!([entry]))).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    assert!(ManagedFields::decode(Some(&json!({}))).is_err());
}

#[test]
fn a_write_resets_replaces_or_keeps_managers() {
    let live = json!([entry("live", "Update", "v1", NOON, json!({"f:x": {}}))]);
    let new = json!([entry("new", "Update", "v1", NOON, json!({"f:y": {}}))]);
    let malformed = json!([{"manager": "m"}]);
    let read = |new: Option<&Value>, is_subresource| {
        ManagedFields::decode_live_or_new(Some(&live), new, is_subresource)
    };
    assert!(read(Some(&json!([])), false).is_empty());
    assert!(read(Some(&json!([{}])), false).is_empty());
    assert_eq!(read(Some(&new), false), decode(&new));
    for ignored in [None, Some(&Value::Null), Some(&malformed)] {
        assert_eq!(read(ignored, false), decode(&live));
    }
    for new_managers in [json!([]), new] {
        assert_eq!(read(Some(&new_managers), true), decode(&live));
    }
    assert!(ManagedFields::decode_live_or_new(Some(&malformed), None, false).is_empty());
}

fn scale_entries() -> ScaleEntries {
    ScaleEntries::new([
        ("apps/v1", Some(".spec.replicas")),
        ("apps/v2", Some(".spec.size.replicas")),
        ("apps/v3", None),
    ])
}

#[test]
fn owners_of_replicas_manage_the_scale() {
    let parent = decode(&json!([
        entry(
            "one",
            "Apply",
            "apps/v1",
            NOON,
            json!({"f:spec": {"f:replicas": {}, "f:x": {}}})
        ),
        entry(
            "two",
            "Update",
            "apps/v2",
            EVENING,
            json!({"f:spec": {"f:size": {"f:replicas": {}}}})
        ),
        entry(
            "three",
            "Update",
            "apps/v1",
            EVENING,
            json!({"f:spec": {"f:x": {}}})
        ),
        entry(
            "four",
            "Update",
            "apps/v3",
            EVENING,
            json!({"f:spec": {"f:replicas": {}}})
        ),
        entry(
            "five",
            "Update",
            "apps/v9",
            EVENING,
            json!({"f:spec": {"f:replicas": {}}})
        ),
    ]));
    let scale = scale_entries().to_scale(&parent);
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let expected = json!([
        entry("one", "Apply", "autoscaling/v1", NOON, replicas.clone()),
        entry("two", "Update", "autoscaling/v1", EVENING, replicas),
    ]);
    assert_eq!(scale.encode(), Some(expected));
}

#[test]
fn a_write_of_the_scale_takes_the_replicas() {
    let parent = decode(&json!([
        entry(
            "one",
            "Apply",
            "apps/v1",
            NOON,
            json!({"f:spec": {"f:replicas": {}, "f:x": {}}})
        ),
        entry(
            "two",
            "Update",
            "apps/v2",
            NOON,
            json!({"f:spec": {"f:size": {"f:replicas": {}}}})
        ),
        entry(
            "four",
            "Update",
            "apps/v3",
            NOON,
            json!({"f:spec": {"f:y": {}}})
        ),
        entry(
            "five",
            "Update",
            "apps/v9",
            NOON,
            json!({"f:spec": {"f:y": {}}})
        ),
    ]));
    let scale = decode(&json!([entry(
        "hpa",
        "Update",
        "autoscaling/v1",
        EVENING,
        json!({"f:spec": {"f:replicas": {}}})
    ),]));
    let new = scale_entries().to_parent(&parent, &scale, "apps/v1");
    let owners: Vec<(String, String)> = new
        .sets()
        .iter()
        .map(|(id, managed)| (id.manager.to_string(), managed.set.to_string()))
        .collect();
    let owner = |manager: &str, path: &str| (manager.to_owned(), path.to_owned());
    assert_eq!(
        owners,
        [
            owner("four", ".spec.y"),
            owner("hpa", ".spec.replicas"),
            owner("one", ".spec.x"),
        ]
    );
    // A manager that keeps the replicas keeps its entry.
    let unchanged = scale_entries().to_scale(&parent);
    let new = scale_entries().to_parent(&parent, &unchanged, "apps/v1");
    assert_eq!(new.sets().len(), 3);
}
