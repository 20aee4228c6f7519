//! Types as JSON schemas.
//!
//! Enters: kinds. Leaves: named schemas of all that they reach, with the
//! `x-kubernetes-*` marks that clients read (`kube-openapi`, and for custom kinds
//! `apiextensions-apiserver/pkg/controller/openapi/builder`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Form, Resource};
use crate::catalog::catalog;
use crate::model::{Definition, Definitions, Kind, ListType, Logic, Node, Rules, Type};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// Types of requests and replies that every operation names.
const ALWAYS: [&str; 3] = ["DeleteOptions", "ListMeta", "Status"];
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The name under which the type of a kind is published.
pub(super) fn name_of(kind: &Kind) -> String {
    if !kind.definition.is_empty() {
        return kind.definition.clone();
    }
    let mut labels: Vec<&str> = kind.gvk.group.rsplit('.').collect();
    labels.extend([&*kind.gvk.version, &*kind.gvk.kind]);
    labels.join(".")
}

/// The name under which lists of a kind are published.
pub(super) fn list_name_of(kind: &Kind) -> String {
    let name = name_of(kind);
    let package = name.rsplit_once('.').map_or("", |(package, _)| package);
    format!("{package}.{}", kind.list_kind)
}

/// All named schemas that the kinds reach.
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
        "description": "A patch of an object, whose form the content type tells.",
    })
}

/// Collects schemas, and the names of those that are referred to.
struct Writer {
    form: Form,
    out: Map<String, Value>,
    /// Names of the catalog.
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
        // One type may be that of several kinds.
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

    /// Writes what is referred to and not yet there.
    fn drain(&mut self) {
        while let Some(name) = self.wanted.pop_first() {
            if self.out.contains_key(&name) {
                continue;
            }
            if let Some(definition) = catalog().definition(&name) {
                let mut schema = self.object(catalog().definitions(), definition);
                // `kubectl explain` prints it after the description of the field, which
                // says what the type is for; Karmada's own schemas have that alone.
                if let Some(schema) = schema.as_object_mut() {
                    schema.remove("description");
                }
                self.named(&name, schema);
            } else if let Some(schema) = self.scalar(&name) {
                self.named(&name, schema);
            }
        }
    }

    /// Types that Kubernetes publishes under a name although they are scalars.
    fn scalar(&self, name: &str) -> Option<Value> {
        Some(match name.rsplit('.').next()? {
            "Time" | "MicroTime" => json!({ "type": "string", "format": "date-time" }),
            "Duration" => {
                json!({ "type": "string", "description": "A length of time as Go writes it, 1h30m." })
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
                let mut whole = self.referring(reference, &field.description, default);
                marks(&mut whole, &field.node);
                property = whole;
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

    /// A reference with a description beside it, which version 3 allows only
    /// through `allOf`.
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

    /// A node as a schema; one that is a reference is that alone.
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

    /// A schema that only judges: it keeps nothing.
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
const INT_OR_STRING: &str = "A number, or a text such as a name or a percentage.";

fn describe(schema: &mut Value, description: &str) {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
}

/// How lists and maps are merged.
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
    .filter_map(|(said, name)| said.then_some(name))
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
    let flag = |said: bool| said.then_some(Value::Bool(true));
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

/// Whole numbers without a fraction.
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
