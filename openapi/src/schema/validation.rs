//! Validates a value against a schema with the error texts of the API server. Depth and
//! number of errors are bounded.

use std::collections::HashMap;

use machinery::{FieldError, Quantity};
use serde_json::{Map, Value};

use super::value_validation::{check_enum, check_value_validation};
use super::{FieldPath, PathSegment, Schema, formats};
use crate::model::{
    ListType, SchemaComposition, SchemaDefinitionArena, SchemaDefinitionId, SchemaNode, SchemaType,
};

/// How many errors are reported.
const MAX_ERRORS: usize = 100;
/// How deep `allOf`, `anyOf`, `oneOf` and `not` may be nested in each other.
const MAX_COMPOSITION_DEPTH: usize = 8;

pub(super) const QUANTITY_FORMAT_ERROR: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

impl Schema {
    /// Validates types and values.
    pub fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut validation = SchemaValidator::new(&self.definitions);
        validation.check(&self.root, value);
        validation.errors
    }
}

pub(super) struct SchemaValidator<'a> {
    definitions: &'a SchemaDefinitionArena,
    pub(super) errors: Vec<FieldError>,
    composition_depth: usize,
}

impl<'a> SchemaValidator<'a> {
    pub(super) fn new(definitions: &'a SchemaDefinitionArena) -> Self {
        Self {
            definitions,
            errors: Vec::new(),
            composition_depth: 0,
        }
    }

    pub(super) fn check(&mut self, root: &SchemaNode, value: &Value) {
        self.validate_node(root, value, &mut FieldPath::default());
    }

    fn validate_node<'v>(&mut self, node: &SchemaNode, value: &'v Value, path: &mut FieldPath<'v>) {
        if self.errors.len() >= MAX_ERRORS || (value.is_null() && node.nullable) {
            return;
        }
        if path.too_deep() {
            self.errors.push(FieldError::invalid(
                path.render(),
                &Value::Null,
                "is nested too deeply",
            ));
            return;
        }
        if let Err(error) = check_type(node, value, path) {
            self.errors.push(error);
            if !value.is_null() {
                self.check_enum(node, value, path);
            }
            return;
        }
        if let Some(rules) = &node.validation {
            check_value_validation(rules, value, path, &mut self.errors);
            if let Some(logic) = &rules.composition {
                self.validate_composition(logic, value, path);
            }
        }
        match (&node.ty, value) {
            (SchemaType::Ref(id), Value::Object(map)) => self.validate_fields(*id, map, path),
            (SchemaType::Map(of), Value::Object(map)) => {
                for (key, child) in map {
                    self.validate_child(PathSegment::Key(key), of, child, path);
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                for (at, child) in items.iter().enumerate() {
                    self.validate_child(PathSegment::Index(at), of, child, path);
                }
                self.check_unique_items(node, items, path);
            }
            _ => {}
        }
    }

    /// Kubernetes reports a value of a wrong type as an unsupported one as well.
    fn check_enum(&mut self, node: &SchemaNode, value: &Value, path: &FieldPath<'_>) {
        if let Some(rules) = &node.validation {
            check_enum(rules, value, path, &mut self.errors);
        }
    }

