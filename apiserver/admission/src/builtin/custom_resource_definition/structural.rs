//! Checks that the schema of a CustomResourceDefinition is structural: every value has a
//! type, and no construct that only validates values hides one
//! (`apiextensions-apiserver/pkg/apiserver/schema`, KEP-1693). Does no I/O; depth is bounded.

use machinery::FieldError;
use machinery::go_pattern::{PatternBudget, PatternError};
use serde_json::{Value, json};

use super::patterns::pattern_error;
use crate::unstructured::{entries, flag, get, has, index_path, items, text};

/// Bound on the nesting of a schema as JSON.
pub(super) const MAX_DEPTH: usize = 128;

const UNSUPPORTED: [&str; 7] = [
    "id",
    "$schema",
    "$ref",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
];

/// The position of a node in the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StructuralSchemaLevel {
    Root,
    Field,
    Item,
}

impl StructuralSchemaLevel {
    fn missing_type_message(self) -> &'static str {
        match self {
            Self::Root => "must not be empty at the root",
            Self::Field => "must not be empty for specified object fields",
            Self::Item => "must not be empty for specified array items",
        }
    }
}

/// Whether Kubernetes can read a schema as a structural one at all.
pub(super) fn is_convertible(schema: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH || UNSUPPORTED.iter().any(|name| !is_unset(&schema[*name])) {
        return false;
    }
    let child_is_convertible = |part: &Value| is_convertible(part, depth + 1);
    let lists = ["allOf", "anyOf", "oneOf"];
    !schema["items"].is_array()
        && schema["x-kubernetes-preserve-unknown-fields"] != false
        && ["items", "additionalProperties", "not"]
            .iter()
            .all(|name| !schema[*name].is_object() || child_is_convertible(&schema[*name]))
        && entries(schema, "/properties").all(|(_, part)| child_is_convertible(part))
        && lists.iter().all(|name| {
            items(schema, &format!("/{name}"))
                .iter()
                .all(child_is_convertible)
        })
}

/// The checks of a convertible schema.
pub(super) fn validate(
    path: &str,
    schema: &Value,
    patterns: Option<&PatternBudget>,
    errors: &mut Vec<FieldError>,
) {
    let mut check = StructuralCheck { patterns, errors };
    check.node(path, schema, StructuralSchemaLevel::Root, 0);
    check.complete_value_validation(schema, Some(schema), path, path, 0);
}

/// Whether Go's decoder leaves the field at its zero value.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

struct StructuralCheck<'e> {
    /// Bounds the patterns of the definition.
    patterns: Option<&'e PatternBudget>,
    errors: &'e mut Vec<FieldError>,
}

