//! JSON patch (RFC 6902) as kube-apiserver applies it.
//!
//! Differences from the RFC follow the library of kube-apiserver, json-patch 4: negative
//! indices count from the end of a list, indices may have leading zeros, a test for `null` succeeds if the field is absent, and replacing
//! an absent field adds it.

use json_patch::{PatchErrorKind, PatchOperation};
use machinery::json;
use machinery::tree_memory::{MAX_TREE_BYTES, estimate_tree_bytes};
use serde_json::Value;

use crate::Error;

/// Most operations of one patch (`handlers/patch.go`).
const MAX_OPERATIONS: usize = 10_000;
/// Most bytes that the `copy` operations of one patch may add.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// Deepest nesting of the patched document.
const MAX_RESULT_DEPTH: usize = json::MAX_DEPTH;
/// Most segments in the path of an operation.
const MAX_PATH_SEGMENTS: usize = 64;
/// The upper bound of the depth from which the actual depth is measured.
const DEPTH_MEASURE_THRESHOLD: usize = 4_000;

/// Applies the operations in order, all or none.
pub fn apply_json_patch(doc: &Value, patch: &Value) -> Result<Value, Error> {
    let Some(list) = patch.as_array() else {
        return Err(Error::BadRequest(
            "a JSON patch must be a list of operations".into(),
        ));
    };
    if list.len() > MAX_OPERATIONS {
        return Err(Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            list.len()
        )));
    }
    let mut run = JsonPatchApplier {
        doc: doc.clone(),
        copied: 0,
        copied_tree: 0,
        depth: json::depth(doc),
    };
    for (i, item) in list.iter().enumerate() {
        run.apply_operation(i, item)?;
    }
    if json::depth(&run.doc) > MAX_RESULT_DEPTH {
        return Err(too_deep());
    }
    Ok(run.doc)
}

struct JsonPatchApplier {
    doc: Value,
    copied: usize,
    /// The memory of the copies.
    copied_tree: usize,
    /// An upper bound of the depth of `doc`.
    depth: usize,
}