    fn validate_child<'v>(
        &mut self,
        segment: PathSegment<'v>,
        node: &SchemaNode,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) {
        path.segments.push(segment);
        self.validate_node(node, value, path);
        path.segments.pop();
    }

    fn validate_fields<'v>(
        &mut self,
        id: SchemaDefinitionId,
        map: &'v Map<String, Value>,
        path: &mut FieldPath<'v>,
    ) {
        let definition = self.definitions.get(id);
        for field in &definition.fields {
            match map.get_key_value(&*field.name) {
                None if field.required => {
                    let path = path.render_child(&field.name);
                    self.errors.push(FieldError::required(path, ""));
                }
                None => {}
                // Go treats null as absent.
                Some((_, Value::Null)) if definition.native && !field.required => {}
                Some((_, Value::String(text)))
                    if text.is_empty() && is_kubernetes_type(&definition.name) => {}
                Some((key, value)) => {
                    self.validate_child(PathSegment::Key(key), &field.node, value, path)
                }
            }
        }
    }

    /// Sets and keyed lists must not contain duplicates.
    fn check_unique_items(&mut self, node: &SchemaNode, items: &[Value], path: &FieldPath<'_>) {
        let keys: Option<&[Box<str>]> = match &node.list {
            ListType::Set => None,
            ListType::Map(keys) => Some(keys),
            _ if node.validation.as_ref().is_some_and(|r| r.unique_items) => None,
            _ => return,
        };
        let mut visited: HashMap<String, u32> = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let identity = match keys {
                None => item.clone(),
                Some(keys) => self.list_map_key(node, item, keys),
            };
            let seen = visited.entry(identity.to_string()).or_insert(0);
            *seen += 1;
            // One error for each value, however often it is repeated.
            if *seen == 2 {
                let field = format!("{}[{at}]", path.render());
                self.errors.push(FieldError::duplicate(field, &identity));
            }
        }
    }

    fn list_map_key(&self, node: &SchemaNode, item: &Value, keys: &[Box<str>]) -> Value {
        let definition = match &node.ty {
            SchemaType::Array(of) => match of.ty {
                SchemaType::Ref(id) => Some(self.definitions.get(id)),
                _ => None,
            },
            _ => None,
        };
        let default = |key: &str| definition?.field(key)?.node.default.as_ref();
        keys.iter()
            .filter_map(|key| {
                let value = item.get(&**key).or_else(|| default(key))?;
                Some((key.to_string(), value.clone()))
            })
            .collect()
    }

    fn validate_composition<'v>(
        &mut self,
        logic: &SchemaComposition,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) {
        if self.composition_depth >= MAX_COMPOSITION_DEPTH {
            return;
        }
        if let Some(id) = logic.untyped
            && let Value::Object(map) = value
        {
            self.validate_untyped_fields(id, map, path);
        }
        let name = format!("{:?}", path.render());
        self.validate_any_of(&logic.any_of, &name, value, path);
        self.validate_one_of(&logic.one_of, &name, value, path);
        self.validate_all_of(&logic.all_of, &name, value, path);
        if let Some(node) = &logic.not
            && self.validate_subschema(node, value, path).is_empty()
        {
            self.push_composition(format!("{name} must not validate the schema (not)"));
        }
    }

    fn validate_any_of<'v>(
        &mut self,
        nodes: &[SchemaNode],
        name: &str,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) {
        let mut first_errors = None;
        for node in nodes {
            let errors = self.validate_subschema(node, value, path);
            if errors.is_empty() {
                return;
            }
            first_errors.get_or_insert(errors);
        }
        if let Some(errors) = first_errors {
            self.push_composition(format!("{name} must validate at least one schema (anyOf)"));
            self.errors.extend(errors);
        }
    }

    fn validate_one_of<'v>(
        &mut self,
        nodes: &[SchemaNode],
        name: &str,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) {
        let mut errors = nodes
            .iter()
            .map(|n| self.validate_subschema(n, value, path));
        let Some(first_errors) = errors.next() else {
            return;
        };
        let others = errors.filter(Vec::is_empty).count();
        let text = format!("{name} must validate one and only one schema (oneOf).");
        match others + usize::from(first_errors.is_empty()) {
            0 => {
                self.push_composition(format!("{text} Found none valid"));
                self.errors.extend(first_errors);
            }
            1 => {}
            valid => self.push_composition(format!("{text} Found {valid} valid alternatives")),
        }
    }

    fn validate_all_of<'v>(
        &mut self,
        nodes: &[SchemaNode],
        name: &str,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) {
        let mut failed = 0;
        for node in nodes {
            let errors = self.validate_subschema(node, value, path);
            failed += usize::from(!errors.is_empty());
            self.errors.extend(errors);
        }
        if failed > 0 {
            let none = if failed == nodes.len() {
                ". None validated"
            } else {
                ""
            };
            let text = format!("{name} must validate all the schemas (allOf){none}");
            self.push_composition(text);
        }
    }

    /// Kubernetes names no field for these.
    fn push_composition(&mut self, text: String) {
        let error = FieldError::invalid("<nil>", &Value::from(""), text);
        self.errors.push(error);
    }

    /// Validates the fields of a schema without a declared type.
    fn validate_untyped_fields<'v>(
        &mut self,
        id: SchemaDefinitionId,
        map: &'v Map<String, Value>,
        path: &mut FieldPath<'v>,
    ) {
        let mut nested = SchemaValidator::new(self.definitions);
        nested.composition_depth = self.composition_depth + 1;
        nested.validate_fields(id, map, path);
        self.errors.append(&mut nested.errors);
    }

    /// Validates the value against another schema and returns its errors.
    fn validate_subschema<'v>(
        &self,
        node: &SchemaNode,
        value: &'v Value,
        path: &mut FieldPath<'v>,
    ) -> Vec<FieldError> {
        let mut nested = SchemaValidator::new(self.definitions);
        nested.composition_depth = self.composition_depth + 1;
        nested.validate_node(node, value, path);
        nested.errors
    }
}

