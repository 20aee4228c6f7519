//! Writes of whole objects: creates, updates and applies with their entries and times.

use jiff::Timestamp;
use machinery::{Gvk, StatusCause};
use openapi::Schema;
use serde_json::{Value, json};

use super::fixtures::{OneSchema, list_by, number, object, schema, string};
use crate::field_manager::{AppliedObject, ApplyError, FieldManager};
use crate::managed_fields::ManagedFields;
use crate::reset_fields::ResetFields;

const GVK: Gvk = Gvk::from_static("apps", "v1", "Thing");

fn thing_schema() -> Schema {
    schema(json!({
        "spec": object(json!({"replicas": number(), "image": string(),
            "items": list_by(&["name"], json!({"name": string(), "value": number()}))})),
        "status": object(json!({"ready": number()})),
    }))
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"},
           "spec": spec})
}

fn empty() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Thing", "metadata": {}})
}

/// An object that exists, with its managers.
struct StoredThing {
    converter: OneSchema,
    object: Value,
    managed: ManagedFields,
    seconds: i64,
}

impl StoredThing {
    fn new() -> Self {
        Self {
            converter: OneSchema::new(thing_schema()),
            object: empty(),
            managed: ManagedFields::default(),
            seconds: 0,
        }
    }

    fn with_manager<T>(&mut self, write: impl FnOnce(&FieldManager<'_>, &Value) -> T) -> T {
        self.seconds += 1;
        let reset_fields = ResetFields::of_paths(&[&["status"]]);
        let manager = FieldManager {
            converter: &self.converter,
            gvk: &GVK,
            subresource: "",
            reset_fields: &reset_fields,
            now: Timestamp::from_second(self.seconds).unwrap(),
        };
        write(&manager, &self.object)
    }

    fn update(&mut self, manager: &str, new: Value) {
        let managed = self.managed.clone();
        let text = managed.encode_json();
        let (managed, from_text) = self.with_manager(|m, live| {
            let from_text = text.map(|t| m.update_json(live, &new, &t, manager).unwrap());
            (m.update(live, &new, managed, manager).unwrap(), from_text)
        });
        if let Some(from_text) = from_text {
            assert_eq!(from_text, managed.encode_json());
        }
        self.managed = managed;
        self.object = new;
        self.object["metadata"]["uid"] = "1".into();
    }

    fn try_apply(
        &mut self,
        manager: &str,
        config: &Value,
        force: bool,
    ) -> Result<AppliedObject, ApplyError> {
        let managed = self.managed.clone();
        self.with_manager(|m, live| m.apply(live, config, managed, manager, force))
    }

    fn apply(&mut self, manager: &str, config: &Value) -> bool {
        let applied = self.try_apply(manager, config, false).unwrap();
        self.object = applied.object;
        self.object["metadata"]["uid"] = "1".into();
        self.managed = applied.managed;
        applied.is_changed
    }

    /// Manager, operation, second of the last change and fields.
    fn entries(&self) -> Vec<(String, String, Option<i64>, String)> {
        let entries = self.managed.encode().unwrap_or_default();
        let entries = entries.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let second = |value: &Value| Some(value.as_str()?.parse::<Timestamp>().ok()?.as_second());
        entries
            .iter()
            .map(|e| {
                let fields = e["fieldsV1"].to_string();
                (
                    text(&e["manager"]),
                    text(&e["operation"]),
                    second(&e["time"]),
                    fields,
                )
            })
            .collect()
    }

    fn check_entries(&self, expected: &[(&str, &str, Option<i64>, Value)]) {
        let expected: Vec<(String, String, Option<i64>, String)> = expected
            .iter()
            .map(|(m, o, t, f)| ((*m).into(), (*o).into(), *t, f.to_string()))
            .collect();
        assert_eq!(self.entries(), expected);
    }
}

#[test]
fn a_create_owns_all_but_identity_and_status() {
    let mut stored = StoredThing::new();
    let mut new = thing(json!({"replicas": 1}));
    new["metadata"]["labels"] = json!({"a": "b"});
    new["metadata"]["generation"] = 1.into();
    new["status"] = json!({"ready": 1});
    stored.update("kubectl", new);
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                        "f:spec": {".": {}, "f:replicas": {}}});
    stored.check_entries(&[("kubectl", "Update", Some(1), fields)]);
}