impl JsonPatchApplier {
    fn apply_operation(&mut self, i: usize, item: &Value) -> Result<(), Error> {
        let mut item = item.clone();
        self.normalize_operation(&mut item);
        let is_operation = item.is_object();
        let operation: PatchOperation = serde_json::from_value(item).map_err(|e| {
            let message = format!("operation {i} of the JSON patch: {e}");
            match is_operation {
                true => Error::Unprocessable(message),
                false => Error::BadRequest(message),
            }
        })?;
        let segments = operation.path().count();
        if segments > MAX_PATH_SEGMENTS {
            return Err(Error::TooLarge(format!(
                "a path of the JSON patch has more than {MAX_PATH_SEGMENTS} steps"
            )));
        }
        match &operation {
            PatchOperation::Test(test) if test.value.is_null() => {
                let target = self.doc.pointer(test.path.as_str());
                return match target {
                    None | Some(Value::Null) => Ok(()),
                    Some(_) => Err(operation_failed(i, &operation, "value did not match")),
                };
            }
            PatchOperation::Copy(copy) => {
                if let Some(source) = self.doc.pointer(copy.from.as_str()) {
                    self.copied += source.to_string().len();
                    self.copied_tree += estimate_tree_bytes(source);
                }
                if self.copied > MAX_COPIED_BYTES || self.copied_tree > MAX_TREE_BYTES {
                    return Err(Error::TooLarge(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED_BYTES}",
                        self.copied
                    )));
                }
            }
            _ => {}
        }
        let inserted = match &operation {
            PatchOperation::Add(add) => json::depth(&add.value),
            PatchOperation::Replace(replace) => json::depth(&replace.value),
            PatchOperation::Copy(copy) => {
                let source = self.doc.pointer(copy.from.as_str());
                source.map_or(0, json::depth)
            }
            PatchOperation::Move(_) => self.depth,
            _ => 0,
        };
        self.depth = self.depth.max(segments + inserted);
        json_patch::patch_unsafe(&mut self.doc, std::slice::from_ref(&operation))
            .map_err(|e| operation_failed(i, &operation, &error_text(&e.kind)))?;
        if self.depth > DEPTH_MEASURE_THRESHOLD {
            self.depth = json::depth(&self.doc);
            if self.depth > MAX_RESULT_DEPTH {
                return Err(too_deep());
            }
        }
        Ok(())
    }

    /// Rewrites an operation that the `json_patch` crate would treat differently.
    fn normalize_operation(&self, item: &mut Value) {
        let Some(fields) = item.as_object_mut() else {
            return;
        };
        let op = fields.get("op").and_then(Value::as_str).unwrap_or("");
        let inserts = matches!(op, "add" | "copy" | "move");
        let valued = matches!(op, "add" | "replace" | "test");
        let replaces = op == "replace";
        for (name, inserts) in [("path", inserts), ("from", false)] {
            if let Some(Value::String(path)) = fields.get_mut(name) {
                self.resolve_indices(path, inserts);
            }
        }
        let path = fields.get("path").and_then(Value::as_str);
        if replaces && path.is_some_and(|path| self.is_new_field(path)) {
            fields.insert("op".into(), "add".into());
        }
        if valued && !fields.contains_key("value") {
            fields.insert("value".into(), Value::Null);
        }
    }

    /// Whether a path names a field that its object does not have.
    fn is_new_field(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        let parent = parent.and_then(|parent| self.doc.pointer(parent));
        parent.is_some_and(Value::is_object) && self.doc.pointer(path).is_none()
    }

    /// Replaces the indices of a path, which may be negative or have a sign or leading zeros,
    /// by plain ones. The last one of an insertion counts from behind the last item.
    fn resolve_indices(&self, path: &mut String, inserts: bool) {
        let is_plain = |segment: &str| segment == "0" || !segment.starts_with(['-', '+', '0']);
        if path.split('/').all(is_plain) {
            return;
        }
        let mut resolved_path = String::with_capacity(path.len());
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        for (i, segment) in segments.iter().enumerate() {
            let list = self.doc.pointer(&resolved_path).and_then(Value::as_array);
            let resolved = list
                .zip(segment.parse::<i64>().ok())
                .and_then(|(list, index)| {
                    let last = i + 1 == segments.len();
                    let length = i64::try_from(list.len()).ok()? + i64::from(inserts && last);
                    let index = if index < 0 { index + length } else { index };
                    usize::try_from(index).ok()
                });
            resolved_path.push('/');
            match resolved {
                Some(index) => resolved_path.push_str(&index.to_string()),
                None => resolved_path.push_str(segment),
            }
        }
        *path = resolved_path;
    }
}

fn error_text(kind: &PatchErrorKind) -> String {
    kind.to_string().replace('"', "'")
}

fn operation_failed(i: usize, operation: &PatchOperation, message: &str) -> Error {
    Error::Unprocessable(format!(
        "operation {i} of the JSON patch failed at path {:?}: {message}",
        operation.path().as_str()
    ))
}

