//! Validates a value against a schema with the error texts of the API server. Depth and
//! number of errors are bounded.

use std::collections::HashMap;

use machinery::FieldError;
use serde_json::{Map, Value};

use super::value_types::{check_type, has_no_integer_form, outside_number_format};
use super::value_validation::{check_enum, check_number, check_value_validation};
use super::{FieldPath, PathSegment, Schema};
use crate::model::{
    ListType, SchemaComposition, SchemaDefinitionArena, SchemaDefinitionId, SchemaNode, SchemaType,
};

/// How many errors are reported.
const MAX_ERRORS: usize = 100;
/// How deep `allOf`, `anyOf`, `oneOf` and `not` may be nested in each other.
const MAX_COMPOSITION_DEPTH: usize = 8;

/// The items of Kubernetes' keyed lists that may have the same key twice
/// (`pkg/apis/core/validation` does not look at them).
const TYPES_WITH_REPEATED_KEYS: [&str; 4] = [
    "io.k8s.api.core.v1.EnvVar",
    "io.k8s.api.core.v1.ContainerPort",
    "io.k8s.api.core.v1.HostAlias",
    "io.k8s.api.core.v1.LocalObjectReference",
];

impl Schema {
    /// Validates types and values.
    pub fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut validation = SchemaValidator::new(&self.definitions);
        validation.check(&self.root, value);
        validation.finish()
    }

    /// Validates the new value of an update, without the errors of parts that the update
    /// leaves unchanged: a schema may have become stricter since they were written (KEP-4008,
    /// `apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go`).
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut validation = SchemaValidator::new(&self.definitions);
        validation.check(&self.root, new);
        if validation.errors.is_empty() && validation.list_errors.is_empty() {
            return Vec::new();
        }
        let mut ratcheting = SchemaValidator::new(&self.definitions);
        ratcheting.validate_node(&self.root, new, Some(old), &mut FieldPath::default());
        if !ratcheting.list_errors.is_empty() {
            let mut before = SchemaValidator::new(&self.definitions);
            before.check(&self.root, old);
            if !before.list_errors.is_empty() {
                ratcheting.list_errors.clear();
            }
        }
        ratcheting.finish()
    }
}

pub(super) struct SchemaValidator<'a> {
    definitions: &'a SchemaDefinitionArena,
    pub(super) errors: Vec<FieldError>,
    /// Duplicate items of sets and keyed lists, which follow all other errors.
    list_errors: Vec<FieldError>,
    composition_depth: usize,
}

impl<'a> SchemaValidator<'a> {
    pub(super) fn new(definitions: &'a SchemaDefinitionArena) -> Self {
        Self {
            definitions,
            errors: Vec::new(),
            list_errors: Vec::new(),
            composition_depth: 0,
        }
    }

    fn finish(mut self) -> Vec<FieldError> {
        self.errors.append(&mut self.list_errors);
        self.errors
    }

    pub(super) fn check(&mut self, root: &SchemaNode, value: &Value) {
        self.validate_node(root, value, None, &mut FieldPath::default());
    }

