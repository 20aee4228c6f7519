//! Decides how the object in a member has to change for a manifest.

use std::hash::{DefaultHasher, Hash, Hasher};

use client::EncodedObjectBody;
use controller_context::estimate_encoded_tree_bytes;
use flotilla_runtime::RestMapping;
use karmada_api::well_known_keys::{LEFT_ALONE_LABELS, LEFT_ALONE_VALUE};
use machinery::Object;
use openapi::Schema;
use serde_json::Value;

use crate::compare::{UpdateMode, desired_object, update_of};
use crate::containment::{first_difference, has_different_list};
use crate::controller::ExecutionController;
use crate::field_managers::FieldManagers;
use crate::list_keys::schema_of;
use crate::manifest::MappedManifest;
use crate::member_merge::RemovalRule;
use crate::propagation::{PropagationFailure, PropagationReason};

/// A comparison has a tree of the manifest and one of the observed object, of which the update is
/// made.
const COPIES: usize = 2;
/// The longest path of a field that a condition shows.
const MAX_SHOWN_PATH_CHARS: usize = 256;

/// The action for an object that a member has.
pub(crate) enum MemberObjectDecision {
    Nothing,
    Write(MemberObjectWrite),
    /// Somebody else's object: not ours to change.
    Foreign,
    /// The object has fields that the manifest does not set: whether they stay depends on who set
    /// them.
    NeedsFieldManagers,
}

/// An update of an object in a member.
pub(crate) struct MemberObjectWrite {
    pub(crate) body: EncodedObjectBody,
    /// Whether the body has something that only the member set.
    pub(crate) keeps_member_fields: bool,
}

/// The known managers of an object's fields that the manifest does not set.
pub(crate) enum FieldOwnership {
    /// All of them stay.
    Kept,
    /// Nobody has changed the object since this control plane wrote all of it.
    Own,
    Unknown,
    Managers(FieldManagers),
}

impl ExecutionController {
    /// Compares a manifest, as `change` leaves it, with the object that a member has. The
    /// trees that this takes, and the memory reserved for them, are given back before the
    /// member is written to, so that one that hangs keeps nobody waiting. A webhook that is
    /// asked what to retain holds them until its time limit.
    pub(crate) async fn decide_update(
        &self,
        target: &MappedManifest<'_>,
        change: fn(&mut Value),
        overridden_fields: &[String],
        observed: &Object,
        mode: UpdateMode,
        ownership: &FieldOwnership,
    ) -> Result<MemberObjectDecision, PropagationFailure> {
        let manifest = target.manifest;
        let bytes = estimate_encoded_tree_bytes(manifest.bytes())
            + estimate_encoded_tree_bytes(&observed.bytes());
        let _memory = self.memory.reserve(bytes, COPIES).await;
        let observed = observed.value().map_err(PropagationFailure::compute)?;
        let mut tree = manifest.tree().map_err(PropagationFailure::compute)?;
        change(&mut tree);
        let Some(desired) = desired_object(tree, &observed) else {
            return Ok(MemberObjectDecision::Foreign);
        };
        let rule = match ownership {
            _ if desired.adopts => RemovalRule::Everything,
            FieldOwnership::Own => RemovalRule::Everything,
            FieldOwnership::Kept | FieldOwnership::Unknown => RemovalRule::Nothing,
            FieldOwnership::Managers(managers) => RemovalRule::Owned(managers.owners()),
        };
        let hash_before = value_hash(&desired.tree);
        let retained = self.retain(target, desired.tree, overridden_fields, &observed);
        let retained = retained.await.map_err(|text| PropagationFailure {
            reason: PropagationReason::FieldRetentionFailed,
            text,
        })?;
        let has_retained_fields = value_hash(&retained) != hash_before;
        let schema = self.schema_of(&target.mapping, &retained, &observed).await;
        let update = update_of(retained, &observed, schema.as_ref(), mode, &rule);
        let is_unknown = !desired.adopts && matches!(ownership, FieldOwnership::Unknown);
        if is_unknown && update.keeps_member_fields {
            return Ok(MemberObjectDecision::NeedsFieldManagers);
        }
        let Some(object) = update.body else {
            return Ok(MemberObjectDecision::Nothing);
        };
        Ok(MemberObjectDecision::Write(MemberObjectWrite {
            body: manifest
                .encode(&object)
                .map_err(PropagationFailure::compute)?,
            // A later manifest may retain less: then these fields are the member's, too.
            keeps_member_fields: update.keeps_member_fields || has_retained_fields,
        }))
    }

    /// The desired object with the values that the interpreter retains of the member's object, but
    /// for the fields in which an override wins.
    pub(crate) async fn retain(
        &self,
        target: &MappedManifest<'_>,
        desired: Value,
        overridden_fields: &[String],
        observed: &Value,
    ) -> Result<Value, String> {
        let values = overridden_fields.iter();
        let values: Vec<(&str, Value)> = values
            .filter_map(|path| Some((path.as_str(), desired.pointer(path)?.clone())))
            .collect();
        let kind = &target.mapping.gvk;
        let retained = self.interpreter.retain(kind, desired, observed).await;
        let mut retained = retained.map_err(|e| e.to_string())?;
        for (path, value) in values {
            set_field(&mut retained, path, value);
        }
        Ok(retained)
    }

