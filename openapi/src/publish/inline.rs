//! The schema of a kind with the types that it refers to in their places, for checks of the
//! types of expressions (`k8s.io/apiserver/pkg/cel/openapi/resolver`).

use serde_json::{Map, Value, json};

use super::schemas::{schema_name, schemas};
use super::{OpenApiVersion, PublishedResource};

/// The structural schema of a kind. A type within itself is an object without fields.
pub fn inline_schema(resource: PublishedResource<'_>) -> Option<Value> {
    // Only version 2 writes quantities and integers or strings as one type, and only version 3
    // has all that a custom resource declares.
    let version = match resource.kind.definition.is_empty() {
        true => OpenApiVersion::V3,
        false => OpenApiVersion::V2,
    };
    let schemas = schemas(&[resource], version);
    let name = schema_name(resource.kind);
    let mut ancestors = vec![name.as_str()];
    Some(inline(schemas.get(&name)?, &schemas, &mut ancestors))
}

fn inline<'s>(
    schema: &'s Value,
    schemas: &'s Map<String, Value>,
    ancestors: &mut Vec<&'s str>,
) -> Value {
    if let Some(name) = referenced_name(schema) {
        let Some(referenced) = schemas.get(name).filter(|_| !ancestors.contains(&name)) else {
            return json!({"type": "object"});
        };
        ancestors.push(name);
        let inlined = inline(referenced, schemas, ancestors);
        ancestors.pop();
        return inlined;
    }
    let Some(fields) = schema.as_object() else {
        return schema.clone();
    };
    let mut inlined = Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "description" | "default" => continue,
            "items" | "additionalProperties" => inline(value, schemas, ancestors),
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties = properties
                    .map(|(name, property)| (name.clone(), inline(property, schemas, ancestors)));
                Value::Object(properties.collect())
            }
            _ => value.clone(),
        };
        inlined.insert(key.clone(), value);
    }
    if schema["format"] == "int-or-string" {
        inlined.insert("x-kubernetes-int-or-string".into(), true.into());
    }
    Value::Object(inlined)
}

/// The name in a reference, which may stand in `allOf` to have siblings.
fn referenced_name(schema: &Value) -> Option<&str> {
    let reference = schema
        .get("$ref")
        .or_else(|| schema.pointer("/allOf/0/$ref"));
    reference?.as_str()?.rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use machinery::Gvk;

    use super::*;
    use crate::catalog::catalog;

    #[test]
    fn references_are_resolved_in_place() {
        let inlined = |gvk: Gvk| {
            let kind = catalog().kind(&gvk).unwrap();
            let schema = catalog().schema(kind);
            let (kind, schema) = (&**kind, &schema);
            inline_schema(PublishedResource { kind, schema }).unwrap()
        };
        let deployment = inlined(Gvk::from_static("apps", "v1", "Deployment"));
        let value_at = |path: &str| deployment.pointer(path).cloned().unwrap_or_default();
        let containers =
            "/properties/spec/properties/template/properties/spec/properties/containers";
        let container = value_at(&format!("{containers}/items/properties"));
        assert_eq!(container["image"]["type"], "string");
        let surge = value_at(
            "/properties/spec/properties/strategy/properties/rollingUpdate/properties/maxSurge",
        );
        assert_eq!(surge["x-kubernetes-int-or-string"], true);
        assert_eq!(
            value_at("/properties/metadata/properties/creationTimestamp")["format"],
            "date-time"
        );
        let has_references = |schema: &Value| schema.to_string().contains("#/definitions/");
        assert!(!has_references(&deployment));
        // A JSONSchemaProps has properties of its own type.
        let gvk = Gvk::from_static("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        assert!(!has_references(&inlined(gvk)));
    }
}