fn too_deep() -> Error {
    Error::TooLarge(format!(
        "the JSON patch nests deeper than {MAX_RESULT_DEPTH} levels"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[derive(Debug, PartialEq)]
    enum TestJsonPatchResult {
        Done(Value),
        Bad,
        Unprocessable,
        Large,
    }
    use TestJsonPatchResult::*;

    fn check(doc: Value, patch: Value, expect: TestJsonPatchResult) {
        let actual = match apply_json_patch(&doc, &patch) {
            Ok(v) => Done(v),
            Err(Error::BadRequest(_)) => Bad,
            Err(Error::Unprocessable(_)) => Unprocessable,
            Err(Error::TooLarge(_)) => Large,
        };
        assert_eq!(
            actual,
            expect,
            "{}",
            &patch.to_string()[..patch.to_string().len().min(200)]
        );
    }

    #[test]
    fn operations_are_applied_or_rejected() {
        let doc = || json!({"a": [1, 2, 3], "b": {"c": "x"}});
        let patch_of = |op: Value| json!([op]);
        check(
            doc(),
            patch_of(json!({"op":"add","path":"/a/-","value":4})),
            Done(json!({"a":[1,2,3,4],"b":{"c":"x"}})),
        );
        check(
            doc(),
            patch_of(json!({"op":"add","path":"/a/-1","value":4})),
            Done(json!({"a":[1,2,3,4],"b":{"c":"x"}})),
        );
        check(
            doc(),
            patch_of(json!({"op":"replace","path":"/a/-1","value":4})),
            Done(json!({"a":[1,2,4],"b":{"c":"x"}})),
        );
        check(
            doc(),
            patch_of(json!({"op":"remove","path":"/a/-3"})),
            Done(json!({"a":[2,3],"b":{"c":"x"}})),
        );
        check(
            doc(),
            patch_of(json!({"op":"replace","path":"/a/01","value":4})),
            Done(json!({"a":[1,4,3],"b":{"c":"x"}})),
        );
        check(
            doc(),
            patch_of(json!({"op":"remove","path":"/a/-4"})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"remove","path":"/x"})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"replace","path":"/x","value":1})),
            Done(json!({"a":[1,2,3],"b":{"c":"x"},"x":1})),
        );
        check(
            doc(),
            patch_of(json!({"op":"replace","path":"/x/y","value":1})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"replace","path":"/a/7","value":1})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"test","path":"/b/c","value":"y"})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"test","path":"/x","value":"y"})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"test","path":"/x","value":null})),
            Done(doc()),
        );
        check(
            doc(),
            patch_of(json!({"op":"test","path":"/b/c","value":null})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"move","from":"/b/c","path":"/d"})),
            Done(json!({"a":[1,2,3],"b":{},"d":"x"})),
        );
        check(
            doc(),
            patch_of(json!({"op":"jump","path":"/a"})),
            Unprocessable,
        );
        check(
            doc(),
            patch_of(json!({"op":"add","value":1})),
            Unprocessable,
        );
        check(doc(), patch_of(json!(7)), Bad);
        check(doc(), json!({"op":"remove","path":"/a"}), Bad);
    }

    #[test]
    fn work_is_bounded() {
        let noop = json!({"op":"test","path":"/x","value":null});
        check(
            json!({}),
            Value::from(vec![noop.clone(); 10_000]),
            Done(json!({})),
        );
        check(json!({}), Value::from(vec![noop; 10_001]), Large);
        let double = json!({"op":"copy","from":"/a","path":"/a/-"});
        check(
            json!({"a": ["0123456789"]}),
            Value::from(vec![double; 40]),
            Large,
        );
        let mut wrap = Vec::new();
        for _ in 0..2_000 {
            wrap.push(json!({"op":"add","path":"/b","value":{}}));
            wrap.push(json!({"op":"move","from":"/a","path":"/b/c"}));
            wrap.push(json!({"op":"move","from":"/b","path":"/a"}));
        }
        check(json!({"a": 1}), Value::from(wrap), Large);
        let long_path = "/a".repeat(MAX_PATH_SEGMENTS + 1);
        check(
            json!({}),
            json!([{"op":"add","path":long_path,"value":1}]),
            Large,
        );
    }

    proptest! {
        #[test]
        fn arbitrary_operations_never_panic(
            ops in prop::collection::vec(
                ("(add|remove|replace|move|copy|test)", "(/(a|b|0|1|-|-1|-2|~1|)){0,3}", "(/(a|b|0|-1)){0,2}", any::<i8>()),
                0..8,
            ),
        ) {
            let list: Vec<Value> = ops
                .into_iter()
                .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
                .collect();
            let _ = apply_json_patch(&json!({"a": [1, {"b": [2, 3]}], "b": {"a": null}}), &Value::from(list));
        }
    }
}
