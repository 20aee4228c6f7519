//! Generates the schemas of kinds and of all types they refer to, with the `x-kubernetes-*`
//! extensions that clients read (`kube-openapi`, and for custom kinds
//! `apiextensions-apiserver/pkg/controller/openapi/builder`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{OpenApiVersion, PublishedResource};
use crate::catalog::catalog;
use crate::model::{
    KindInfo, ListType, SchemaComposition, SchemaDefinition, SchemaDefinitionArena, SchemaNode,
    SchemaType, UntypedSchema, ValueValidation,
};

const META_V1_PACKAGE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const KARMADA_PACKAGE: &str = "io.karmada.";
const FLOTILLA_PACKAGE: &str = "io.flotilla.";
/// The kinds of Karmada's aggregated API server have no CRD.
const CLUSTER_PACKAGE: &str = "io.karmada.cluster.";
/// The pattern of quantities in generated CRDs.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// The types of `metav1` that all documents contain.
const COMMON_META_TYPES: [&str; 3] = ["DeleteOptions", "ListMeta", "Status"];
pub(super) const PATCH_TYPE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const SCALE_TYPE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The name of the schema of a kind.
pub(super) fn schema_name(kind: &KindInfo) -> String {
    if !kind.definition.is_empty() {
        return kind.definition.clone();
    }
    let mut labels: Vec<&str> = kind.gvk.group.rsplit('.').collect();
    labels.extend([&*kind.gvk.version, &*kind.gvk.kind]);
    labels.join(".")
}

/// The name of the schema of a kind's lists.
pub(super) fn list_schema_name(kind: &KindInfo) -> String {
    let name = schema_name(kind);
    let package = name.rsplit_once('.').map_or("", |(package, _)| package);
    format!("{package}.{}", kind.list_kind)
}

/// The schemas of the kinds and of all types they refer to.
pub(super) fn schemas(
    resources: &[PublishedResource<'_>],
    form: OpenApiVersion,
) -> Map<String, Value> {
    let mut writer = SchemasBuilder {
        openapi_version: form,
        out: Map::new(),
        pending: BTreeSet::new(),
    };
    for resource in resources {
        writer.add_kind(resource);
    }
    writer.insert(PATCH_TYPE, patch_schema());
    writer
        .pending
        .extend(COMMON_META_TYPES.map(|name| format!("{META_V1_PACKAGE}{name}")));
    if resources.iter().any(|r| r.kind.scale.is_some()) {
        writer.pending.insert(SCALE_TYPE.to_owned());
    }
    writer.add_pending();
    for name in ["Status", "DeleteOptions"] {
        if let Some(schema) = writer.out.get_mut(&format!("{META_V1_PACKAGE}{name}")) {
            schema["x-kubernetes-group-version-kind"] =
                json!([{ "group": "", "version": "v1", "kind": name }]);
        }
    }
    if let Some(scale) = writer.out.get_mut(SCALE_TYPE) {
        scale["x-kubernetes-group-version-kind"] =
            json!([{ "group": "autoscaling", "version": "v1", "kind": "Scale" }]);
    }
    writer.out
}

fn patch_schema() -> Value {
    json!({
        "type": "object",
        "description": "Patch is provided to give a concrete type for Kubernetes PATCH requests.",
    })
}

/// The type of a built-in kind's field that may be any object. Kubernetes publishes these
/// types under their names.
fn free_form_type(definition: &str, field: &str) -> Option<&'static str> {
    match (definition, field) {
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", "fieldsV1") => {
            Some("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1")
        }
        ("io.k8s.api.apps.v1.ControllerRevision", "data") => {
            Some("io.k8s.apimachinery.pkg.runtime.RawExtension")
        }
        _ => None,
    }
}

/// How the scalars of a definition are published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScalarForm {
    /// As references to named scalars.
    GoType,
    /// Written out, as in the CRDs that Karmada installs.
    KarmadaCrd,
    CustomResource,
}

impl ScalarForm {
    fn of(definition: &SchemaDefinition) -> Self {
        let name = &*definition.name;
        if !definition.native {
            Self::CustomResource
        } else if name.starts_with(FLOTILLA_PACKAGE)
            || name.starts_with(KARMADA_PACKAGE) && !name.starts_with(CLUSTER_PACKAGE)
        {
            Self::KarmadaCrd
        } else {
            Self::GoType
        }
    }
}

/// Builds schemas and collects the names of the types they refer to.
struct SchemasBuilder {
    openapi_version: OpenApiVersion,
    out: Map<String, Value>,
    /// Names of types in the catalog whose schemas are still to be built.
    pending: BTreeSet<String>,
}

impl SchemasBuilder {
    fn insert(&mut self, name: &str, schema: Value) {
        self.out.insert(name.to_owned(), schema);
    }