#[test]
fn the_time_of_an_entry_changes_only_with_its_fields() {
    let mut stored = StoredThing::new();
    let (fields_of_one, fields_of_two) = (
        json!({"f:spec": {"f:replicas": {}}}),
        json!({"f:spec": {"f:image": {}}}),
    );
    assert!(stored.apply("one", &thing(json!({"replicas": 1}))));
    assert!(!stored.apply("one", &thing(json!({"replicas": 1}))));
    stored.update("two", thing(json!({"replicas": 1, "image": "i"})));
    stored.update("two", thing(json!({"replicas": 1, "image": "i"})));
    stored.check_entries(&[
        ("one", "Apply", Some(1), fields_of_one.clone()),
        ("two", "Update", Some(3), fields_of_two.clone()),
    ]);
    let before = stored.managed.clone();
    stored.update("two", thing(json!({"replicas": 1, "image": "j"})));
    assert!(stored.managed.same_ownership(&before) && stored.managed != before);
    stored.check_entries(&[
        ("one", "Apply", Some(1), fields_of_one),
        ("two", "Update", Some(5), fields_of_two),
    ]);
}

#[test]
fn the_status_is_not_applied_into_ownership() {
    let mut stored = StoredThing::new();
    let mut config = thing(json!({"replicas": 1}));
    config["status"] = json!({"ready": 3});
    stored.apply("one", &config);
    stored.check_entries(&[(
        "one",
        "Apply",
        Some(1),
        json!({"f:spec": {"f:replicas": {}}}),
    )]);
}

#[test]
fn fields_without_managers_get_one_at_the_first_apply() {
    let mut stored = StoredThing::new();
    stored.object = thing(json!({"replicas": 1, "image": "i"}));
    stored.object["metadata"]["uid"] = "1".into();
    // An update does not begin to track them.
    stored.update("two", thing(json!({"replicas": 2, "image": "i"})));
    stored.check_entries(&[]);
    stored.apply("one", &thing(json!({"image": "i"})));
    stored.check_entries(&[
        ("one", "Apply", None, json!({"f:spec": {"f:image": {}}})),
        (
            "before-first-apply",
            "Update",
            Some(2),
            json!({"f:spec": {".": {}, "f:image": {}, "f:replicas": {}}}),
        ),
    ]);
}

#[test]
fn the_oldest_updates_are_united() {
    let mut stored = StoredThing::new();
    let mut items = Vec::new();
    for i in 1..=14 {
        items.push(json!({"name": format!("i{i:02}")}));
        stored.update(&format!("m{i:02}"), thing(json!({"items": items})));
    }
    let entries = stored.entries();
    assert_eq!(entries.len(), 10);
    let (manager, _, time, fields) = &entries[0];
    assert_eq!((manager.as_str(), *time), ("ancient-changes", Some(5)));
    for i in 1..=5 {
        assert!(fields.contains(&format!("i{i:02}")), "{fields}");
    }
    assert_eq!(entries[1].0, "m06");
    assert_eq!(entries[9].0, "m14");
}

#[test]
fn conflicts_have_the_texts_of_kubernetes() {
    let mut stored = StoredThing::new();
    stored.update("ctl", thing(json!({"replicas": 1, "image": "i"})));
    stored.apply("one", &thing(json!({"image": "i"})));
    let conflicts = |stored: &mut StoredThing, spec: Value| match stored.try_apply(
        "two",
        &thing(spec),
        false,
    ) {
        Err(ApplyError::Conflicts(conflicts)) => conflicts,
        other => panic!("{other:?}"),
    };
    let single = conflicts(&mut stored, json!({"replicas": 2}));
    assert_eq!(
        single.to_string(),
        r#"Apply failed with 1 conflict: conflict with "ctl" using apps/v1: .spec.replicas"#
    );
    assert_eq!(
        single.causes(),
        [StatusCause {
            reason: "FieldManagerConflict".into(),
            message: r#"conflict with "ctl" using apps/v1"#.into(),
            field: ".spec.replicas".into(),
        }]
    );
    let several = conflicts(&mut stored, json!({"replicas": 2, "image": "j"}));
    assert_eq!(
        several.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"ctl\" using apps/v1:\n- .spec.image\n- .spec.replicas\nconflicts with \"one\":\n- .spec.image"
    );
    let applied = stored.try_apply("two", &thing(json!({"replicas": 2})), true);
    assert_eq!(applied.unwrap().object["spec"]["replicas"], 2);
}