    /// Validates a value. With the `old` value that it replaces and equals, its errors do not
    /// count.
    fn validate_node<'v>(
        &mut self,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
        let before = self.errors.len();
        self.validate_value(node, value, old, path);
        if self.errors.len() > before && old.is_some_and(|old| self.is_same(node, value, old)) {
            self.errors.truncate(before);
        }
    }

    /// Whether two values are equal; the order of keyed items does not matter.
    fn is_same(&self, node: &SchemaNode, value: &Value, old: &Value) -> bool {
        match (&node.list, value, old) {
            (ListType::Map(_), Value::Array(items), Value::Array(old_items)) => {
                let old_items_by_key = self.items_by_key(node, Some(old));
                items.len() == old_items.len()
                    && items.iter().all(|item| {
                        let key = self.item_key(node, item);
                        old_items_by_key.get(&key).is_some_and(|old| *old == item)
                    })
            }
            _ => value == old,
        }
    }

    fn validate_value<'v>(
        &mut self,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
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
                self.validate_mistyped(node, value, old, path);
            }
            return;
        }
        if let Some(rules) = &node.validation {
            check_value_validation(rules, value, path, &mut self.errors);
            if let Some(logic) = &rules.composition {
                self.validate_composition(logic, value, old, path);
            }
        }
        self.validate_structure(node, value, old, path);
    }

    /// Validates the fields and items of a value.
    fn validate_structure<'v>(
        &mut self,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
        let old_field = |key: &str| old.and_then(|old| old.get(key));
        let node = node.for_value(value);
        match (&node.ty, value) {
            (SchemaType::Ref(id), Value::Object(map)) => {
                self.validate_fields(*id, map, old, path);
            }
            (SchemaType::Map(of), Value::Object(map)) => {
                for (key, child) in map {
                    let old = old_field(key);
                    self.validate_child(PathSegment::MapKey(key), of, child, old, path);
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                let old_items = self.items_by_key(node, old);
                for (index, child) in items.iter().enumerate() {
                    let old = match old_items.is_empty() {
                        true => None,
                        false => old_items.get(&self.item_key(node, child)).copied(),
                    };
                    self.validate_child(PathSegment::Index(index), of, child, old, path);
                }
                self.check_unique_items(node, items, path);
            }
            _ => {}
        }
    }

    /// The errors that Kubernetes reports beside the wrong type of a value.
    fn validate_mistyped<'v>(
        &mut self,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
        if has_no_integer_form(node, value) {
            self.errors.push(outside_number_format(node, path));
        }
        if node.untyped.is_some() {
            self.validate_structure(node, value, old, path);
        }
        let needs_number = matches!(
            node.ty,
            SchemaType::Int32 | SchemaType::Int64 | SchemaType::Number
        );
        let Some(rules) = &node.validation else {
            return;
        };
        check_enum(rules, value, path, &mut self.errors);
        if needs_number {
            check_number(rules, value, path, &mut self.errors);
        }
        if let Some(logic) = &rules.composition {
            self.validate_composition(logic, value, old, path);
        }
    }

    fn validate_child<'v>(
        &mut self,
        segment: PathSegment<'v>,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
        path.segments.push(segment);
        self.validate_node(node, value, old, path);
        path.segments.pop();
    }

    /// The items of a keyed list by their keys; empty for other lists, whose items do not
    /// correspond to items of the list before.
    fn items_by_key<'o>(
        &self,
        node: &SchemaNode,
        list: Option<&'o Value>,
    ) -> HashMap<String, &'o Value> {
        match (&node.list, list) {
            (ListType::Map(_), Some(Value::Array(items))) => items
                .iter()
                .map(|item| (self.item_key(node, item), item))
                .collect(),
            _ => HashMap::new(),
        }
    }

    fn item_key(&self, node: &SchemaNode, item: &Value) -> String {
        match &node.list {
            ListType::Map(keys) => self.list_map_key(node, item, keys).to_string(),
            _ => String::new(),
        }
    }

    fn validate_fields<'v>(
        &mut self,
        id: SchemaDefinitionId,
        map: &'v Map<String, Value>,
        old: Option<&Value>,
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
                    let old = old.and_then(|old| old.get(key));
                    self.validate_child(PathSegment::Key(key), &field.node, value, old, path);
                }
            }
        }
    }

    /// Sets and keyed lists must not contain duplicates.
    fn check_unique_items(&mut self, node: &SchemaNode, items: &[Value], path: &FieldPath<'_>) {
        let keys: Option<&[Box<str>]> = match &node.list {
            ListType::Set => None,
            ListType::Map(_) if self.may_repeat_keys(node) => return,
            ListType::Map(keys) => Some(keys),
            _ if node.validation.as_ref().is_some_and(|r| r.unique_items) => None,
            _ => return,
        };
        if keys.is_some() && self.check_keyed_items(items, path) {
            return;
        }
        let mut visited: HashMap<String, u32> = HashMap::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let identity = match keys {
                None => item.clone(),
                Some(keys) => self.list_map_key(node, item, keys),
            };
            let count = visited.entry(identity.to_string()).or_insert(0);
            *count += 1;
            // One error for each value, however often it is repeated.
            if *count == 2 && self.list_errors.len() + self.errors.len() < MAX_ERRORS {
                let field = format!("{}[{index}]", path.render_with_map_keys());
                let error = FieldError::duplicate(field, &identity);
                match node.list {
                    ListType::Set | ListType::Map(_) => self.list_errors.push(error),
                    _ => self.errors.push(error),
                }
            }
        }
    }

    /// Whether Kubernetes' own validation of the list's items leaves repeated keys alone: there
    /// the keys serve merges only.
    fn may_repeat_keys(&self, node: &SchemaNode) -> bool {
        let SchemaType::Array(item) = &node.ty else {
            return false;
        };
        match item.ty {
            SchemaType::Ref(id) => {
                let name: &str = &self.definitions.get(id).name;
                TYPES_WITH_REPEATED_KEYS.contains(&name)
            }
            _ => false,
        }
    }

    /// Reports the first item of a keyed list that is no object and has no keys therefore;
    /// whether there is one.
    fn check_keyed_items(&mut self, items: &[Value], path: &FieldPath<'_>) -> bool {
        let mut items = items.iter().enumerate();
        let Some((index, item)) = items.find(|(_, item)| !item.is_object() && !item.is_null())
        else {
            return false;
        };
        let field = format!("{}[{index}]", path.render_with_map_keys());
        let detail = "must be an object for an array of list-type map";
        self.list_errors
            .push(FieldError::invalid(field, item, detail));
        true
    }

    fn list_map_key(&self, node: &SchemaNode, item: &Value, keys: &[Box<str>]) -> Value {
        let definition = match &node.ty {
            SchemaType::Array(of) => match of.ty {
                SchemaType::Ref(id) => Some(self.definitions.get(id)),
                _ => None,
            },
            _ => None,
        };
        let default = |key: &str| definition?.field(key)?.node.default.as_deref();
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
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) {
        if self.composition_depth >= MAX_COMPOSITION_DEPTH {
            return;
        }
        let name = format!("{:?}", path.render());
        self.validate_any_of(&logic.any_of, &name, (value, old), path);
        self.validate_one_of(&logic.one_of, &name, (value, old), path);
        self.validate_all_of(&logic.all_of, &name, (value, old), path);
        if let Some(node) = &logic.not
            && self.validate_subschema(node, value, old, path).is_empty()
        {
            self.push_composition(format!("{name} must not validate the schema (not)"));
        }
    }

    fn validate_any_of<'v>(
        &mut self,
        nodes: &[SchemaNode],
        name: &str,
        (value, old): (&'v Value, Option<&Value>),
        path: &mut FieldPath<'v>,
    ) {
        let mut first_errors = None;
        for node in nodes {
            let errors = self.validate_subschema(node, value, old, path);
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
        (value, old): (&'v Value, Option<&Value>),
        path: &mut FieldPath<'v>,
    ) {
        let mut errors = nodes
            .iter()
            .map(|n| self.validate_subschema(n, value, old, path));
        let Some(first_errors) = errors.next() else {
            return;
        };
        let other_matches = errors.filter(Vec::is_empty).count();
        let text = format!("{name} must validate one and only one schema (oneOf).");
        match other_matches + usize::from(first_errors.is_empty()) {
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
        (value, old): (&'v Value, Option<&Value>),
        path: &mut FieldPath<'v>,
    ) {
        let mut failed = 0;
        for node in nodes {
            let errors = self.validate_subschema(node, value, old, path);
            failed += usize::from(!errors.is_empty());
            self.errors.extend(errors);
        }
        if failed > 0 {
            let suffix = if failed == nodes.len() {
                ". None validated"
            } else {
                ""
            };
            let text = format!("{name} must validate all the schemas (allOf){suffix}");
            self.push_composition(text);
        }
    }

    /// Kubernetes names no field for these.
    fn push_composition(&mut self, text: String) {
        let error = FieldError::invalid("<nil>", &Value::from(""), text);
        self.errors.push(error);
    }

    /// Validates the value against another schema and returns its errors.
    fn validate_subschema<'v>(
        &self,
        node: &SchemaNode,
        value: &'v Value,
        old: Option<&Value>,
        path: &mut FieldPath<'v>,
    ) -> Vec<FieldError> {
        let mut nested = SchemaValidator::new(self.definitions);
        nested.composition_depth = self.composition_depth + 1;
        nested.validate_node(node, value, old, path);
        nested.errors
    }
}

/// Whether this is one of Kubernetes' own Go types. Their empty strings count as unset and
/// are left to the validation of the kind; Karmada's types are CRDs with a strict schema.
fn is_kubernetes_type(definition: &str) -> bool {
    definition.starts_with("io.k8s.")
}