    fn add_kind(&mut self, resource: &PublishedResource<'_>) {
        let kind = resource.kind;
        let name = schema_name(kind);
        let gvk = json!({
            "group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind,
        });
        // Several kinds may have the same type.
        match self.out.get_mut(&name) {
            Some(existing) => {
                if let Some(Value::Array(gvks)) =
                    existing.get_mut("x-kubernetes-group-version-kind")
                {
                    gvks.push(gvk);
                }
            }
            None => {
                let cursor = resource.schema.root();
                let mut schema = match cursor.definition() {
                    Some(definition) => self.object_schema(cursor.definitions(), definition),
                    None => {
                        let form = ScalarForm::CustomResource;
                        self.node_schema(cursor.definitions(), cursor.node(), form)
                    }
                };
                set_description(&mut schema, &cursor.node().description);
                self.add_cel_rules(&mut schema, cursor.node());
                if self.is_reduced(kind.definition.is_empty()) && preserves_unknown_fields(&schema)
                {
                    schema = json!({ "type": "object" });
                }
                schema["x-kubernetes-group-version-kind"] = json!([gvk]);
                self.insert(&name, schema);
            }
        }
        if kind.supports_verb("list") {
            let list = self.list_schema(kind, &name);
            self.insert(&list_schema_name(kind), list);
        }
    }

