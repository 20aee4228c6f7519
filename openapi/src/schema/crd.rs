//! Converts `openAPIV3Schema` of a CRD version, a structural schema, into an arena of
//! anonymous definitions and a root node. Depth and size are bounded.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};
use crate::catalog::catalog;
use crate::model::{
    ListType, RegexPattern, SchemaComposition, SchemaDefinition, SchemaDefinitionArena,
    SchemaDefinitionId, SchemaField, SchemaNode, SchemaType, UntypedSchema, ValueValidation,
};
use crate::schema_file_parser::{OBJECT_META_TYPE, object_fields};

const PRESERVE_UNKNOWN_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";
/// The keys of a schema that [`ValueValidation`] has, besides compositions.
const VALUE_VALIDATIONS: [&str; 13] = [
    "enum",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "pattern",
    "x-kubernetes-validations",
];
/// How many definitions one schema may have.
const MAX_DEFINITIONS: usize = 50_000;

impl Schema {
    /// Builds a schema from `openAPIV3Schema` of a CRD version and adds `apiVersion`,
    /// `kind` and `metadata`. The error names what cannot be converted.
    pub fn from_crd(schema: &Value) -> Result<Self, String> {
        let (definitions, root) = build(schema)?;
        Ok(Self {
            definitions: Arc::new(definitions),
            root: Arc::new(root),
        })
    }
}

pub(super) fn build(schema: &Value) -> Result<(SchemaDefinitionArena, SchemaNode), String> {
    let mut builder = CrdSchemaParser::default();
    let meta = builder.import(catalog().definitions(), OBJECT_META_TYPE)?;
    builder.meta = Some(meta);
    let mut root = builder.build_node(schema, 0)?;
    if let Some(object) = root.untyped.take().and_then(|parts| parts.object) {
        root.ty = object.ty;
    }
    if !matches!(root.ty, SchemaType::Ref(_)) {
        // No fields are declared: `type: object` alone, or a schema that preserves all.
        let definition = SchemaDefinition {
            preserve_unknown: matches!(root.ty, SchemaType::Any | SchemaType::Object),
            ..SchemaDefinition::default()
        };
        root.ty = SchemaType::Ref(builder.add(definition)?);
    }
    if let SchemaType::Ref(id) = root.ty {
        builder.add_object_fields(id, true)?;
    }
    Ok((builder.definitions, root))
}

#[derive(Default)]
struct CrdSchemaParser {
    definitions: SchemaDefinitionArena,
    meta: Option<SchemaDefinitionId>,
}

impl CrdSchemaParser {
    fn add(&mut self, definition: SchemaDefinition) -> Result<SchemaDefinitionId, String> {
        if self.definitions.len() >= MAX_DEFINITIONS {
            return Err("the schema has too many objects".into());
        }
        self.definitions.add(definition)
    }

    /// Copies a definition of the catalog under its name, with all definitions it refers to.
    fn import(
        &mut self,
        from: &SchemaDefinitionArena,
        name: &str,
    ) -> Result<SchemaDefinitionId, String> {
        if let Some(id) = self.definitions.id(name) {
            return Ok(id);
        }
        let source = from
            .id(name)
            .map(|id| from.get(id))
            .ok_or_else(|| format!("no type {name}"))?;
        let mut copy = source.clone();
        // Added before its fields are visited, so that a cycle of references ends.
        let id = self.definitions.add(source.clone())?;
        for field in &mut copy.fields {
            self.redirect_references(from, &mut field.node)?;
        }
        *self.definitions.get_mut(id) = copy;
        Ok(id)
    }

