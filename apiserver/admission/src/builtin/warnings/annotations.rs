//! Looks annotations up.

use serde_json::Value;

use crate::unstructured::get;

/// Whether an object has an annotation. Its key is no path: it may contain slashes.
pub(super) fn has_annotation(object: &Value, key: &str) -> bool {
    get(object, "/metadata/annotations").get(key).is_some()
}
