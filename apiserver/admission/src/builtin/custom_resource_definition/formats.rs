//! Finds formats in the schemas of a CustomResourceDefinition that validate nothing
//! (`apiextensions-apiserver/pkg/apiserver/validation/formats.go`).

use serde_json::Value;

use super::structural::MAX_DEPTH;
use crate::unstructured::{entries, get, items, text};

/// The formats of strings, without hyphens.
const STRING_FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Warnings for unknown formats, if `old` does not have them.
pub(crate) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let old_formats = old.map(unknown_formats).unwrap_or_default();
    let unknown = unknown_formats(new).into_iter();
    unknown
        .filter(|format| !old_formats.contains(format))
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

fn unknown_formats(crd: &Value) -> Vec<&str> {
    let mut formats = Vec::new();
    for version in items(crd, "/spec/versions") {
        collect(get(version, "/schema/openAPIV3Schema"), 0, &mut formats);
    }
    formats
}

fn collect<'a>(schema: &'a Value, depth: usize, formats: &mut Vec<&'a str>) {
    if depth > MAX_DEPTH || !schema.is_object() {
        return;
    }
    let format = text(schema, "/format");
    if !format.is_empty() && !is_known(text(schema, "/type"), format) {
        formats.push(format);
    }
    for name in ["items", "additionalProperties", "not"] {
        collect(get(schema, &format!("/{name}")), depth + 1, formats);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for part in items(schema, &format!("/{name}")) {
            collect(part, depth + 1, formats);
        }
    }
    for (_, field) in entries(schema, "/properties") {
        collect(field, depth + 1, formats);
    }
}

fn is_known(schema_type: &str, format: &str) -> bool {
    match schema_type {
        "" | "string" => STRING_FORMATS.contains(&&*format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}
