//! Replaces nulls as Go's decoder does: a field that is null is absent, and an item of a list or
//! a value of a map that is null is the zero value of its type. Depth is bounded.

use serde_json::Value;

use super::{MAX_DEPTH, Schema};
use crate::model::{SchemaDefinitionArena, SchemaNode, SchemaType};

impl Schema {
    /// Replaces all nulls of an object that Kubernetes has as a Go type.
    pub fn replace_nulls(&self, value: &mut Value) {
        replace_nulls(&self.definitions, &self.root, value, 0);
    }

    /// Replaces the nulls in the metadata of a custom resource and of the resources that it
    /// embeds. Only metadata has a Go type there.
    pub fn replace_nulls_in_metadata(&self, value: &mut Value) {
        let embeds = self.definitions.iter().any(|(_, d)| d.embedded_resource);
        let replacer = MetadataNullReplacer {
            definitions: &self.definitions,
            embeds,
        };
        replacer.replace(&self.root, value, 0);
    }
}

fn replace_nulls(
    definitions: &SchemaDefinitionArena,
    node: &SchemaNode,
    value: &mut Value,
    depth: usize,
) {
    if depth > MAX_DEPTH {
        return;
    }
    match (&node.ty, value) {
        (SchemaType::Ref(id), Value::Object(fields)) => {
            let definition = definitions.get(*id);
            fields.retain(|name, child| {
                let field = definition
                    .field(name)
                    .filter(|_| !definition.preserve_unknown);
                field.is_none() || !child.is_null()
            });
            for (name, child) in fields.iter_mut() {
                if let Some(field) = definition.field(name) {
                    replace_nulls(definitions, &field.node, child, depth + 1);
                }
            }
        }
        (SchemaType::Map(of), Value::Object(fields)) => {
            for child in fields.values_mut() {
                replace_element(definitions, of, child, depth);
            }
        }
        (SchemaType::Array(of), Value::Array(items)) => {
            for child in items {
                replace_element(definitions, of, child, depth);
            }
        }
        _ => {}
    }
}

fn replace_element(
    definitions: &SchemaDefinitionArena,
    node: &SchemaNode,
    value: &mut Value,
    depth: usize,
) {
    if value.is_null() {
        *value = node.ty.zero_value();
    } else {
        replace_nulls(definitions, node, value, depth + 1);
    }
}

struct MetadataNullReplacer<'a> {
    definitions: &'a SchemaDefinitionArena,
    embeds: bool,
}

impl MetadataNullReplacer<'_> {
    fn replace(&self, node: &SchemaNode, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match (&node.for_value(value).ty, value) {
            (SchemaType::Ref(id), Value::Object(fields)) => {
                let definition = self.definitions.get(*id);
                let has_metadata = depth == 0 || definition.embedded_resource;
                for (name, child) in fields.iter_mut() {
                    let Some(field) = definition.field(name) else {
                        continue;
                    };
                    if has_metadata && name == "metadata" {
                        replace_nulls(self.definitions, &field.node, child, depth + 1);
                    } else if self.embeds {
                        self.replace(&field.node, child, depth + 1);
                    }
                }
            }
            (SchemaType::Map(of), Value::Object(fields)) => {
                for child in fields.values_mut() {
                    self.replace(of, child, depth + 1);
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                for child in items {
                    self.replace(of, child, depth + 1);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::Gvk;
    use serde_json::{Value, json};

    use crate::catalog::catalog;
    use crate::schema::Schema;

    #[test]
    fn nulls_of_built_in_kinds_are_zeros() {
        let deployment = Gvk::from_static("apps", "v1", "Deployment");
        let kind = catalog().kind(&deployment).unwrap();
        let schema = catalog().schema(kind);
        for (input, stored) in [
            (json!({"spec": null}), json!({})),
            (
                json!({"metadata": {"labels": {"a": null}, "finalizers": [null, "b"]}}),
                json!({"metadata": {"labels": {"a": ""}, "finalizers": ["", "b"]}}),
            ),
            (
                json!({"spec": {"template": {"spec": {"nodeSelector": {"a": null}, "containers": [
                    null, {"args": [null], "resources": {"limits": {"cpu": null}}}]}}}}),
                json!({"spec": {"template": {"spec": {"nodeSelector": {"a": ""}, "containers": [
                    {}, {"args": [""], "resources": {"limits": {"cpu": "0"}}}]}}}}),
            ),
        ] {
            let mut value = input;
            schema.replace_nulls(&mut value);
            assert_eq!(value, stored);
        }
    }

    #[test]
    fn nulls_in_the_metadata_of_custom_resources_are_zeros() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
            "plain": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "object",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}}}}))
        .unwrap();
        let object = |zero: Value| {
            json!({"metadata": {"annotations": {"a": zero}}, "plain": {"a": null},
                "list": [{"metadata": {"labels": {"a": zero}}, "spec": null}]})
        };
        let mut value = object(Value::Null);
        schema.replace_nulls_in_metadata(&mut value);
        assert_eq!(value, object("".into()));
    }
}
