//! Generates the paths and operations of a kind.
//!
//! Clients read from them what they may send: the content types of PATCH and the parameter
//! `fieldValidation` (`cli-runtime/pkg/resource/query_param_verifier_v3.go`,
//! `kubectl/pkg/cmd/apply/patcher.go`).

use machinery::Gvk;
use serde_json::{Map, Value, json};

use super::schemas::{PATCH_TYPE, SCALE_TYPE, list_schema_name, schema_name};
use super::{OpenApiVersion, PublishedResource};
use crate::model::KindInfo;

const PROTOBUF_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const DELETE_OPTIONS_TYPE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS_TYPE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// All paths of the kinds.
pub(super) fn paths(
    resources: &[PublishedResource<'_>],
    form: OpenApiVersion,
) -> Map<String, Value> {
    let mut out = Map::new();
    for resource in resources {
        KindPathsBuilder {
            openapi_version: form,
            kind: resource.kind,
        }
        .write(&mut out);
    }
    out
}

/// The resource or subresource at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathKind {
    /// All objects of a cluster-scoped kind, or all objects in a namespace.
    Collection,
    /// The objects of a namespaced kind in all namespaces.
    AllNamespaces,
    Object,
    Status,
    Scale,
}

/// The action of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperationAction {
    List,
    Post,
    DeleteCollection,
    Get,
    Put,
    Patch,
    Delete,
}

impl OperationAction {
    /// The value of `x-kubernetes-action`.
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Post => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// The verb that the kind must support.
    fn verb(self) -> &'static str {
        match self {
            Self::Post => "create",
            Self::Put => "update",
            other => other.name(),
        }
    }

    /// The first word of an operation's id.
    fn operation_id_verb(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Post => "create",
            Self::DeleteCollection => "deleteCollection",
            Self::Get => "read",
            Self::Put => "replace",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::List => LIST_PARAMETERS,
            Self::Get => &[],
            Self::Post | Self::Put => WRITE_PARAMETERS,
            Self::Patch => PATCH_PARAMETERS,
            Self::Delete => DELETE_PARAMETERS,
            Self::DeleteCollection => DELETE_COLLECTION_PARAMETERS,
        }
    }
}

// Names and types; `parameter_description` has the descriptions.
const LIST_PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION_PARAMETERS: &[(&str, &str)] = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
];

fn parameter_description(parameter: &str) -> &'static str {
    match parameter {
        "allowWatchBookmarks" => "Whether a watch sends bookmarks.",
        "continue" => "The continue token of the previous page of a list.",
        "fieldSelector" => "Selects objects by fields.",
        "labelSelector" => "Selects objects by labels.",
        "limit" => "Maximum number of objects in one response.",
        "resourceVersion" => "The resource version of a list, or at which a watch starts.",
        "resourceVersionMatch" => "How resourceVersion is applied: Exact or NotOlderThan.",
        "sendInitialEvents" => "Whether a watch begins with all objects.",
        "timeoutSeconds" => "Timeout of the call.",
        "watch" => "Whether to watch for changes.",
        "dryRun" => "All: changes are not persisted.",
        "fieldManager" => "Name of the actor that makes the changes.",
        "fieldValidation" => "How unknown fields are handled: Ignore, Warn or Strict.",
        "force" => "Whether apply takes over fields of other managers.",
        "gracePeriodSeconds" => "Seconds before the object is deleted.",
        "orphanDependents" => "Deprecated: use propagationPolicy.",
        "propagationPolicy" => {
            "How dependents are garbage collected: Orphan, Background or Foreground."
        }
        "pretty" => "Whether the response is indented.",
        "namespace" => "Namespace of the objects.",
        "name" => "Name of the object.",
        _ => "",
    }
}

struct KindPathsBuilder<'a> {
    openapi_version: OpenApiVersion,
    kind: &'a KindInfo,
}

