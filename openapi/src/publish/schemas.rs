//! Generates the schemas of kinds and of all types they refer to, with the `x-kubernetes-*`
//! extensions that clients read (`kube-openapi`, and for custom kinds
//! `apiextensions-apiserver/pkg/controller/openapi/builder`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Form, Resource};
use crate::catalog::catalog;
use crate::model::{Definition, Definitions, Kind, ListType, Logic, Node, Rules, Type};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// The types of `metav1` that all documents contain.
const ALWAYS: [&str; 3] = ["DeleteOptions", "ListMeta", "Status"];
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The name of the schema of a kind.
pub(super) fn name_of(kind: &Kind) -> String {
    if !kind.definition.is_empty() {
        return kind.definition.clone();
    }
    let mut labels: Vec<&str> = kind.gvk.group.rsplit('.').collect();
    labels.extend([&*kind.gvk.version, &*kind.gvk.kind]);
    labels.join(".")
}

/// The name of the schema of a kind's lists.
pub(super) fn list_name_of(kind: &Kind) -> String {
    let name = name_of(kind);
    let package = name.rsplit_once('.').map_or("", |(package, _)| package);
    format!("{package}.{}", kind.list_kind)
}

/// The schemas of the kinds and of all types they refer to.
pub(super) fn schemas(resources: &[Resource<'_>], form: Form) -> Map<String, Value> {
    let mut writer = Writer {
        form,
        out: Map::new(),
        wanted: BTreeSet::new(),
    };
    for resource in resources {
        writer.kind(resource);
    }
    writer.named(PATCH, patch());
    writer
        .wanted
        .extend(ALWAYS.map(|name| format!("{META}{name}")));
    if resources.iter().any(|r| r.kind.scale.is_some()) {
        writer.wanted.insert(SCALE.to_owned());
    }
    writer.drain();
    for name in ["Status", "DeleteOptions"] {
        if let Some(schema) = writer.out.get_mut(&format!("{META}{name}")) {
            schema["x-kubernetes-group-version-kind"] =
                json!([{ "group": "", "version": "v1", "kind": name }]);
        }
    }
    if let Some(scale) = writer.out.get_mut(SCALE) {
        scale["x-kubernetes-group-version-kind"] =
            json!([{ "group": "autoscaling", "version": "v1", "kind": "Scale" }]);
    }
    writer.out
}

fn patch() -> Value {
    json!({
        "type": "object",
        "description": "Patch is provided to give a concrete type for Kubernetes PATCH requests.",
    })
}

/// Builds schemas and collects the names of the types they refer to.
struct Writer {
    form: Form,
    out: Map<String, Value>,
    /// Names of types in the catalog whose schemas are still to be built.
    wanted: BTreeSet<String>,
}

impl Writer {
    fn named(&mut self, name: &str, schema: Value) {
        self.out.insert(name.to_owned(), schema);
    }

    fn kind(&mut self, resource: &Resource<'_>) {
        let kind = resource.kind;
        let name = name_of(kind);
        let gvk = json!({
            "group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind,
        });
        // Several kinds may have the same type.
        match self.out.get_mut(&name) {
            Some(known) => {
                if let Some(Value::Array(gvks)) = known.get_mut("x-kubernetes-group-version-kind") {
                    gvks.push(gvk);
                }
            }
            None => {
                let cursor = resource.schema.root();
                let mut schema = match cursor.definition() {
                    Some(definition) => self.object(cursor.definitions(), definition),
                    None => self.node(cursor.definitions(), cursor.node(), false),
                };
                describe(&mut schema, &cursor.node().description);
                schema["x-kubernetes-group-version-kind"] = json!([gvk]);
                self.named(&name, schema);
            }
        }
        if kind.allows("list") {
            let list = self.list(kind, &name);
            self.named(&list_name_of(kind), list);
        }
    }

    fn list(&self, kind: &Kind, name: &str) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let item = self.form.reference(name);
        let meta = self.form.reference(&format!("{META}ListMeta"));
        json!({
            "type": "object",
            "description": format!("{} is a list of {}", kind.list_kind, kind.gvk.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": text("Group and version of the schema that this representation follows."),
                "kind": text("Name of the type of this object, in CamelCase."),
                "items": { "type": "array", "description": "The objects.", "items": item },
                "metadata": self.referring(meta, "Standard metadata of a list.", None),
            },
            "x-kubernetes-group-version-kind": [{
                "group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.list_kind,
            }],
        })
    }

    /// Builds the schemas of all pending types.
    fn drain(&mut self) {
        while let Some(name) = self.wanted.pop_first() {
            if self.out.contains_key(&name) {
                continue;
            }
            if let Some(definition) = catalog().definition(&name) {
                let mut schema = self.object(catalog().definitions(), definition);
                // `kubectl explain` would print it after the description of the field, which
                // explains the type already; Karmada's own schemas have only that.
                if let Some(schema) = schema.as_object_mut() {
                    schema.remove("description");
                }
                self.named(&name, schema);
            } else if let Some(schema) = self.scalar(&name) {
                self.named(&name, schema);
            }
        }
    }

    /// The schema of a scalar that Kubernetes publishes under a name.
    fn scalar(&self, name: &str) -> Option<Value> {
        Some(match name.rsplit('.').next()? {
            "Time" | "MicroTime" => json!({ "type": "string", "format": "date-time" }),
            "Duration" => {
                json!({ "type": "string", "description": "A duration in Go's format, such as 1h30m." })
            }
            "Quantity" if self.form == Form::V3 => json!({
                "description": QUANTITY,
                "oneOf": [{ "type": "string" }, { "type": "number" }],
            }),
            "Quantity" => json!({ "type": "string", "description": QUANTITY }),
            "IntOrString" if self.form == Form::V3 => json!({
                "format": "int-or-string",
                "description": INT_OR_STRING,
                "oneOf": [{ "type": "integer" }, { "type": "string" }],
            }),
            "IntOrString" => json!({
                "type": "string", "format": "int-or-string", "description": INT_OR_STRING,
            }),
            _ => return None,
        })
    }

    fn object(&mut self, definitions: &Definitions, definition: &Definition) -> Value {
        let mut schema = json!({ "type": "object" });
        describe(&mut schema, &definition.description);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in &definition.fields {
            let mut property = self.node(definitions, &field.node, definition.native);
            if let Some(reference) = property.get("$ref").cloned() {
                let reference = json!({ "$ref": reference });
                let default = field.node.default.as_ref();
                let mut described = self.referring(reference, &field.description, default);
                marks(&mut described, &field.node);
                property = described;
            } else {
                describe(&mut property, &field.description);
            }
            if field.required {
                required.push(Value::from(&*field.name));
            }
            properties.insert(field.name.to_string(), property);
        }
        if !properties.is_empty() {
            schema["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            schema["required"] = Value::Array(required);
        }
        if definition.preserve_unknown {
            schema["x-kubernetes-preserve-unknown-fields"] = Value::Bool(true);
        }
        if definition.embedded {
            schema["x-kubernetes-embedded-resource"] = Value::Bool(true);
        }
        if definition.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        schema
    }

    /// A reference with a description and a default; in version 3 a reference has siblings
    /// only within `allOf`.
    fn referring(&self, reference: Value, description: &str, default: Option<&Value>) -> Value {
        let default = default.filter(|_| self.form == Form::V3);
        let mut schema = match self.form {
            Form::V3 if !description.is_empty() || default.is_some() => {
                json!({ "allOf": [reference] })
            }
            _ => reference,
        };
        describe(&mut schema, description);
        if let Some(default) = default {
            schema["default"] = default.clone();
        }
        schema
    }

    fn refer(&mut self, name: &str) -> Value {
        self.wanted.insert(name.to_owned());
        self.form.reference(name)
    }

    /// The schema of a node; a reference has no further keys.
    fn node(&mut self, definitions: &Definitions, node: &Node, native: bool) -> Value {
        let mut schema = match &node.ty {
            Type::Ref(id) => {
                let definition = definitions.get(*id);
                if definition.name.is_empty() {
                    self.object(definitions, definition)
                } else {
                    return self.refer(&definition.name);
                }
            }
            Type::Array(item) => {
                let items = self.node(definitions, item, native);
                json!({ "type": "array", "items": items })
            }
            Type::Map(value) => {
                let values = self.node(definitions, value, native);
                json!({ "type": "object", "additionalProperties": values })
            }
            ty => match self.plain(ty, native) {
                reference if reference.get("$ref").is_some() => return reference,
                schema => schema,
            },
        };
        marks(&mut schema, node);
        describe(&mut schema, &node.description);
        if !node.format.is_empty() {
            schema["format"] = (*node.format).into();
        }
        if let Some(rules) = &node.rules {
            constrain(&mut schema, rules);
            if let (Form::V3, Some(logic)) = (self.form, &rules.logic) {
                self.logic(definitions, &mut schema, logic);
            }
        }
        if self.form == Form::V3 {
            if let Some(default) = &node.default {
                schema["default"] = default.clone();
            }
            if node.nullable {
                schema["nullable"] = Value::Bool(true);
            }
        }
        schema
    }

    fn plain(&mut self, ty: &Type, native: bool) -> Value {
        match ty {
            Type::Int32 => json!({ "type": "integer", "format": "int32" }),
            Type::Int64 => json!({ "type": "integer", "format": "int64" }),
            Type::Bool => json!({ "type": "boolean" }),
            Type::Number => json!({ "type": "number" }),
            Type::Bytes => json!({ "type": "string", "format": "byte" }),
            Type::Quantity => self.refer("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            Type::IntOrString if native => {
                self.refer("io.k8s.apimachinery.pkg.util.intstr.IntOrString")
            }
            Type::IntOrString => json!({ "x-kubernetes-int-or-string": true }),
            Type::Time => self.refer("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
            Type::MicroTime => self.refer("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
            Type::Duration => self.refer("io.k8s.apimachinery.pkg.apis.meta.v1.Duration"),
            Type::Object => json!({
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }),
            Type::Any => json!({ "x-kubernetes-preserve-unknown-fields": true }),
            _ => json!({ "type": "string" }),
        }
    }

    fn logic(&mut self, definitions: &Definitions, schema: &mut Value, logic: &Logic) {
        for (key, nodes) in [
            ("allOf", &logic.all_of),
            ("anyOf", &logic.any_of),
            ("oneOf", &logic.one_of),
        ] {
            if !nodes.is_empty() {
                schema[key] = nodes
                    .iter()
                    .map(|n| self.condition(definitions, n))
                    .collect();
            }
        }
        if let Some(node) = &logic.not {
            schema["not"] = self.condition(definitions, node);
        }
        if let Some(id) = logic.loose {
            let fields = self.object(definitions, definitions.get(id));
            for key in ["properties", "required"] {
                if let Some(value) = fields.get(key) {
                    schema[key] = value.clone();
                }
            }
        }
    }

    /// A schema for validation only, which preserves no fields.
    fn condition(&mut self, definitions: &Definitions, node: &Node) -> Value {
        let mut schema = self.node(definitions, node, false);
        if let (Type::Any, Value::Object(map)) = (&node.ty, &mut schema) {
            map.remove("x-kubernetes-preserve-unknown-fields");
        }
        schema
    }
}

const QUANTITY: &str = "A decimal number with an optional suffix: n, u, m, k, M, G, T, P, E, \
    Ki, Mi, Gi, Ti, Pi, Ei, or an exponent.";
const INT_OR_STRING: &str = "An integer or a string, such as a port name or a percentage.";

fn describe(schema: &mut Value, description: &str) {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
}

/// Adds the extensions for merging lists and maps.
fn marks(schema: &mut Value, node: &Node) {
    match &node.list {
        ListType::Unset => {}
        ListType::Atomic => schema["x-kubernetes-list-type"] = "atomic".into(),
        ListType::Set => schema["x-kubernetes-list-type"] = "set".into(),
        ListType::Map(keys) => {
            schema["x-kubernetes-list-type"] = "map".into();
            schema["x-kubernetes-list-map-keys"] = keys.iter().map(|k| Value::from(&**k)).collect();
        }
    }
    if node.atomic_map {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let patch = &node.patch;
    let strategies: Vec<&str> = [
        (patch.merge, "merge"),
        (patch.replace, "replace"),
        (patch.retain_keys, "retainKeys"),
    ]
    .into_iter()
    .filter_map(|(declared, name)| declared.then_some(name))
    .collect();
    if !strategies.is_empty() {
        schema["x-kubernetes-patch-strategy"] = strategies.join(",").into();
    }
    if !patch.merge_key.is_empty() {
        schema["x-kubernetes-patch-merge-key"] = (*patch.merge_key).into();
    }
}

fn constrain(schema: &mut Value, rules: &Rules) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            schema[key] = value;
        }
    };
    let flag = |set: bool| set.then_some(Value::Bool(true));
    put(
        "enum",
        (!rules.allowed.is_empty()).then(|| rules.allowed.clone().into()),
    );
    put("minimum", rules.minimum.map(number));
    put("maximum", rules.maximum.map(number));
    put("exclusiveMinimum", flag(rules.exclusive_minimum));
    put("exclusiveMaximum", flag(rules.exclusive_maximum));
    put("multipleOf", rules.multiple_of.map(number));
    put("minLength", rules.min_length.map(Value::from));
    put("maxLength", rules.max_length.map(Value::from));
    put("minItems", rules.min_items.map(Value::from));
    put("maxItems", rules.max_items.map(Value::from));
    put("minProperties", rules.min_properties.map(Value::from));
    put("maxProperties", rules.max_properties.map(Value::from));
    put("uniqueItems", flag(rules.unique_items));
    put(
        "pattern",
        rules.pattern.as_ref().map(|p| Value::from(&*p.source)),
    );
}

/// A JSON number; whole numbers have no fraction.
fn number(n: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked: whole, and small enough to be exact"
    )]
    if n.fract() == 0.0 && n.abs() < 9e15 {
        return Value::from(n as i64);
    }
    Value::from(n)
}