#[test]
fn conflicts_name_the_subresource() {
    let mut stored = StoredThing::new();
    stored.update("ctl", thing(json!({"replicas": 1})));
    let mut entries = stored.managed.encode().unwrap();
    entries[0]["subresource"] = "scale".into();
    stored.managed = ManagedFields::decode(Some(&entries)).unwrap();
    let error = stored.try_apply("one", &thing(json!({"replicas": 2})), false);
    assert_eq!(
        error.unwrap_err().to_string(),
        r#"Apply failed with 1 conflict: conflict with "ctl" with subresource "scale" using apps/v1: .spec.replicas"#
    );
}

#[test]
fn configurations_for_another_object_are_rejected() {
    let mut stored = StoredThing::new();
    let mut other_kind = thing(json!({}));
    other_kind["kind"] = "Other".into();
    let mut managed = thing(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    for (config, message) in [
        (other_kind, "invalid object type: apps/v1, Kind=Other"),
        (managed, "metadata.managedFields must be nil"),
    ] {
        let error = stored.try_apply("one", &config, false).unwrap_err();
        assert_eq!(error, ApplyError::BadRequest(message.into()));
    }
    let duplicates = thing(json!({"items": [{"name": "x"}, {"name": "x"}]}));
    assert_eq!(
        stored
            .try_apply("one", &duplicates, false)
            .unwrap_err()
            .to_string(),
        r#"failed to create typed patch object (n/a; apps/v1, Kind=Thing): .spec.items: duplicate entries for key [name="x"]"#
    );
    // An object that was stored so can still be applied to.
    stored.update("ctl", duplicates);
    assert!(stored.apply("one", &thing(json!({"replicas": 1}))));
}

/// An object that `kubectl apply` without `--server-side` wrote last.
fn client_side_applied(spec: Value, last_spec: Value) -> StoredThing {
    let mut stored = StoredThing::new();
    let mut object = thing(spec);
    let last = thing(last_spec).to_string();
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    stored.update("kubectl-client-side-apply", object);
    stored
}

#[test]
fn kubectl_takes_what_it_applied_from_the_client() {
    let spec = json!({"replicas": 1, "image": "i"});
    let mut stored = client_side_applied(spec.clone(), spec.clone());
    let config = thing(json!({"replicas": 2}));
    assert!(stored.try_apply("other", &config, false).is_err());
    assert!(stored.apply("kubectl", &config));
    assert_eq!(stored.object["spec"]["replicas"], 2);
    let annotation = &stored.object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap(), format!("{config}\n"));
    // A field that another manager changed since remains a conflict.
    let mut stored = client_side_applied(json!({"replicas": 5, "image": "i"}), spec);
    let config = thing(json!({"replicas": 2, "image": "j"}));
    match stored.try_apply("kubectl", &config, false) {
        Err(ApplyError::Conflicts(conflicts)) => assert_eq!(
            conflicts.to_string(),
            r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas"#
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_apply_that_omits_a_field_removes_it() {
    let mut stored = StoredThing::new();
    stored.apply(
        "one",
        &thing(json!({"replicas": 1, "items": [{"name": "x", "value": 1}, {"name": "y"}]})),
    );
    stored.update(
        "two",
        thing(
            json!({"replicas": 1, "items": [{"name": "x", "value": 1}, {"name": "y", "value": 3}]}),
        ),
    );
    stored.apply("one", &thing(json!({"items": [{"name": "y"}]})));
    assert_eq!(
        stored.object["spec"],
        json!({"items": [{"name": "y", "value": 3}]})
    );
}