    /// The schema by which lists are compared. That of a custom resource is looked up only if a
    /// list differs.
    pub(crate) async fn schema_of(
        &self,
        mapping: &RestMapping,
        desired: &Value,
        observed: &Value,
    ) -> Option<Schema> {
        match schema_of(&mapping.gvk) {
            None if has_different_list(desired, observed) => self.custom_schemas.get(mapping).await,
            schema => schema,
        }
    }

    /// Which field of an object differs from the manifest, and who changed it; `None` if none
    /// does.
    pub(crate) async fn find_contested_field(
        &self,
        target: &MappedManifest<'_>,
        overridden_fields: &[String],
        current: &Object,
    ) -> Option<String> {
        let bytes = estimate_encoded_tree_bytes(target.manifest.bytes())
            + estimate_encoded_tree_bytes(&current.bytes());
        let _memory = self.memory.reserve(bytes, COPIES).await;
        let observed = current.value().ok()?;
        let desired = desired_object(target.manifest.tree().ok()?, &observed)?;
        let retained = self.retain(target, desired.tree, overridden_fields, &observed);
        let retained = retained.await.ok()?;
        let schema = self.schema_of(&target.mapping, &retained, &observed).await;
        let root = schema.as_ref().map(Schema::root);
        let path = first_difference(&retained, &observed, root)?;
        let managers = FieldManagers::from_object(current);
        let manager = managers.and_then(|managers| managers.other_manager_of(&path));
        let manager = manager.as_deref().unwrap_or("an unknown manager");
        let (object, field) = (target.object_key(), shown_path(&path));
        Some(format!(
            "{object}: field {field} is changed back by {manager}"
        ))
    }
}

fn value_hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Sets a field whose parent exists; `path` is a JSON pointer.
fn set_field(object: &mut Value, path: &str, value: Value) {
    if let Some(field) = object.pointer_mut(path) {
        *field = value;
        return;
    }
    let Some((parent, key)) = path.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.insert(key.replace("~1", "/").replace("~0", "~"), value);
    }
}

/// The label by which a member keeps its object from being changed and deleted.
pub(crate) fn left_alone_label(observed: &Object) -> Option<&'static str> {
    let mut labels = LEFT_ALONE_LABELS.into_iter();
    labels.find(|label| observed.meta().label(label) == Some(LEFT_ALONE_VALUE))
}

/// A path of `fieldsV1` keys as a user reads it.
pub(crate) fn shown_path(path: &[String]) -> String {
    let mut shown = String::new();
    for key in path {
        match key.split_once(':') {
            Some(("f", name)) => {
                shown.push('.');
                shown.push_str(name);
            }
            Some((_, element)) => {
                shown.push('[');
                shown.push_str(element);
                shown.push(']');
            }
            None => {}
        }
    }
    match shown.char_indices().nth(MAX_SHOWN_PATH_CHARS) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: EXE-overridden
    #[test]
    fn fields_are_set_at_json_pointers() {
        let object = json!({"spec": {"a/b": 1, "list": [{"port": 1}]}});
        for (path, expected) in [
            ("/spec/a~1b", json!({"a/b": 9, "list": [{"port": 1}]})),
            (
                "/spec/c~1d",
                json!({"a/b": 1, "c/d": 9, "list": [{"port": 1}]}),
            ),
            (
                "/spec/list/0/port",
                json!({"a/b": 1, "list": [{"port": 9}]}),
            ),
            ("/spec/list/1", json!({"a/b": 1, "list": [{"port": 1}]})),
            ("/spec/list/-", json!({"a/b": 1, "list": [{"port": 1}]})),
            ("/status/x/y", json!({"a/b": 1, "list": [{"port": 1}]})),
            ("spec", json!({"a/b": 1, "list": [{"port": 1}]})),
        ] {
            let mut changed = object.clone();
            set_field(&mut changed, path, json!(9));
            assert_eq!(changed, json!({"spec": expected}), "{path}");
        }
    }

    // proves: EXE-left-alone
    #[test]
    fn a_label_of_the_member_leaves_an_object_alone() {
        for (labels, expected) in [
            (
                json!({"kubefed.io/managed": "false"}),
                Some("kubefed.io/managed"),
            ),
            (
                json!({"flotilla.io/managed": "false"}),
                Some("flotilla.io/managed"),
            ),
            (json!({"kubefed.io/managed": "true"}), None),
            (json!({}), None),
        ] {
            let object = json!({"metadata": {"name": "a", "labels": labels}});
            let object = Object::from_value(&object).unwrap();
            assert_eq!(left_alone_label(&object), expected, "{labels}");
        }
    }
}