/// Whether this is one of Kubernetes' own Go types. Their empty strings count as unset and
/// are left to the validation of the kind; Karmada's types are CRDs with a strict schema.
fn is_kubernetes_type(definition: &str) -> bool {
    definition.starts_with("io.k8s.")
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(n) => {
            n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|f| f.fract() == 0.0)
        }
        _ => false,
    }
}

/// Checks that the value has the declared type and format.
fn check_type(node: &SchemaNode, value: &Value, path: &FieldPath<'_>) -> Result<(), FieldError> {
    let (fits, name) = match &node.ty {
        SchemaType::String
        | SchemaType::Bytes
        | SchemaType::Time
        | SchemaType::MicroTime
        | SchemaType::Duration => (value.is_string(), "string"),
        SchemaType::Int32 | SchemaType::Int64 => (is_integer(value), "integer"),
        SchemaType::Bool => (value.is_boolean(), "boolean"),
        SchemaType::Number => (value.is_number(), "number"),
        SchemaType::Quantity => (value.is_string() || value.is_number(), "integer,string"),
        SchemaType::IntOrString => (value.is_string() || is_integer(value), "integer,string"),
        SchemaType::Any => (true, ""),
        SchemaType::Object | SchemaType::Map(_) | SchemaType::Ref(_) => {
            (value.is_object(), "object")
        }
        SchemaType::Array(_) => (value.is_array(), "array"),
    };
    if !fits {
        let field = path.render();
        let actual = json_type(value);
        let text = format!("{field} in body must be of type {name}: {actual:?}");
        return Err(FieldError::type_invalid(field, &Value::from(actual), text));
    }
    check_format(node, value, path)
}

