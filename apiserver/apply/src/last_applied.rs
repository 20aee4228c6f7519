//! The annotation of `kubectl apply` without `--server-side`: lets an object that it
//! managed pass to server-side apply (`managedfields/internal/lastapplied*.go`).

use serde_json::Value;

use crate::field_set::FieldSet;
use crate::field_type::FieldType;
use crate::json_order::encode_like_go;
use crate::typed::{DuplicateItems, compare, field_set_of, validate};

/// The manager of `kubectl apply --server-side`, the only one for which the annotation is
/// read and written.
pub(crate) const KUBECTL_MANAGER: &str = "kubectl";

const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How many bytes the keys and values of annotations may have together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

fn last_applied(object: &Value) -> Option<&str> {
    let text = object["metadata"]["annotations"][LAST_APPLIED_ANNOTATION].as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields that were last applied and still have that value: an applier may take them.
/// `None` without a usable annotation.
pub(crate) fn fields_last_applied(
    live: &Value,
    field_type: FieldType<'_>,
    api_version: &str,
) -> Option<FieldSet> {
    let applied: Value = machinery::json::from_str(last_applied(live)?).ok()?;
    if applied["apiVersion"].as_str() != Some(api_version) {
        return None;
    }
    for object in [live, &applied] {
        validate(field_type, object, DuplicateItems::Forbidden).ok()?;
    }
    let comparison = compare(field_type, &applied, live);
    Some(
        field_set_of(field_type, &applied)
            .difference(&comparison.modified)
            .difference(&comparison.added)
            .difference(&comparison.removed),
    )
}

/// Writes the applied configuration to the annotation, if the object has it. It is removed
/// if the annotations would become too large.
pub(crate) fn update_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
    let text = format!("{}\n", encode_like_go(&config));
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.insert(LAST_APPLIED_ANNOTATION.into(), text.into());
    let bytes: usize = annotations
        .iter()
        .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
        .sum();
    if bytes > MAX_ANNOTATION_BYTES {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
}