    fn redirect_references(
        &mut self,
        from: &SchemaDefinitionArena,
        node: &mut SchemaNode,
    ) -> Result<(), String> {
        match &mut node.ty {
            SchemaType::Array(inner) | SchemaType::Map(inner) => {
                self.redirect_references(from, inner)
            }
            SchemaType::Ref(id) => {
                let name = from.get(*id).name.clone();
                *id = self.import(from, &name)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds `apiVersion`, `kind` and `metadata` to a definition.
    fn add_object_fields(&mut self, id: SchemaDefinitionId, root: bool) -> Result<(), String> {
        let Some(mut meta) = self.meta else {
            return Ok(());
        };
        if root && let Some(field) = self.definitions.get(id).field("metadata") {
            let declared = field.node.ty.clone();
            meta = self.restricted_meta(meta, &declared)?;
        }
        let definition = self.definitions.get_mut(id);
        definition.embedded_resource = !root;
        for mut field in object_fields(SchemaType::Ref(meta)) {
            field.required = !root && &*field.name != "metadata";
            match definition.field(&field.name) {
                // The type of `metadata` is fixed, whatever the schema declares.
                Some(_) if &*field.name == "metadata" => definition.replace_field(field),
                Some(_) => {}
                None => definition.push_field(field)?,
            }
        }
        Ok(())
    }

    /// The type of metadata with the rules that a schema declares for its names.
    fn restricted_meta(
        &mut self,
        meta: SchemaDefinitionId,
        declared: &SchemaType,
    ) -> Result<SchemaDefinitionId, String> {
        let SchemaType::Ref(declared) = declared else {
            return Ok(meta);
        };
        let mut restricted = self.definitions.get(meta).clone();
        let mut is_restricted = false;
        for mut field in self.definitions.get(*declared).fields.iter().cloned() {
            let is_name = matches!(&*field.name, "name" | "generateName");
            if is_name && let Some(standard) = restricted.field(&field.name) {
                field.required = false;
                field.number = standard.number;
                restricted.replace_field(field);
                is_restricted = true;
            }
        }
        if !is_restricted {
            return Ok(meta);
        }
        if self.definitions.iter().any(|(_, d)| d.embedded_resource) {
            // The metadata of embedded resources is not restricted.
            restricted.name = "".into();
            return self.add(restricted);
        }
        *self.definitions.get_mut(meta) = restricted;
        Ok(meta)
    }

    fn build_node(&mut self, schema: &Value, depth: usize) -> Result<SchemaNode, String> {
        if depth > MAX_DEPTH {
            return Err("the schema is nested too deeply".into());
        }
        let Value::Object(map) = schema else {
            return Err(format!("a schema must be an object, not {schema}"));
        };
        let mut node = SchemaNode {
            default: map
                .get("default")
                .filter(|d| !d.is_null())
                .map(|d| d.clone().into()),
            list: parse_list_type(map),
            atomic_map: string_field(map, "x-kubernetes-map-type") == "atomic",
            nullable: bool_field(map, "nullable"),
            preserve_unknown: bool_field(map, PRESERVE_UNKNOWN_FIELDS),
            format: string_field(map, "format").into(),
            description: string_field(map, "description").into(),
            ..SchemaNode::default()
        };
        node.ty = self.build_type(map, depth)?;
        if string_field(map, "type").is_empty() {
            node.untyped = Some(Box::new(self.build_untyped(map, depth)?));
        }
        node.validation = self.build_validation(map, depth)?.map(Box::new);
        Ok(node)
    }

    /// Builds what a schema without a declared type says about objects and arrays.
    fn build_untyped(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<UntypedSchema, String> {
        let has_any = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
        let part = |ty| SchemaNode {
            preserve_unknown: bool_field(map, PRESERVE_UNKNOWN_FIELDS),
            ..SchemaNode::from_type(ty)
        };
        let mut parts = UntypedSchema {
            object: None,
            array: None,
        };
        if has_any(&["properties", "required", "additionalProperties"]) {
            parts.object = Some(part(self.build_object_type(map, depth)?));
        }
        if has_any(&["items"]) {
            parts.array = Some(part(self.build_array_type(map, depth)?));
        }
        Ok(parts)
    }

    fn build_type(&mut self, map: &Map<String, Value>, depth: usize) -> Result<SchemaType, String> {
        if bool_field(map, "x-kubernetes-int-or-string") {
            return Ok(SchemaType::IntOrString);
        }
        Ok(match string_field(map, "type") {
            "string" => SchemaType::String,
            "boolean" => SchemaType::Bool,
            "number" => SchemaType::Number,
            "integer" if string_field(map, "format") == "int32" => SchemaType::Int32,
            "integer" => SchemaType::Int64,
            "array" => self.build_array_type(map, depth)?,
            "object" => self.build_object_type(map, depth)?,
            "" => SchemaType::Any,
            other => return Err(format!("unknown type {other:?}")),
        })
    }

    fn build_array_type(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<SchemaType, String> {
        Ok(SchemaType::Array(Box::new(match map.get("items") {
            Some(items) => self.build_node(items, depth + 1)?,
            None => SchemaNode::default(),
        })))
    }

    fn build_object_type(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<SchemaType, String> {
        let preserve = bool_field(map, PRESERVE_UNKNOWN_FIELDS);
        let embedded = bool_field(map, "x-kubernetes-embedded-resource");
        let properties = map.get("properties").and_then(Value::as_object);
        match map.get("additionalProperties") {
            Some(Value::Bool(true)) if properties.is_none() => {
                return Ok(SchemaType::Map(Box::default()));
            }
            Some(values @ Value::Object(_)) if properties.is_none() => {
                return Ok(SchemaType::Map(Box::new(
                    self.build_node(values, depth + 1)?,
                )));
            }
            _ => {}
        }
        if preserve && properties.is_none() && !embedded && !map.contains_key("required") {
            return Ok(SchemaType::Object);
        }
        let mut definition = self.build_definition(map, depth)?;
        definition.preserve_unknown = preserve;
        let id = self.add(definition)?;
        if embedded {
            self.add_object_fields(id, false)?;
        }
        Ok(SchemaType::Ref(id))
    }

    /// Builds a definition from `properties` and `required`.
    fn build_definition(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<SchemaDefinition, String> {
        let required: Vec<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut definition = SchemaDefinition::default();
        let properties = map.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let mut node = self
                .build_node(schema, depth + 1)
                .map_err(|e| format!("{name}: {e}"))?;
            definition.push_field(SchemaField {
                name: name.as_str().into(),
                number: 0,
                required: required.contains(&name.as_str()),
                description: std::mem::take(&mut node.description),
                node,
            })?;
        }
        for name in required {
            if definition.field(name).is_none() {
                definition.push_field(SchemaField {
                    name: name.into(),
                    number: 0,
                    required: true,
                    description: "".into(),
                    node: SchemaNode::default(),
                })?;
            }
        }
        Ok(definition)
    }

    fn build_validation(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<Option<ValueValidation>, String> {
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let logic = self.build_composition(map, depth)?;
        if logic.is_none() && !VALUE_VALIDATIONS.iter().any(|n| map.contains_key(*n)) {
            return Ok(None);
        }
        let source = map.get("pattern").and_then(Value::as_str);
        let pattern = source.map(compile_pattern).transpose()?;
        let array = |key: &str| map.get(key).and_then(Value::as_array).cloned();
        Ok(Some(ValueValidation {
            enum_values: array("enum").unwrap_or_default(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: bool_field(map, "exclusiveMinimum"),
            exclusive_maximum: bool_field(map, "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            unique_items: bool_field(map, "uniqueItems"),
            pattern,
            composition: logic.map(Box::new),
            cel_rules: array("x-kubernetes-validations").unwrap_or_default(),
        }))
    }

    fn build_composition(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<Option<SchemaComposition>, String> {
        let mut logic = SchemaComposition {
            any_of: self.build_nodes(map, "anyOf", depth)?,
            all_of: self.build_nodes(map, "allOf", depth)?,
            one_of: self.build_nodes(map, "oneOf", depth)?,
            ..SchemaComposition::default()
        };
        if let Some(negated) = map.get("not") {
            logic.not = Some(self.build_node(negated, depth + 1)?);
        }
        let is_set = !logic.any_of.is_empty()
            || !logic.all_of.is_empty()
            || !logic.one_of.is_empty()
            || logic.not.is_some();
        Ok(is_set.then_some(logic))
    }

    fn build_nodes(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        depth: usize,
    ) -> Result<Vec<SchemaNode>, String> {
        let schemas = map.get(key).and_then(Value::as_array);
        schemas
            .into_iter()
            .flatten()
            .map(|s| {
                self.build_node(s, depth + 1)
                    .map_err(|e| format!("{key}: {e}"))
            })
            .collect()
    }
}

fn string_field<'v>(map: &'v Map<String, Value>, key: &str) -> &'v str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn compile_pattern(source: &str) -> Result<RegexPattern, String> {
    let pattern = RegexPattern::new(source);
    match pattern.matches("") {
        Some(_) => Ok(pattern),
        None => Err(format!("pattern {source:?} cannot be compiled")),
    }
}

fn bool_field(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn parse_list_type(map: &Map<String, Value>) -> ListType {
    match string_field(map, "x-kubernetes-list-type") {
        "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        "map" => {
            let keys = map
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array);
            ListType::Map(
                keys.into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(Into::into)
                    .collect(),
            )
        }
        _ => ListType::Unset,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn extensions_are_converted() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
            "list": {"type": "array", "x-kubernetes-list-type": "map",
                     "x-kubernetes-list-map-keys": ["k"],
                     "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "ios": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "emb": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true},
            "at": {"type": "object", "x-kubernetes-map-type": "atomic",
                   "additionalProperties": {"type": "string"}},
        }}))
        .unwrap();
        let root = schema.root();
        let list = root.field("list").unwrap();
        assert_eq!(*list.list_type(), ListType::Map(["k".into()].into()));
        assert_eq!(
            *list.item().unwrap().field("k").unwrap().ty(),
            SchemaType::String
        );
        assert_eq!(*root.field("ios").unwrap().ty(), SchemaType::IntOrString);
        assert!(root.field("at").unwrap().is_atomic());
        assert!(
            root.field("emb")
                .unwrap()
                .field("metadata")
                .unwrap()
                .field("labels")
                .is_some()
        );
        assert!(root.field("emb").unwrap().preserves_unknown_fields());
        assert!(root.field("zzz").is_none());
        assert!(root.field("metadata").is_some());
    }

    #[test]
    fn malformed_schemas_are_rejected() {
        for schema in [
            json!(1),
            json!({"type": "object", "properties": {"a": {"type": "strange"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        ] {
            assert!(Schema::from_crd(&schema).is_err(), "{schema}");
        }
        let mut deep_schema = json!({"type": "string"});
        for _ in 0..MAX_DEPTH + 2 {
            deep_schema = json!({"type": "array", "items": deep_schema});
        }
        assert!(Schema::from_crd(&deep_schema).is_err());
    }
}
