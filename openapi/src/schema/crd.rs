//! Converts `openAPIV3Schema` of a CRD version, a structural schema, into an arena of
//! anonymous definitions and a root node. Depth and size are bounded.

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use crate::catalog::catalog;
use crate::dsl::{OBJECT_META, object_fields};
use crate::model::{
    DefId, Definition, Definitions, Field, ListType, Logic, Node, Pattern, Rules, Type,
};

/// How many definitions one schema may have.
const MAX_DEFINITIONS: usize = 50_000;

pub(super) fn build(schema: &Value) -> Result<(Definitions, Node), String> {
    let mut builder = Builder::default();
    let meta = builder.import(catalog().definitions(), OBJECT_META)?;
    builder.meta = Some(meta);
    let mut root = builder.node(schema, 0)?;
    if !matches!(root.ty, Type::Ref(_)) {
        // No fields are declared: `type: object` alone, or a schema that preserves all.
        let definition = Definition {
            preserve_unknown: matches!(root.ty, Type::Any | Type::Object),
            ..Definition::default()
        };
        root.ty = Type::Ref(builder.add(definition)?);
    }
    if let Type::Ref(id) = root.ty {
        builder.make_object(id, true)?;
    }
    Ok((builder.definitions, root))
}

#[derive(Default)]
struct Builder {
    definitions: Definitions,
    meta: Option<DefId>,
}

impl Builder {
    fn add(&mut self, definition: Definition) -> Result<DefId, String> {
        if self.definitions.len() >= MAX_DEFINITIONS {
            return Err("the schema has too many objects".into());
        }
        self.definitions.add(definition)
    }

