//! Merges what a mutating admission policy applies. Nobody becomes the manager of the fields
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`).

use serde_json::Value;

use crate::field_type::{FieldType, ListIdentity, ResolvedType};
use crate::path_element::{PathElement, path_text};
use crate::typed::{DuplicateItems, merge, validate};

/// The live object with the fields of `configuration` set. The configuration may have no
/// atomic list or map: it would remove what others have in it.
pub fn merge_policy_configuration(
    field_type: FieldType<'_>,
    live: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    validate(field_type, configuration, DuplicateItems::Forbidden)
        .map_err(|e| format!("failed to convert patch object to typed object: {e}"))?;
    let mut atomics = Vec::new();
    collect_atomics(field_type, configuration, &mut Vec::new(), &mut atomics);
    if !atomics.is_empty() {
        let paths = atomics.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"
        ));
    }
    validate(field_type, live, DuplicateItems::Allowed)
        .map_err(|e| format!("failed to convert original object to typed object: {e}"))?;
    merge(field_type, live, configuration).map_err(|e| format!("failed to merge patch: {e}"))
}

/// Collects the paths of atomic lists and maps. The value is valid, which bounds its depth.
fn collect_atomics(
    field_type: FieldType<'_>,
    value: &Value,
    path: &mut Vec<PathElement>,
    atomics: &mut Vec<String>,
) {
    match (field_type.resolve(Some(value)), value) {
        (ResolvedType::Map(map), Value::Object(fields)) => {
            if map.is_atomic {
                atomics.push(path_text(path));
            }
            for (name, value) in fields {
                path.push(PathElement::field(name));
                collect_atomics(map.field_or_deduced(name), value, path, atomics);
                path.pop();
            }
        }
        (ResolvedType::List(list), Value::Array(items)) => {
            if matches!(list.identity, ListIdentity::Atomic) {
                atomics.push(path_text(path));
            }
            for (index, item) in items.iter().enumerate() {
                path.push(PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)));
                collect_atomics(list.item, item, path, atomics);
                path.pop();
            }
        }
        _ => {}
    }
}