impl KindPathsBuilder<'_> {
    fn write(&self, out: &mut Map<String, Value>) {
        let kind = self.kind;
        let root = match &*kind.gvk.group {
            "" => format!("/api/{}", kind.gvk.version),
            group => format!("/apis/{group}/{}", kind.gvk.version),
        };
        let plural = &kind.gvr.resource;
        let collection = if kind.namespaced {
            format!("{root}/namespaces/{{namespace}}/{plural}")
        } else {
            format!("{root}/{plural}")
        };
        let object = format!("{collection}/{{name}}");
        let mut add = |path: String, path_kind: PathKind| {
            if let Some(item) = self.path_item(path_kind) {
                out.insert(path, item);
            }
        };
        if kind.namespaced {
            add(format!("{root}/{plural}"), PathKind::AllNamespaces);
        }
        if kind.status {
            add(format!("{object}/status"), PathKind::Status);
        }
        if kind.scale.is_some() {
            add(format!("{object}/scale"), PathKind::Scale);
        }
        add(object, PathKind::Object);
        add(collection, PathKind::Collection);
    }

    /// `None` if the kind supports no operation there.
    fn path_item(&self, path_kind: PathKind) -> Option<Value> {
        let actions: &[OperationAction] = match path_kind {
            PathKind::Collection => &[
                OperationAction::List,
                OperationAction::Post,
                OperationAction::DeleteCollection,
            ],
            PathKind::AllNamespaces => &[OperationAction::List],
            PathKind::Object => &[
                OperationAction::Get,
                OperationAction::Put,
                OperationAction::Patch,
                OperationAction::Delete,
            ],
            PathKind::Status | PathKind::Scale => &[
                OperationAction::Get,
                OperationAction::Put,
                OperationAction::Patch,
            ],
        };
        let mut item = Map::new();
        for action in actions {
            if self.kind.supports_verb(action.verb()) {
                item.insert(
                    action.method().to_owned(),
                    self.operation(path_kind, *action),
                );
            }
        }
        if item.is_empty() {
            return None;
        }
        item.insert("parameters".to_owned(), self.path_parameters(path_kind));
        Some(Value::Object(item))
    }

    fn path_parameters(&self, path_kind: PathKind) -> Value {
        let mut parameters = Vec::new();
        if matches!(
            path_kind,
            PathKind::Object | PathKind::Status | PathKind::Scale
        ) {
            parameters.push(self.parameter("name", "string", "path"));
        }
        if self.kind.namespaced && path_kind != PathKind::AllNamespaces {
            parameters.push(self.parameter("namespace", "string", "path"));
        }
        parameters.push(self.parameter("pretty", "string", "query"));
        Value::Array(parameters)
    }

    fn parameter(&self, name: &str, ty: &str, location: &str) -> Value {
        let mut parameter = json!({
            "name": name,
            "in": location,
            "description": parameter_description(name),
            "uniqueItems": true,
        });
        if location == "path" {
            parameter["required"] = Value::Bool(true);
        }
        match self.openapi_version {
            OpenApiVersion::V2 => parameter["type"] = ty.into(),
            OpenApiVersion::V3 => {
                parameter["schema"] = json!({ "type": ty, "uniqueItems": true });
                if let Value::Object(map) = &mut parameter {
                    map.remove("uniqueItems");
                }
            }
        }
        parameter
    }

    fn operation(&self, path_kind: PathKind, action: OperationAction) -> Value {
        let kind = self.kind;
        let gvk = match path_kind {
            PathKind::Scale => &Gvk::from_static("autoscaling", "v1", "Scale"),
            _ => &kind.gvk,
        };
        let parameters: Vec<Value> = action
            .parameters()
            .iter()
            .map(|(name, ty)| self.parameter(name, ty, "query"))
            .collect();
        let mut operation = json!({
            "tags": [self.tag()],
            "operationId": self.operation_id(path_kind, action),
            "description": self.description(path_kind, action),
            "responses": self.responses(path_kind, action),
            "x-kubernetes-action": action.name(),
            "x-kubernetes-group-version-kind": {
                "group": gvk.group, "version": gvk.version, "kind": gvk.kind,
            },
        });
        // Clients that decode and encode the document omit empty lists.
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        self.add_request_body(&mut operation, path_kind, action);
        if self.openapi_version == OpenApiVersion::V2 {
            let mut produces = self.media_types();
            if action == OperationAction::List {
                produces.push("application/json;stream=watch");
            }
            operation["produces"] = json!(produces);
        }
        operation
    }

    fn tag(&self) -> String {
        let group = match &*self.kind.gvk.group {
            "" => "core",
            group => group.split('.').next().unwrap_or(group),
        };
        format!("{group}_{}", self.kind.gvk.version)
    }

    fn operation_id(&self, path_kind: PathKind, action: OperationAction) -> String {
        let kind = &self.kind.gvk;
        let group = match &*kind.group {
            "" => "core".to_owned(),
            // The whole name, so that groups with the same first word stay distinct.
            group => group.strip_suffix(".k8s.io").unwrap_or(group).to_owned(),
        };
        let group: String = group.split(['.', '-']).map(capitalize).collect();
        let (scope, tail) = match path_kind {
            PathKind::AllNamespaces => ("", "ForAllNamespaces"),
            PathKind::Status => (self.scope(), "Status"),
            PathKind::Scale => (self.scope(), "Scale"),
            _ => (self.scope(), ""),
        };
        let version = capitalize(&kind.version);
        format!(
            "{}{group}{version}{scope}{}{tail}",
            action.operation_id_verb(),
            kind.kind
        )
    }

    fn scope(&self) -> &'static str {
        if self.kind.namespaced {
            "Namespaced"
        } else {
            ""
        }
    }

    fn description(&self, path_kind: PathKind, action: OperationAction) -> String {
        let kind = &self.kind.gvk.kind;
        match (action, path_kind) {
            (OperationAction::List, _) => format!("list or watch objects of kind {kind}"),
            (OperationAction::DeleteCollection, _) => format!("delete collection of {kind}"),
            (OperationAction::Post, _) => format!("create a {kind}"),
            (_, PathKind::Status) => format!(
                "{} status of the specified {kind}",
                action.operation_id_verb()
            ),
            (_, PathKind::Scale) => format!(
                "{} scale of the specified {kind}",
                action.operation_id_verb()
            ),
            _ => format!("{} the specified {kind}", action.operation_id_verb()),
        }
    }

    /// The content types of request bodies and responses.
    fn media_types(&self) -> Vec<&'static str> {
        let mut media = vec!["application/json", "application/yaml"];
        if self.kind.protobuf {
            media.push(PROTOBUF_MEDIA_TYPE);
        }
        media
    }

    fn patch_media_types(&self) -> Vec<&'static str> {
        let mut media = vec![
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.kind.strategic_merge_patch {
            media.push("application/strategic-merge-patch+json");
        }
        media.push("application/apply-patch+yaml");
        media
    }

    fn body_type(&self, path_kind: PathKind) -> Value {
        match path_kind {
            PathKind::Scale => self.openapi_version.reference(SCALE_TYPE),
            _ => self.openapi_version.reference(&schema_name(self.kind)),
        }
    }

    fn add_request_body(
        &self,
        operation: &mut Value,
        path_kind: PathKind,
        action: OperationAction,
    ) {
        let (schema, media, required) = match action {
            OperationAction::List | OperationAction::Get => return,
            OperationAction::Post | OperationAction::Put => {
                (self.body_type(path_kind), self.media_types(), true)
            }
            OperationAction::Patch => (
                self.openapi_version.reference(PATCH_TYPE),
                self.patch_media_types(),
                true,
            ),
            OperationAction::Delete | OperationAction::DeleteCollection => (
                self.openapi_version.reference(DELETE_OPTIONS_TYPE),
                self.media_types(),
                false,
            ),
        };
        match self.openapi_version {
            OpenApiVersion::V3 => {
                operation["requestBody"] = json!({ "content": content(&media, &schema) });
                if required {
                    operation["requestBody"]["required"] = Value::Bool(true);
                }
            }
            OpenApiVersion::V2 => {
                let mut body = json!({ "name": "body", "in": "body", "schema": schema });
                if required {
                    body["required"] = Value::Bool(true);
                }
                if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
                    parameters.push(body);
                }
                operation["consumes"] = json!(media);
            }
        }
    }

    fn responses(&self, path_kind: PathKind, action: OperationAction) -> Value {
        let schema = match action {
            OperationAction::List => self.openapi_version.reference(&list_schema_name(self.kind)),
            OperationAction::Delete if self.kind.returns_deleted_object => {
                self.body_type(path_kind)
            }
            OperationAction::Delete | OperationAction::DeleteCollection => {
                self.openapi_version.reference(STATUS_TYPE)
            }
            _ => self.body_type(path_kind),
        };
        let response = |text: &str| match self.openapi_version {
            OpenApiVersion::V2 => json!({ "description": text, "schema": schema }),
            OpenApiVersion::V3 => {
                json!({ "description": text, "content": content(&self.media_types(), &schema) })
            }
        };
        let mut responses = json!({
            "200": response("OK"),
            "401": { "description": "Unauthorized" },
        });
        if matches!(
            action,
            OperationAction::Post | OperationAction::Put | OperationAction::Patch
        ) {
            responses["201"] = response("Created");
        }
        responses
    }
}

fn content(media: &[&str], schema: &Value) -> Value {
    media
        .iter()
        .map(|m| ((*m).to_owned(), json!({ "schema": schema })))
        .collect::<Map<_, _>>()
        .into()
}

fn capitalize(word: &str) -> String {
    let mut chars = word.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