    /// Copies a definition of the catalog under its name, with all definitions it refers to.
    fn import(&mut self, from: &Definitions, name: &str) -> Result<DefId, String> {
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
            self.redirect(from, &mut field.node)?;
        }
        *self.definitions.get_mut(id) = copy;
        Ok(id)
    }

    fn redirect(&mut self, from: &Definitions, node: &mut Node) -> Result<(), String> {
        match &mut node.ty {
            Type::Array(inner) | Type::Map(inner) => self.redirect(from, inner),
            Type::Ref(id) => {
                let name = from.get(*id).name.clone();
                *id = self.import(from, &name)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds `apiVersion`, `kind` and `metadata` to a definition.
    fn make_object(&mut self, id: DefId, root: bool) -> Result<(), String> {
        let Some(meta) = self.meta else {
            return Ok(());
        };
        let definition = self.definitions.get_mut(id);
        definition.embedded = !root;
        for mut field in object_fields(Type::Ref(meta)) {
            field.required = !root && &*field.name != "metadata";
            match definition.field(&field.name) {
                // The type of `metadata` is fixed, whatever the schema declares.
                Some(_) if &*field.name == "metadata" => definition.replace(field),
                Some(_) => {}
                None => definition.push(field)?,
            }
        }
        Ok(())
    }

    fn node(&mut self, schema: &Value, depth: usize) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return Err("the schema is nested too deeply".into());
        }
        let Value::Object(map) = schema else {
            return Err(format!("a schema must be an object, not {schema}"));
        };
        let mut node = Node {
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            list: list_type(map),
            atomic_map: text(map, "x-kubernetes-map-type") == "atomic",
            nullable: flag(map, "nullable"),
            format: text(map, "format").into(),
            description: text(map, "description").into(),
            ..Node::default()
        };
        node.ty = self.ty(map, depth)?;
        node.rules = self.rules(map, &node.ty, depth)?.map(Box::new);
        Ok(node)
    }

    fn ty(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Type, String> {
        if flag(map, "x-kubernetes-int-or-string") {
            return Ok(Type::IntOrString);
        }
        Ok(match text(map, "type") {
            "string" => Type::String,
            "boolean" => Type::Bool,
            "number" => Type::Number,
            "integer" if text(map, "format") == "int32" => Type::Int32,
            "integer" => Type::Int64,
            "array" => Type::Array(Box::new(match map.get("items") {
                Some(items) => self.node(items, depth + 1)?,
                None => Node::default(),
            })),
            "object" => self.object(map, depth)?,
            "" => Type::Any,
            other => return Err(format!("unknown type {other:?}")),
        })
    }

    fn object(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Type, String> {
        let preserve = flag(map, "x-kubernetes-preserve-unknown-fields");
        let embedded = flag(map, "x-kubernetes-embedded-resource");
        let properties = map.get("properties").and_then(Value::as_object);
        match map.get("additionalProperties") {
            Some(Value::Bool(true)) if properties.is_none() => {
                return Ok(Type::Map(Box::default()));
            }
            Some(values @ Value::Object(_)) if properties.is_none() => {
                return Ok(Type::Map(Box::new(self.node(values, depth + 1)?)));
            }
            _ => {}
        }
        if preserve && properties.is_none() && !embedded && !map.contains_key("required") {
            return Ok(Type::Object);
        }
        let mut definition = self.fields(map, depth)?;
        definition.preserve_unknown = preserve;
        let id = self.add(definition)?;
        if embedded {
            self.make_object(id, false)?;
        }
        Ok(Type::Ref(id))
    }

    /// Builds a definition from `properties` and `required`.
    fn fields(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Definition, String> {
        let required: Vec<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut definition = Definition::default();
        let properties = map.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let mut node = self
                .node(schema, depth + 1)
                .map_err(|e| format!("{name}: {e}"))?;
            definition.push(Field {
                name: name.as_str().into(),
                number: 0,
                required: required.contains(&name.as_str()),
                description: std::mem::take(&mut node.description),
                node,
            })?;
        }
        for name in required {
            if definition.field(name).is_none() {
                definition.push(Field {
                    name: name.into(),
                    number: 0,
                    required: true,
                    description: "".into(),
                    node: Node::default(),
                })?;
            }
        }
        Ok(definition)
    }

    fn rules(
        &mut self,
        map: &Map<String, Value>,
        ty: &Type,
        depth: usize,
    ) -> Result<Option<Rules>, String> {
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let logic = self.logic(map, ty, depth)?;
        let names = [
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
        ];
        if logic.is_none() && !names.iter().any(|n| map.contains_key(*n)) {
            return Ok(None);
        }
        let pattern = match map.get("pattern").and_then(Value::as_str) {
            Some(source) => {
                let pattern = Pattern::new(source);
                if pattern.matches("").is_none() {
                    return Err(format!("pattern {source:?} cannot be compiled"));
                }
                Some(pattern)
            }
            None => None,
        };
        Ok(Some(Rules {
            allowed: map
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag(map, "exclusiveMinimum"),
            exclusive_maximum: flag(map, "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            unique_items: flag(map, "uniqueItems"),
            pattern,
            logic: logic.map(Box::new),
        }))
    }

    fn logic(
        &mut self,
        map: &Map<String, Value>,
        ty: &Type,
        depth: usize,
    ) -> Result<Option<Logic>, String> {
        let mut logic = Logic::default();
        // `anyOf` and `allOf` of an int-or-string only repeat its two types.
        if !matches!(ty, Type::IntOrString) {
            logic.any_of = self.all(map, "anyOf", depth)?;
            logic.all_of = self.all(map, "allOf", depth)?;
        }
        logic.one_of = self.all(map, "oneOf", depth)?;
        if let Some(not) = map.get("not") {
            logic.not = Some(self.node(not, depth + 1)?);
        }
        let has_fields = map.contains_key("properties") || map.contains_key("required");
        if matches!(ty, Type::Any) && has_fields {
            let definition = self.fields(map, depth)?;
            logic.loose = Some(self.add(definition)?);
        }
        let any = !logic.any_of.is_empty()
            || !logic.all_of.is_empty()
            || !logic.one_of.is_empty()
            || logic.not.is_some()
            || logic.loose.is_some();
        Ok(any.then_some(logic))
    }

    fn all(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        depth: usize,
    ) -> Result<Vec<Node>, String> {
        let schemas = map.get(key).and_then(Value::as_array);
        schemas
            .into_iter()
            .flatten()
            .map(|s| self.node(s, depth + 1).map_err(|e| format!("{key}: {e}")))
            .collect()
    }
}

fn text<'v>(map: &'v Map<String, Value>, key: &str) -> &'v str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match text(map, "x-kubernetes-list-type") {
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
        assert_eq!(*list.list(), ListType::Map(["k".into()].into()));
        assert_eq!(*list.item().unwrap().field("k").unwrap().ty(), Type::String);
        assert_eq!(*root.field("ios").unwrap().ty(), Type::IntOrString);
        assert!(root.field("at").unwrap().atomic());
        assert!(
            root.field("emb")
                .unwrap()
                .field("metadata")
                .unwrap()
                .field("labels")
                .is_some()
        );
        assert!(root.field("emb").unwrap().keeps_unknown());
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
        let mut deep = json!({"type": "string"});
        for _ in 0..MAX_DEPTH + 2 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(Schema::from_crd(&deep).is_err());
    }
}