fn check_format(node: &SchemaNode, value: &Value, path: &FieldPath<'_>) -> Result<(), FieldError> {
    let format = match &node.ty {
        SchemaType::Bytes => "byte",
        SchemaType::Time | SchemaType::MicroTime => "date-time",
        SchemaType::Duration => "duration",
        SchemaType::Int32 => "int32",
        SchemaType::Quantity => {
            return match Quantity::from_value(value) {
                Ok(_) => Ok(()),
                Err(_) => Err(FieldError::invalid(
                    path.render(),
                    value,
                    QUANTITY_FORMAT_ERROR,
                )),
            };
        }
        _ => &node.format,
    };
    let fits = match value {
        Value::String(text) => formats::matches_format(format, text),
        Value::Number(n) if format == "int32" => {
            n.as_i64().is_none_or(|n| i32::try_from(n).is_ok())
        }
        _ => true,
    };
    if fits {
        return Ok(());
    }
    let field = path.render();
    let rendered = match value {
        Value::String(text) => text.clone(),
        _ => {
            let text =
                format!("Checked value must be of type integer with format {format} in {field}");
            return Err(FieldError::invalid("<nil>", &Value::from(""), text));
        }
    };
    let text = format!("{field} in body must be of type {format}: {rendered:?}");
    Err(FieldError::type_invalid(field, value, text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::schema::Schema;

    fn check(schema: &Schema, table: &[(Value, &[&str])]) {
        for (value, expect) in table {
            let errors: Vec<String> = schema
                .validate(value)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(errors, *expect, "{value}");
        }
    }

    #[test]
    fn errors_have_the_texts_of_the_api_server() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["must"], "properties": {
            "must": {"type": "string"},
            "n": {"type": "integer", "minimum": 1, "maximum": 5},
            "i": {"type": "integer", "format": "int32"},
            "e": {"type": "string", "enum": ["a", "b"]},
            "p": {"type": "string", "pattern": "^x+$", "minLength": 2, "maxLength": 3},
            "a": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
                "type": "object", "properties": {"b": {"type": "boolean"}}}},
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "k": {"type": "array", "x-kubernetes-list-type": "map",
                  "x-kubernetes-list-map-keys": ["name"],
                  "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "t": {"type": "string", "format": "date-time"},
            "ios": {"x-kubernetes-int-or-string": true},
            "nul": {"type": "string", "nullable": true},
            "any": {"anyOf": [{"required": ["x"]}, {"required": ["y"]}],
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}}))
        .unwrap();
        let with = |name: &str, value: Value| json!({"spec": {"must": "", name: value}});
        check(
            &schema,
            &[
                (json!({}), &[]),
                (json!({"spec": {}}), &["spec.must: Required value"]),
                (
                    with("n", json!("3")),
                    &[
                        "spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\"",
                    ],
                ),
                (
                    with("n", json!(0)),
                    &[
                        "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1",
                    ],
                ),
                (
                    with("n", json!(9)),
                    &["spec.n: Invalid value: 9: spec.n in body should be less than or equal to 5"],
                ),
                (
                    with("i", json!(3_000_000_000_u64)),
                    &[
                        "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i",
                    ],
                ),
                (
                    with("e", json!("c")),
                    &["spec.e: Unsupported value: \"c\": supported values: \"a\", \"b\""],
                ),
                (
                    with("p", json!("y")),
                    &[
                        "spec.p: Invalid value: \"y\": spec.p in body should be at least 2 chars long",
                    ],
                ),
                (
                    with("p", json!("xxxx")),
                    &["spec.p: Too long: may not be more than 3 bytes"],
                ),
                (
                    with("a", json!([])),
                    &["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"],
                ),
                (
                    with("a", json!([{}, {}, {}])),
                    &["spec.a: Too many: 3: must have at most 2 items"],
                ),
                (
                    with("a", json!([{"b": 1}])),
                    &[
                        "spec.a[0].b: Invalid value: \"integer\": spec.a[0].b in body must be of type boolean: \"integer\"",
                    ],
                ),
                (
                    with("s", json!(["x", "x"])),
                    &["spec.s[1]: Duplicate value: \"x\""],
                ),
                (
                    with("k", json!([{"name": "x"}, {"name": "x"}])),
                    &["spec.k[1]: Duplicate value: {\"name\":\"x\"}"],
                ),
                (
                    with("t", json!("noon")),
                    &[
                        "spec.t: Invalid value: \"noon\": spec.t in body must be of type date-time: \"noon\"",
                    ],
                ),
                (with("ios", json!("50%")), &[]),
                (with("ios", json!(5)), &[]),
                (
                    with("ios", json!(true)),
                    &[
                        "spec.ios: Invalid value: \"boolean\": spec.ios in body must be of type integer,string: \"boolean\"",
                    ],
                ),
                (with("nul", Value::Null), &[]),
                (
                    with("e", Value::Null),
                    &[
                        "spec.e: Invalid value: \"null\": spec.e in body must be of type string: \"null\"",
                    ],
                ),
                (with("any", json!({"y": 1})), &[]),
                (
                    with("any", json!({})),
                    &[
                        "<nil>: Invalid value: \"\": \"spec.any\" must validate at least one schema (anyOf)",
                        "spec.any.x: Required value",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn depth_is_bounded() {
        let schema = crate::catalog()
            .definition_schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
            .unwrap();
        check(
            &schema,
            &[(json!({"labels": {}, "creationTimestamp": null}), &[])],
        );
        let recursive = Schema::from_crd(&json!({"type": "object", "properties": {
            "a": {"x-kubernetes-preserve-unknown-fields": true}}}))
        .unwrap();
        let mut deep = json!(1);
        for _ in 0..1000 {
            deep = json!([deep]);
        }
        check(&recursive, &[(json!({"a": deep}), &[])]);
    }
}
