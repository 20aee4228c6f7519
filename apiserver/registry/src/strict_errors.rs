//! The errors of strict decoding about the fields of a body: fields that are unknown, and fields that
//! occur twice.
//!
//! Go types are decoded in one pass, so that Kubernetes lists both in the order of the text
//! (`sigs.k8s.io/json`). Of custom resources it reports the duplicate fields first, since
//! unknown ones are only pruned later.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use machinery::bounded_text::push_path_step;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The errors of a body before its fields are compared with the schema.
#[derive(Debug, Default)]
pub(crate) struct StrictErrors {
    /// Paths of duplicate fields.
    pub(crate) duplicates: Vec<String>,
    /// The JSON text of the body; empty if it is in another form or the kind has no Go type.
    pub(crate) json: Bytes,
    /// The errors about the operations of a patch.
    pub(crate) patch_errors: Vec<String>,
}

impl StrictErrors {
    pub(crate) fn is_empty(&self) -> bool {
        self.duplicates.is_empty() && self.patch_errors.is_empty()
    }

    /// All errors, including the unknown fields.
    pub(crate) fn with_unknown(&self, unknown: &[String]) -> Vec<String> {
        let has_order = !self.json.is_empty() && self.duplicates.len() + unknown.len() > 1;
        if has_order && let Some(ordered) = in_text_order(&self.json, unknown, &self.duplicates) {
            return ordered;
        }
        let duplicates = self.duplicates.iter().map(|path| duplicate_field(path));
        let unknown = unknown.iter().map(|path| unknown_field(path));
        let patch_errors = self.patch_errors.iter().cloned();
        patch_errors.chain(duplicates).chain(unknown).collect()
    }
}

fn duplicate_field(path: &str) -> String {
    format!("duplicate field {path:?}")
}

fn unknown_field(path: &str) -> String {
    format!("unknown field {path:?}")
}

/// The errors in the order in which a decoder of the text meets the fields; `None` if it cannot
/// be read again. What is inside an unknown field is not decoded.
fn in_text_order(json: &[u8], unknown: &[String], duplicates: &[String]) -> Option<Vec<String>> {
    let scan = FieldScan {
        unknown: unknown.iter().map(String::as_str).collect(),
        duplicates: duplicates.iter().map(String::as_str).collect(),
        position: RefCell::default(),
    };
    let mut deserializer = machinery::json::deserializer(json).ok()?;
    (&scan).deserialize(&mut deserializer).ok()?;
    Some(scan.position.into_inner().errors)
}

struct FieldScan<'a> {
    unknown: HashSet<&'a str>,
    duplicates: HashSet<&'a str>,
    position: RefCell<ScanPosition>,
}

#[derive(Default)]
struct ScanPosition {
    path: String,
    /// The fields that may occur again.
    met: HashSet<String>,
    errors: Vec<String>,
    /// The errors as a set.
    reported: HashSet<String>,
}

impl ScanPosition {
    fn add(&mut self, error: String) {
        if self.reported.insert(error.clone()) {
            self.errors.push(error);
        }
    }
}

impl FieldScan<'_> {
    /// Enters a field; returns the length of the path outside of it, and whether it is unknown.
    fn enter_field(&self, key: &str) -> (usize, bool) {
        let position = &mut *self.position.borrow_mut();
        let parent_length = position.path.len();
        let separator = if parent_length > 0 { "." } else { "" };
        push_path_step(&mut position.path, separator, key);
        let path = position.path.as_str();
        let is_unknown = self.unknown.contains(path);
        if is_unknown {
            let error = unknown_field(path);
            position.add(error);
        } else if self.duplicates.contains(path) && !position.met.insert(path.to_owned()) {
            let error = duplicate_field(&position.path);
            position.add(error);
        }
        (parent_length, is_unknown)
    }

    fn enter_item(&self, index: usize) -> usize {
        let position = &mut *self.position.borrow_mut();
        let parent_length = position.path.len();
        push_path_step(&mut position.path, "", &format!("[{index}]"));
        parent_length
    }

    fn leave(&self, parent_length: usize) {
        self.position.borrow_mut().path.truncate(parent_length);
    }
}

impl<'de> DeserializeSeed<'de> for &FieldScan<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &FieldScan<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let (parent_length, is_unknown) = self.enter_field(&key);
            if is_unknown {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(self)?;
            }
            self.leave(parent_length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let parent_length = self.enter_item(index);
            let item = items.next_element_seed(self)?;
            self.leave(parent_length);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &'static str, unknown: &[&str], duplicates: &[&str], expected: &[&str]) {
        let owned = |paths: &[&str]| {
            paths
                .iter()
                .map(|&path| path.to_owned())
                .collect::<Vec<_>>()
        };
        let errors = StrictErrors {
            duplicates: owned(duplicates),
            json: json.into(),
            patch_errors: Vec::new(),
        };
        assert_eq!(errors.with_unknown(&owned(unknown)), expected, "{json}");
    }

    #[test]
    fn errors_about_fields_of_go_types_are_in_the_order_of_the_text() {
        check(
            r#"{"spec": {"odd": "x", "replicas": 2, "replicas": 3}}"#,
            &["spec.odd"],
            &["spec.replicas"],
            &[
                r#"unknown field "spec.odd""#,
                r#"duplicate field "spec.replicas""#,
            ],
        );
        check(
            r#"{"spec": {"z": [{"b": 1}, {"b": 1, "b": 2, "c": 1.5}], "a": null}, "a": true}"#,
            &["a", "spec.a", "spec.z[1].c"],
            &["spec.z[1].b"],
            &[
                r#"duplicate field "spec.z[1].b""#,
                r#"unknown field "spec.z[1].c""#,
                r#"unknown field "spec.a""#,
                r#"unknown field "a""#,
            ],
        );
        // Nothing is said about the inside of an unknown field, or twice.
        check(
            r#"{"odd": {"a": 1, "a": 2}, "odd": -1, "b": "", "b": "", "b": ""}"#,
            &["odd"],
            &["odd.a", "odd", "b"],
            &[r#"unknown field "odd""#, r#"duplicate field "b""#],
        );
        // A body in another form.
        check(
            "",
            &["spec.odd"],
            &["spec.replicas"],
            &[
                r#"duplicate field "spec.replicas""#,
                r#"unknown field "spec.odd""#,
            ],
        );
    }
}
