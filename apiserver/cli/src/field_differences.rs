//! Compares two versions of a manifest field by field, such as the object that a member runs and
//! the manifest of its Work. Pure.

use std::fmt;

use karmada_api::prune::prune;
use serde::Serialize;
use serde_json::{Map, Value};

/// The differences of one object that are reported; more of them say nothing new.
pub(crate) const MAX_DIFFERENCES: usize = 20;
/// The characters of a value that are printed.
const MAX_VALUE_CHARS: usize = 120;
/// The domains of the labels and annotations that a Work adds.
const OWN_DOMAINS: [&str; 2] = ["karmada.io", "flotilla.io"];
pub(crate) const HIDDEN: &str = "(hidden)";

/// A field that one version has and the other has not, or has with another value.
#[derive(Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    pub path: String,
    /// `None`: the first version, such as the member's object, lacks the field.
    #[serde(rename = "member")]
    pub before: Option<Value>,
    /// `None`: the second version, such as the Work, lacks the field.
    #[serde(rename = "work")]
    pub after: Option<Value>,
}

impl fmt::Display for FieldDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "(absent)".to_owned(),
            Some(value) => {
                let text = value.to_string();
                match text.char_indices().nth(MAX_VALUE_CHARS) {
                    Some((end, _)) => format!("{}…", &text[..end]),
                    None => text,
                }
            }
        };
        let (before, after) = (text(&self.before), text(&self.after));
        write!(f, "{}: {before} -> {after}", self.path)
    }
}

/// The changes from one version to the other, in the order of the fields. The values of a Secret are
/// hidden.
pub fn field_differences(before: &Value, after: &Value) -> Vec<FieldDifference> {
    let is_secret = after["kind"] == "Secret" && after["apiVersion"] == "v1";
    let mut differences = document_differences(&comparable(before), &comparable(after));
    if is_secret {
        for difference in &mut differences {
            let hidden = |value: &mut Value| *value = HIDDEN.into();
            difference.before.as_mut().map(hidden);
            difference.after.as_mut().map(hidden);
        }
    }
    differences
}

/// The changes from one document to the other, of which nothing is left out, in the order of the fields.
pub(crate) fn document_differences(before: &Value, after: &Value) -> Vec<FieldDifference> {
    let mut differences = Vec::new();
    compare(
        "",
        present(Some(before)),
        present(Some(after)),
        &mut differences,
    );
    differences
}

/// The paths at which two values differ, in the order of the fields.
pub(crate) fn differing_paths(before: &Value, after: &Value) -> Vec<String> {
    let differences = document_differences(before, after).into_iter();
    differences.map(|difference| difference.path).collect()
}

/// An object without what the member sets itself, and without what Works add.
fn comparable(object: &Value) -> Value {
    let mut manifest = object.clone();
    prune(&mut manifest, false);
    let metadata = &manifest["metadata"];
    let mut kept = Map::new();
    for map in ["labels", "annotations"] {
        let entries = metadata[map].as_object().into_iter().flatten();
        let foreign = entries.filter(|(key, _)| !is_own_key(key));
        let entries: Map<String, Value> = foreign.map(|(k, v)| (k.clone(), v.clone())).collect();
        kept.insert(map.to_owned(), entries.into());
    }
    manifest["metadata"] = kept.into();
    manifest
}

fn is_own_key(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    OWN_DOMAINS.iter().any(|own| {
        let rest = domain.strip_suffix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Empty values and absent ones are the same.
fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    })
}

fn compare(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    differences: &mut Vec<FieldDifference>,
) {
    if before == after || differences.len() == MAX_DIFFERENCES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let added = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let path = field_path(path, key);
                let (before, after) = (before.get(key), after.get(key));
                compare(&path, present(before), present(after), differences);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                let path = format!("{path}[{index}]");
                compare(
                    &path,
                    present(Some(before)),
                    present(Some(after)),
                    differences,
                );
            }
        }
        _ => differences.push(FieldDifference {
            path: path.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

pub(crate) fn field_path(parent: &str, key: &str) -> String {
    let is_plain = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match (parent, is_plain) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[{key:?}]"),
    }
}