    fn list_schema(&self, kind: &KindInfo, name: &str) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let item = self.openapi_version.reference(name);
        let meta = self
            .openapi_version
            .reference(&format!("{META_V1_PACKAGE}ListMeta"));
        json!({
            "type": "object",
            "description": format!("{} is a list of {}", kind.list_kind, kind.gvk.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": text("Group and version of the schema that this representation follows."),
                "kind": text("Name of the type of this object, in CamelCase."),
                "items": { "type": "array", "description": "The objects.", "items": item },
                "metadata": self.described_reference(meta, "Standard metadata of a list.", None),
            },
            "x-kubernetes-group-version-kind": [{
                "group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.list_kind,
            }],
        })
    }

    /// Builds the schemas of all pending types.
    fn add_pending(&mut self) {
        while let Some(name) = self.pending.pop_first() {
            if self.out.contains_key(&name) {
                continue;
            }
            if let Some(definition) = catalog().definition(&name) {
                let mut schema = self.object_schema(catalog().definitions(), definition);
                // `kubectl explain` would print it after the description of the field, which
                // explains the type already; Karmada's own schemas have only that.
                if let Some(schema) = schema.as_object_mut() {
                    schema.remove("description");
                }
                self.insert(&name, schema);
            } else if let Some(schema) = self.named_scalar_schema(&name) {
                self.insert(&name, schema);
            }
        }
    }

    /// The schema of a scalar that Kubernetes publishes under a name.
    fn named_scalar_schema(&self, name: &str) -> Option<Value> {
        Some(match name.rsplit('.').next()? {
            "FieldsV1" | "RawExtension" => json!({ "type": "object" }),
            "Time" | "MicroTime" => json!({ "type": "string", "format": "date-time" }),
            "Duration" => {
                json!({ "type": "string", "description": "A duration in Go's format, such as 1h30m." })
            }
            "Quantity" if self.openapi_version == OpenApiVersion::V3 => json!({
                "description": QUANTITY_DESCRIPTION,
                "oneOf": [{ "type": "string" }, { "type": "number" }],
            }),
            "Quantity" => json!({ "type": "string", "description": QUANTITY_DESCRIPTION }),
            "IntOrString" if self.openapi_version == OpenApiVersion::V3 => json!({
                "format": "int-or-string",
                "description": INT_OR_STRING_DESCRIPTION,
                "oneOf": [{ "type": "integer" }, { "type": "string" }],
            }),
            "IntOrString" => json!({
                "type": "string", "format": "int-or-string", "description": INT_OR_STRING_DESCRIPTION,
            }),
            _ => return None,
        })
    }

    fn object_schema(
        &mut self,
        definitions: &SchemaDefinitionArena,
        definition: &SchemaDefinition,
    ) -> Value {
        let mut schema = json!({ "type": "object" });
        set_description(&mut schema, &definition.description);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in &definition.fields {
            let mut property = match free_form_type(&definition.name, &field.name) {
                Some(name) => self.add_reference(name),
                None => self.node_schema(definitions, &field.node, ScalarForm::of(definition)),
            };
            if let Some(reference) = property.get("$ref").cloned() {
                let reference = json!({ "$ref": reference });
                let default = field.node.default.as_deref();
                let mut described =
                    self.described_reference(reference, &field.description, default);
                add_list_extensions(&mut described, &field.node);
                property = described;
            } else {
                set_description(&mut property, &field.description);
            }
            let optional = self.is_reduced(!definition.native) && field.node.nullable;
            if field.required && !optional {
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
        if definition.embedded_resource {
            schema["x-kubernetes-embedded-resource"] = Value::Bool(true);
        }
        if definition.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        schema
    }

    /// A reference with a description and a default; in version 3 a reference has siblings
    /// only within `allOf`.
    fn described_reference(
        &self,
        reference: Value,
        description: &str,
        default: Option<&Value>,
    ) -> Value {
        let default = default.filter(|_| self.openapi_version == OpenApiVersion::V3);
        let mut schema = match self.openapi_version {
            OpenApiVersion::V3 if !description.is_empty() || default.is_some() => {
                json!({ "allOf": [reference] })
            }
            _ => reference,
        };
        set_description(&mut schema, description);
        if let Some(default) = default {
            schema["default"] = default.clone();
        }
        schema
    }

    fn add_reference(&mut self, name: &str) -> Value {
        self.pending.insert(name.to_owned());
        self.openapi_version.reference(name)
    }

    /// The schema of a node; a reference has no further keys.
    fn node_schema(
        &mut self,
        definitions: &SchemaDefinitionArena,
        node: &SchemaNode,
        form: ScalarForm,
    ) -> Value {
        let mut schema = match &node.ty {
            SchemaType::Ref(id) => {
                let definition = definitions.get(*id);
                if definition.name.is_empty() {
                    self.object_schema(definitions, definition)
                } else {
                    return self.add_reference(&definition.name);
                }
            }
            SchemaType::Array(item) => {
                let items = self.node_schema(definitions, item, form);
                json!({ "type": "array", "items": items })
            }
            SchemaType::Map(value) => {
                let values = self.node_schema(definitions, value, form);
                json!({ "type": "object", "additionalProperties": values })
            }
            ty => match self.scalar_schema(ty, form) {
                reference if reference.get("$ref").is_some() => return reference,
                schema => schema,
            },
        };
        if node.preserve_unknown {
            schema["x-kubernetes-preserve-unknown-fields"] = Value::Bool(true);
        }
        if let (OpenApiVersion::V3, Some(parts)) = (self.openapi_version, &node.untyped) {
            self.add_untyped(definitions, &mut schema, parts);
        }
        add_list_extensions(&mut schema, node);
        set_description(&mut schema, &node.description);
        if !node.format.is_empty() {
            schema["format"] = (*node.format).into();
        }
        if let Some(rules) = &node.validation {
            add_validations(&mut schema, rules);
            if let (OpenApiVersion::V3, Some(logic)) = (self.openapi_version, &rules.composition) {
                self.add_composition(definitions, &mut schema, logic);
            }
        }
        self.add_cel_rules(&mut schema, node);
        if self.openapi_version == OpenApiVersion::V3 {
            if let Some(default) = node.default.as_deref() {
                schema["default"] = default.clone();
            }
            if node.nullable {
                schema["nullable"] = Value::Bool(true);
            }
        }
        if self.is_reduced(form == ScalarForm::CustomResource) {
            remove_partial_types(&mut schema, node.nullable);
        }
        schema
    }

    /// Whether a custom resource is published without the fields that kubectl would take for all
    /// fields (`apiextensions-apiserver/pkg/controller/openapi/v2`).
    fn is_reduced(&self, custom: bool) -> bool {
        custom && self.openapi_version == OpenApiVersion::V2
    }

    /// Version 2 has no rules.
    fn add_cel_rules(&self, schema: &mut Value, node: &SchemaNode) {
        let rules = node.validation.as_ref().map(|v| &v.cel_rules);
        if let Some(rules) = rules.filter(|rules| !rules.is_empty())
            && self.openapi_version == OpenApiVersion::V3
        {
            schema["x-kubernetes-validations"] = rules.clone().into();
        }
    }

    /// A quantity in a schema of a CRD.
    fn inline_quantity(&self) -> Value {
        let mut schema = json!({
            "x-kubernetes-int-or-string": true, "pattern": QUANTITY_PATTERN,
        });
        if self.openapi_version == OpenApiVersion::V3 {
            schema["anyOf"] = json!([{ "type": "integer" }, { "type": "string" }]);
        }
        schema
    }

    fn scalar_schema(&mut self, ty: &SchemaType, form: ScalarForm) -> Value {
        match ty {
            SchemaType::Int32 => json!({ "type": "integer", "format": "int32" }),
            SchemaType::Int64 => json!({ "type": "integer", "format": "int64" }),
            SchemaType::Bool => json!({ "type": "boolean" }),
            SchemaType::Number => json!({ "type": "number" }),
            SchemaType::Bytes => json!({ "type": "string", "format": "byte" }),
            SchemaType::Quantity if form == ScalarForm::KarmadaCrd => self.inline_quantity(),
            SchemaType::Quantity => {
                self.add_reference("io.k8s.apimachinery.pkg.api.resource.Quantity")
            }
            SchemaType::IntOrString if form != ScalarForm::CustomResource => {
                self.add_reference("io.k8s.apimachinery.pkg.util.intstr.IntOrString")
            }
            SchemaType::IntOrString => json!({ "x-kubernetes-int-or-string": true }),
            SchemaType::Time => self.add_reference("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
            SchemaType::MicroTime => {
                self.add_reference("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime")
            }
            SchemaType::Duration => {
                self.add_reference("io.k8s.apimachinery.pkg.apis.meta.v1.Duration")
            }
            SchemaType::Object => json!({
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }),
            SchemaType::Any => json!({ "x-kubernetes-preserve-unknown-fields": true }),
            _ => json!({ "type": "string" }),
        }
    }

    fn add_composition(
        &mut self,
        definitions: &SchemaDefinitionArena,
        schema: &mut Value,
        logic: &SchemaComposition,
    ) {
        for (key, nodes) in [
            ("allOf", &logic.all_of),
            ("anyOf", &logic.any_of),
            ("oneOf", &logic.one_of),
        ] {
            if !nodes.is_empty() {
                schema[key] = nodes
                    .iter()
                    .map(|n| self.validation_schema(definitions, n))
                    .collect();
            }
        }
        if let Some(node) = &logic.not {
            schema["not"] = self.validation_schema(definitions, node);
        }
    }

    /// Adds what a schema without a declared type says about objects and arrays.
    fn add_untyped(
        &mut self,
        definitions: &SchemaDefinitionArena,
        schema: &mut Value,
        parts: &UntypedSchema,
    ) {
        for part in [&parts.object, &parts.array].into_iter().flatten() {
            let part = self.node_schema(definitions, part, ScalarForm::CustomResource);
            for key in ["properties", "required", "additionalProperties", "items"] {
                if let Some(value) = part.get(key) {
                    schema[key] = value.clone();
                }
            }
        }
    }

    /// A schema for validation only, which preserves no fields.
    fn validation_schema(
        &mut self,
        definitions: &SchemaDefinitionArena,
        node: &SchemaNode,
    ) -> Value {
        let mut schema = self.node_schema(definitions, node, ScalarForm::CustomResource);
        if let (SchemaType::Any, Value::Object(map)) = (&node.ty, &mut schema) {
            map.remove("x-kubernetes-preserve-unknown-fields");
        }
        schema
    }
}

fn preserves_unknown_fields(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Removes the fields and items of values that may have others or be null, and types that kubectl
/// checks without them.
fn remove_partial_types(schema: &mut Value, nullable: bool) {
    let preserves = preserves_unknown_fields(schema);
    let Some(keys) = schema.as_object_mut() else {
        return;
    };
    if nullable || preserves {
        keys.remove("items");
        keys.remove("properties");
    }
    // An embedded resource has no fields that could be required.
    if preserves && keys.contains_key("x-kubernetes-embedded-resource") {
        keys.remove("required");
    }
    let has_type = |ty: &str| keys.get("type").is_some_and(|value| value == ty);
    let without_items = has_type("array") && !keys.contains_key("items");
    if nullable || without_items || (preserves && has_type("object")) {
        keys.remove("type");
    }
}

const QUANTITY_DESCRIPTION: &str = "A decimal number with an optional suffix: n, u, m, k, M, G, T, P, E, \
    Ki, Mi, Gi, Ti, Pi, Ei, or an exponent.";
const INT_OR_STRING_DESCRIPTION: &str =
    "An integer or a string, such as a port name or a percentage.";

fn set_description(schema: &mut Value, description: &str) {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
}

/// Adds the extensions for merging lists and maps.
fn add_list_extensions(schema: &mut Value, node: &SchemaNode) {
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

fn add_validations(schema: &mut Value, rules: &ValueValidation) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            schema[key] = value;
        }
    };
    let flag = |set: bool| set.then_some(Value::Bool(true));
    put(
        "enum",
        (!rules.enum_values.is_empty()).then(|| rules.enum_values.clone().into()),
    );
    put("minimum", rules.minimum.map(json_number));
    put("maximum", rules.maximum.map(json_number));
    put("exclusiveMinimum", flag(rules.exclusive_minimum));
    put("exclusiveMaximum", flag(rules.exclusive_maximum));
    put("multipleOf", rules.multiple_of.map(json_number));
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
fn json_number(n: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked: whole, and small enough to be exact"
    )]
    if n.fract() == 0.0 && n.abs() < 9e15 {
        return Value::from(n as i64);
    }
    Value::from(n)
}
