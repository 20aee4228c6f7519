//! Compares the object in a member with the manifest of a Work, and computes the update. Source:
//! Karmada's `pkg/util/objectwatcher` and `pkg/util/{label,annotation}.go`. Pure.

use karmada_api::rollout::JOB_OF;
use karmada_api::well_known_keys::{
    CONFLICT_RESOLUTION, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANAGED_VALUE, WORK_NAME,
    WORK_NAMESPACE,
};
use openapi::{Schema, SchemaCursor};
use serde_json::{Map, Value};

use crate::containment::{ElementOrder, is_subset};
use crate::member_merge::{MemberMerge, RemovalRule};

/// The fields of an object that an update does not merge.
const UNMERGED_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Why an object in a member is compared with a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateMode {
    /// The manifest was applied before: the object must contain it.
    Repair,
    /// The manifest is new: what an earlier one set and this one does not must go.
    Edit,
    /// The object is preserved: only labels and annotations go.
    Release,
}

/// The object as the manifest requires it, before the retention rules of its kind apply.
pub(crate) struct DesiredObject {
    pub(crate) tree: Value,
    /// The member's object was not managed: the manifest replaces it whole.
    pub(crate) adopts: bool,
}

/// `None` if the object must not be changed.
pub(crate) fn desired_object(mut manifest: Value, observed: &Value) -> Option<DesiredObject> {
    if is_job_of_another_gate(&manifest, observed) {
        return None;
    }
    let managed = get(observed, "labels", MANAGED) == Some(MANAGED_VALUE);
    if !managed && get(&manifest, "annotations", CONFLICT_RESOLUTION) != Some("overwrite") {
        return None;
    }
    retain_metadata(&mut manifest, observed);
    Some(DesiredObject {
        tree: manifest,
        adopts: !managed,
    })
}

/// Whether one of the two is the Job of a gate, and they are of different Works. The end of such a Job
/// decides about a rollout: its Work takes over no object, and no other Work takes over its object.
fn is_job_of_another_gate(manifest: &Value, observed: &Value) -> bool {
    let is_gate_job = |object| get(object, "labels", JOB_OF).is_some();
    let work = |object| [WORK_NAMESPACE, WORK_NAME].map(|key| get(object, "annotations", key));
    (is_gate_job(manifest) || is_gate_job(observed)) && work(manifest) != work(observed)
}

/// The comparison of an object in a member with what is desired.
#[derive(Debug, PartialEq)]
pub(crate) struct MemberUpdate {
    /// `None` if the object is what is desired.
    pub(crate) body: Option<Value>,
    /// Whether the object has, and keeps, something that the manifest does not set.
    pub(crate) keeps_member_fields: bool,
}

/// The update that makes an observed object what is desired.
pub(crate) fn update_of(
    mut desired: Value,
    observed: &Value,
    schema: Option<&Schema>,
    mode: UpdateMode,
    rule: &RemovalRule<'_>,
) -> MemberUpdate {
    let root = schema.map(Schema::root);
    if mode == UpdateMode::Repair && is_subset(&desired, observed, root, ElementOrder::Any) {
        return MemberUpdate {
            body: None,
            keeps_member_fields: true,
        };
    }
    let mut merge = MemberMerge::default();
    let metadata = desired.get_mut("metadata").map(Value::take);
    let mut desired_fields = match desired {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let mut merged = Map::new();
    for (name, value) in observed.as_object().into_iter().flatten() {
        if !UNMERGED_FIELDS.contains(&name.as_str()) {
            let field = root.and_then(|root| root.field(name));
            let value =
                merge.merge_field(desired_fields.remove(name), value, field, &rule.field(name));
            merged.extend(value.map(|value| (name.clone(), value)));
        }
    }
    merged.extend(desired_fields);
    // Where the status is no subresource, an update without it would remove it.
    if let Some(status) = observed.get("status") {
        merged.insert("status".into(), status.clone());
    }
    merged.insert("metadata".into(), metadata.unwrap_or_default());
    let mut body = Value::from(merged);
    let is_same = mode != UpdateMode::Repair && is_same(&body, observed, root);
    take_member_metadata(&mut body, observed);
    MemberUpdate {
        body: (!is_same).then_some(body),
        keeps_member_fields: merge.keeps_member_fields,
    }
}

/// Whether an update would change nothing.
fn is_same(body: &Value, observed: &Value, root: Option<SchemaCursor<'_>>) -> bool {
    let is_in_body = |(name, value): (&String, &Value)| {
        let field = root.and_then(|root| root.field(name));
        UNMERGED_FIELDS.contains(&name.as_str())
            || is_subset(value, &body[name], field, ElementOrder::Same)
    };
    let has_keys_of = |map: &str| {
        let (desired_map, observed_map) = (&body["metadata"][map], &observed["metadata"][map]);
        is_subset(observed_map, desired_map, None, ElementOrder::Same)
    };
    is_subset(body, observed, root, ElementOrder::Same)
        && observed
            .as_object()
            .is_none_or(|o| o.iter().all(is_in_body))
        && ["labels", "annotations"].into_iter().all(has_keys_of)
}

/// Takes from the member's object what an update must not change.
fn take_member_metadata(body: &mut Value, observed: &Value) {
    if let (Some(to), Some(from)) = (
        body.get_mut("metadata").and_then(Value::as_object_mut),
        observed.get("metadata").and_then(Value::as_object),
    ) {
        for kept in ["resourceVersion", "finalizers", "ownerReferences"] {
            match from.get(kept) {
                Some(value) => to.insert(kept.into(), value.clone()),
                None => to.remove(kept),
            };
        }
    }
}

/// Retains labels and annotations of other owners; removes those that the template no longer has.
fn retain_metadata(desired: &mut Value, observed: &Value) {
    for (map, record) in [
        ("annotations", MANAGED_ANNOTATIONS),
        ("labels", MANAGED_LABELS),
    ] {
        let managed = get(observed, "annotations", record).unwrap_or_default();
        let Some(have) = observed["metadata"][map].as_object() else {
            continue;
        };
        let others: Vec<(&String, &Value)> = have
            .iter()
            .filter(|(key, _)| !managed.split(',').any(|m| m == key.as_str()))
            .collect();
        if others.is_empty() {
            continue;
        }
        let slot = &mut desired["metadata"][map];
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        if let Some(slot) = slot.as_object_mut() {
            for (key, value) in others {
                slot.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

fn get<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(map)?.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