impl StructuralCheck<'_> {
    fn required(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::required(field, detail));
    }

    fn invalid(&mut self, field: String, value: &Value, detail: &str) {
        // Go's zero value of a type that is not set.
        let empty = json!("");
        let value = if value.is_null() { &empty } else { value };
        self.errors.push(FieldError::invalid(field, value, detail));
    }

    fn forbidden(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::forbidden(field, detail));
    }

    fn node(&mut self, path: &str, schema: &Value, level: StructuralSchemaLevel, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if text(schema, "/type") == "array" && !has(schema, "/items") {
            self.required(format!("{path}.items"), "must be specified");
        }
        if has(schema, "/items") {
            let child_path = format!("{path}.items");
            let item = get(schema, "/items");
            self.node(&child_path, item, StructuralSchemaLevel::Item, depth + 1);
        }
        for (name, field) in entries(schema, "/properties") {
            let child_path = format!("{path}.properties[{name}]");
            self.node(&child_path, field, StructuralSchemaLevel::Field, depth + 1);
        }
        let map_values = get(schema, "/additionalProperties");
        if !map_values.is_null() && level == StructuralSchemaLevel::Root {
            let field = format!("{path}.additionalProperties");
            self.forbidden(field, "must not be used at the root");
        }
        if map_values.is_object() {
            let child_path = format!("{path}.additionalProperties");
            self.node(
                &child_path,
                map_values,
                StructuralSchemaLevel::Field,
                depth + 1,
            );
        }
        self.int_or_string(path, schema);
        let skips_any_of = is_int_or_string(get(schema, "/anyOf"));
        let skips_all_of = is_int_or_string(get(schema, "/allOf/0/anyOf"));
        self.value_validation(path, schema, skips_any_of, skips_all_of, depth);
        self.types(path, schema, level);
        self.metadata_and_kind(path, schema, level);
    }

    fn int_or_string(&mut self, path: &str, schema: &Value) {
        if !flag(schema, "/x-kubernetes-int-or-string") {
            return;
        }
        for name in [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ] {
            if flag(schema, &format!("/{name}")) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.invalid(format!("{path}.{name}"), &true.into(), detail);
            }
        }
    }

    fn types(&mut self, path: &str, schema: &Value, level: StructuralSchemaLevel) {
        let name = text(schema, "/type");
        let embedded = flag(schema, "/x-kubernetes-embedded-resource");
        let either = flag(schema, "/x-kubernetes-int-or-string");
        let keeps = flag(schema, "/x-kubernetes-preserve-unknown-fields");
        let field = format!("{path}.type");
        if embedded && name != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match name {
                "" => self.required(field.clone(), detail),
                _ => self.invalid(field.clone(), &name.into(), detail),
            }
        } else if name.is_empty() && !either && !keeps {
            self.required(field.clone(), level.missing_type_message());
        }
        if embedded && has(schema, "/additionalProperties") {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(format!("{path}.additionalProperties"), detail);
        }
        if level == StructuralSchemaLevel::Root && !name.is_empty() && name != "object" {
            self.invalid(field, &name.into(), "must be object at the root");
        }
        if embedded && !keeps && entries(schema, "/properties").next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(format!("{path}.properties"), detail);
        }
    }

    /// The server defines the fields that every object has.
    fn metadata_and_kind(&mut self, path: &str, schema: &Value, level: StructuralSchemaLevel) {
        let root = level == StructuralSchemaLevel::Root;
        let is_resource = root || flag(schema, "/x-kubernetes-embedded-resource");
        for name in ["kind", "apiVersion"] {
            let field = get(schema, &format!("/properties/{name}"));
            if is_resource && field.is_object() && text(field, "/type") != "string" {
                let path = format!("{path}.properties[{name}].type");
                self.invalid(path, get(field, "/type"), "must be string");
            }
        }
        let metadata = get(schema, "/properties/metadata");
        if !metadata.is_object() {
            return;
        }
        let path = format!("{path}.properties[metadata]");
        if is_resource && text(metadata, "/type") != "object" {
            self.invalid(
                format!("{path}.type"),
                get(metadata, "/type"),
                "must be object",
            );
        }
        let only_names = entries(metadata, "/properties")
            .all(|(name, _)| matches!(name, "name" | "generateName"));
        let has_other_fields = entries(metadata, "").any(|(name, value)| match name {
            "type" | "default" => false,
            "properties" => !only_names,
            _ => !is_unset(value),
        });
        if root && has_other_fields {
            self.forbidden(path, "must not specify anything other than name and generateName, but metadata is implicitly specified");
        }
    }

    fn value_validation(
        &mut self,
        path: &str,
        schema: &Value,
        skips_any_of: bool,
        skips_all_of: bool,
        depth: usize,
    ) {
        if !skips_any_of {
            for (i, part) in items(schema, "/anyOf").iter().enumerate() {
                let path = index_path(&format!("{path}.anyOf"), i);
                self.nested(&path, part, false, depth + 1);
            }
        }
        for (i, part) in items(schema, "/allOf").iter().enumerate() {
            let path = index_path(&format!("{path}.allOf"), i);
            self.nested(&path, part, skips_all_of && i == 0, depth + 1);
        }
        for (i, part) in items(schema, "/oneOf").iter().enumerate() {
            let path = index_path(&format!("{path}.oneOf"), i);
            self.nested(&path, part, false, depth + 1);
        }
        if has(schema, "/not") {
            self.nested(
                &format!("{path}.not"),
                get(schema, "/not"),
                false,
                depth + 1,
            );
        }
        let pattern = text(schema, "/pattern");
        if let Some(detail) = pattern_error(pattern) {
            let detail = format!("must be a valid regular expression, but isn't: {detail}");
            self.invalid(format!("{path}.pattern"), &pattern.into(), &detail);
        } else if let Some(patterns) = self.patterns
            && let Err(detail @ (PatternError::TooLarge | PatternError::OverBudget)) =
                patterns.add(pattern)
        {
            self.invalid(
                format!("{path}.pattern"),
                &pattern.into(),
                &detail.to_string(),
            );
        }
    }

    /// A schema under a logic junctor validates values only.
    fn nested(&mut self, path: &str, schema: &Value, skips_any_of: bool, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        self.value_validation(path, schema, skips_any_of, false, depth);
        if has(schema, "/items") {
            let child_path = format!("{path}.items");
            self.nested(&child_path, get(schema, "/items"), false, depth + 1);
        }
        for (name, field) in entries(schema, "/properties") {
            let child_path = format!("{path}.properties[{name}]");
            self.nested(&child_path, field, false, depth + 1);
        }
        for (name, requirement) in [
            ("type", "empty"),
            ("additionalProperties", "undefined"),
            ("default", "undefined"),
            ("title", "empty"),
            ("description", "empty"),
            ("nullable", "false"),
            ("x-kubernetes-preserve-unknown-fields", "false"),
            ("x-kubernetes-embedded-resource", "false"),
            ("x-kubernetes-int-or-string", "false"),
            ("x-kubernetes-list-map-keys", "empty"),
            ("x-kubernetes-list-type", "undefined"),
            ("x-kubernetes-map-type", "undefined"),
            ("x-kubernetes-validations", "empty"),
        ] {
            let value = get(schema, &format!("/{name}"));
            let is_set = match name {
                "default" => !value.is_null(),
                "additionalProperties" => value.is_object() || *value == Value::Bool(true),
                _ => !is_unset(value),
            };
            if is_set {
                let detail = format!("must be {requirement} to be structural");
                self.forbidden(format!("{path}.{name}"), &detail);
            }
        }
        if has(schema, "/properties/metadata") {
            let detail = "must not be specified in a nested context";
            self.forbidden(format!("{path}.properties[metadata]"), detail);
        }
    }

    /// Requires what the junctors of `part` validate to be declared in the structural schema.
    fn complete_value_validation(
        &mut self,
        part: &Value,
        structural: Option<&Value>,
        path: &str,
        part_at: &str,
        depth: usize,
    ) {
        if has(part, "/not") {
            let child_path = format!("{part_at}.not");
            self.complete(get(part, "/not"), structural, path, &child_path, depth + 1);
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            for (i, part) in items(part, &format!("/{name}")).iter().enumerate() {
                let child_path = index_path(&format!("{part_at}.{name}"), i);
                self.complete(part, structural, path, &child_path, depth + 1);
            }
        }
    }

    fn complete(
        &mut self,
        part: &Value,
        structural: Option<&Value>,
        path: &str,
        part_at: &str,
        depth: usize,
    ) {
        if depth > MAX_DEPTH {
            return;
        }
        let Some(schema) = structural else {
            return self.required(
                path.to_owned(),
                &format!("because it is defined in {part_at}"),
            );
        };
        self.complete_value_validation(part, structural, path, part_at, depth);
        if has(part, "/items") {
            let item = Some(get(schema, "/items")).filter(|item| item.is_object());
            let (path, part_at) = (format!("{path}.items"), format!("{part_at}.items"));
            self.complete(get(part, "/items"), item, &path, &part_at, depth + 1);
        }
        let properties = get(schema, "/properties");
        for (name, field) in entries(part, "/properties") {
            let declared = properties.get(name);
            let path = format!("{path}.properties[{name}]");
            let part_at = format!("{part_at}.properties[{name}]");
            self.complete(field, declared, &path, &part_at, depth + 1);
        }
    }
}

fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}
