//! Schemas and conversions for tests.

use openapi::Schema;
use serde_json::{Value, json};

use crate::field_type::FieldType;
use crate::version_conversion::{VersionConversionError, VersionedConverter};

pub(super) fn schema(properties: Value) -> Schema {
    Schema::from_crd(&json!({"type": "object", "properties": properties})).unwrap()
}

pub(super) fn string() -> Value {
    json!({"type": "string"})
}

pub(super) fn number() -> Value {
    json!({"type": "number"})
}

pub(super) fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

pub(super) fn map_of(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

pub(super) fn set_of(items: Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "set", "items": items})
}

pub(super) fn list_by(keys: &[&str], properties: Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
           "items": object(properties)})
}

/// Lists, maps and structs in each other.
pub(super) fn nested_schema() -> Schema {
    let mut recursive =
        map_of(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    for _ in 0..6 {
        recursive = map_of(recursive);
    }
    schema(json!({
        "listOfLists": list_by(&["name"], json!({"name": string(), "value": set_of(string())})),
        "listOfMaps": list_by(&["name"], json!({"name": string(), "value": map_of(string())})),
        "mapOfLists": map_of(set_of(string())),
        "mapOfMaps": map_of(map_of(string())),
        "mapOfMapsRecursive": recursive,
        "struct": object(json!({"name": string(), "value": number()})),
    }))
}

/// One schema for all versions, or for those that are listed.
pub(super) struct OneSchema {
    schema: Option<Schema>,
    versions: Option<Vec<&'static str>>,
}

impl OneSchema {
    pub(super) fn new(schema: Schema) -> Self {
        Self {
            schema: Some(schema),
            versions: None,
        }
    }

    /// Without schema.
    pub(super) fn deduced() -> Self {
        Self {
            schema: None,
            versions: None,
        }
    }

    pub(super) fn in_versions(self, versions: &[&'static str]) -> Self {
        Self {
            versions: Some(versions.to_vec()),
            ..self
        }
    }
}

impl VersionedConverter for OneSchema {
    fn field_type(&self, api_version: &str) -> Option<FieldType<'_>> {
        let versions = self.versions.as_ref();
        if versions.is_some_and(|v| !v.contains(&api_version)) {
            return None;
        }
        let schema = self.schema.as_ref();
        Some(schema.map_or(FieldType::Deduced, FieldType::of_schema))
    }

    fn convert(&self, object: &Value, _: &str, _: &str) -> Result<Value, VersionConversionError> {
        Ok(object.clone())
    }
}

/// Fields with the version in their names: `a_v1` is `a_v2` in another version.
pub(super) struct RenamedFields(Vec<(&'static str, Schema)>);

impl RenamedFields {
    pub(super) fn new(versions: &[&'static str], properties: impl Fn(&str) -> Value) -> Self {
        let versions = versions.iter();
        Self(
            versions
                .map(|version| (*version, schema(properties(version))))
                .collect(),
        )
    }
}

impl VersionedConverter for RenamedFields {
    fn field_type(&self, api_version: &str) -> Option<FieldType<'_>> {
        let (_, schema) = self.0.iter().find(|(v, _)| *v == api_version)?;
        Some(FieldType::of_schema(schema))
    }

    fn convert(
        &self,
        object: &Value,
        from: &str,
        version: &str,
    ) -> Result<Value, VersionConversionError> {
        let text = object
            .to_string()
            .replace(&format!("_{from}\""), &format!("_{version}\""));
        machinery::json::from_str(&text).map_err(|e| VersionConversionError::Failed(e.to_string()))
    }
}
