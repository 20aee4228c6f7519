//! Generates the paths and operations of a kind.
//!
//! Clients read from them what they may send: the content types of PATCH and the parameter
//! `fieldValidation` (`cli-runtime/pkg/resource/query_param_verifier_v3.go`,
//! `kubectl/pkg/cmd/apply/patcher.go`).

use machinery::Gvk;
use serde_json::{Map, Value, json};

use super::schemas::{PATCH, SCALE, list_name_of, name_of};
use super::{Form, Resource};
use crate::model::Kind;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// All paths of the kinds.
pub(super) fn paths(resources: &[Resource<'_>], form: Form) -> Map<String, Value> {
    let mut out = Map::new();
    for resource in resources {
        Writer {
            form,
            kind: resource.kind,
        }
        .write(&mut out);
    }
    out
}

/// The resource or subresource at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// All objects of a cluster-scoped kind, or those of a namespace.
    Collection,
    /// The objects of a namespaced kind in all namespaces.
    EveryNamespace,
    Object,
    Status,
    Scale,
}

/// The action of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    List,
    Post,
    DeleteCollection,
    Get,
    Put,
    Patch,
    Delete,
}

impl Action {
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
    fn word(self) -> &'static str {
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
            Self::List => LIST,
            Self::Get => &[],
            Self::Post | Self::Put => WRITE,
            Self::Patch => PATCH_PARAMETERS,
            Self::Delete => DELETE,
            Self::DeleteCollection => DELETE_COLLECTION,
        }
    }
}

// Names and types; `parameter_description` has the descriptions.
const LIST: &[(&str, &str)] = &[
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
const WRITE: &[(&str, &str)] = &[
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
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION: &[(&str, &str)] = &[
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

fn describe(parameter: &str) -> &'static str {
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

struct Writer<'a> {
    form: Form,
    kind: &'a Kind,
}

impl Writer<'_> {
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
        let mut add = |path: String, place: Place| {
            if let Some(item) = self.item(place) {
                out.insert(path, item);
            }
        };
        if kind.namespaced {
            add(format!("{root}/{plural}"), Place::EveryNamespace);
        }
        if kind.status {
            add(format!("{object}/status"), Place::Status);
        }
        if kind.scale.is_some() {
            add(format!("{object}/scale"), Place::Scale);
        }
        add(object, Place::Object);
        add(collection, Place::Collection);
    }

    /// `None` if the kind supports no operation there.
    fn item(&self, place: Place) -> Option<Value> {
        let actions: &[Action] = match place {
            Place::Collection => &[Action::List, Action::Post, Action::DeleteCollection],
            Place::EveryNamespace => &[Action::List],
            Place::Object => &[Action::Get, Action::Put, Action::Patch, Action::Delete],
            Place::Status | Place::Scale => &[Action::Get, Action::Put, Action::Patch],
        };
        let mut item = Map::new();
        for action in actions {
            if self.kind.allows(action.verb()) {
                item.insert(action.method().to_owned(), self.operation(place, *action));
            }
        }
        if item.is_empty() {
            return None;
        }
        item.insert("parameters".to_owned(), self.place_parameters(place));
        Some(Value::Object(item))
    }

    fn place_parameters(&self, place: Place) -> Value {
        let mut parameters = Vec::new();
        if matches!(place, Place::Object | Place::Status | Place::Scale) {
            parameters.push(self.parameter("name", "string", "path"));
        }
        if self.kind.namespaced && place != Place::EveryNamespace {
            parameters.push(self.parameter("namespace", "string", "path"));
        }
        parameters.push(self.parameter("pretty", "string", "query"));
        Value::Array(parameters)
    }

    fn parameter(&self, name: &str, ty: &str, location: &str) -> Value {
        let mut parameter = json!({
            "name": name,
            "in": location,
            "description": describe(name),
            "uniqueItems": true,
        });
        if location == "path" {
            parameter["required"] = Value::Bool(true);
        }
        match self.form {
            Form::V2 => parameter["type"] = ty.into(),
            Form::V3 => {
                parameter["schema"] = json!({ "type": ty, "uniqueItems": true });
                if let Value::Object(map) = &mut parameter {
                    map.remove("uniqueItems");
                }
            }
        }
        parameter
    }

    fn operation(&self, place: Place, action: Action) -> Value {
        let kind = self.kind;
        let gvk = match place {
            Place::Scale => &Gvk::constant("autoscaling", "v1", "Scale"),
            _ => &kind.gvk,
        };
        let parameters: Vec<Value> = action
            .parameters()
            .iter()
            .map(|(name, ty)| self.parameter(name, ty, "query"))
            .collect();
        let mut operation = json!({
            "tags": [self.tag()],
            "operationId": self.operation_id(place, action),
            "description": self.description(place, action),
            "parameters": parameters,
            "responses": self.responses(place, action),
            "x-kubernetes-action": action.name(),
            "x-kubernetes-group-version-kind": {
                "group": gvk.group, "version": gvk.version, "kind": gvk.kind,
            },
        });
        self.body(&mut operation, place, action);
        if self.form == Form::V2 {
            let mut produces = self.media();
            if action == Action::List {
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

    fn operation_id(&self, place: Place, action: Action) -> String {
        let kind = &self.kind.gvk;
        let group = match &*kind.group {
            "" => "core".to_owned(),
            // The whole name, so that groups with the same first word stay distinct.
            group => group.strip_suffix(".k8s.io").unwrap_or(group).to_owned(),
        };
        let group: String = group.split(['.', '-']).map(capital).collect();
        let (scope, tail) = match place {
            Place::EveryNamespace => ("", "ForAllNamespaces"),
            Place::Status => (self.scope(), "Status"),
            Place::Scale => (self.scope(), "Scale"),
            _ => (self.scope(), ""),
        };
        let version = capital(&kind.version);
        format!(
            "{}{group}{version}{scope}{}{tail}",
            action.word(),
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

    fn description(&self, place: Place, action: Action) -> String {
        let kind = &self.kind.gvk.kind;
        match (action, place) {
            (Action::List, _) => format!("list or watch objects of kind {kind}"),
            (Action::DeleteCollection, _) => format!("delete collection of {kind}"),
            (Action::Post, _) => format!("create a {kind}"),
            (_, Place::Status) => format!("{} status of the specified {kind}", action.word()),
            (_, Place::Scale) => format!("{} scale of the specified {kind}", action.word()),
            _ => format!("{} the specified {kind}", action.word()),
        }
    }

    /// The content types of request bodies and responses.
    fn media(&self) -> Vec<&'static str> {
        let mut media = vec!["application/json", "application/yaml"];
        if self.kind.proto {
            media.push(PROTOBUF);
        }
        media
    }

    fn patch_media(&self) -> Vec<&'static str> {
        let mut media = vec![
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.kind.strategic {
            media.push("application/strategic-merge-patch+json");
        }
        media
    }

    fn type_at(&self, place: Place) -> Value {
        match place {
            Place::Scale => self.form.reference(SCALE),
            _ => self.form.reference(&name_of(self.kind)),
        }
    }

    fn body(&self, operation: &mut Value, place: Place, action: Action) {
        let (schema, media, required) = match action {
            Action::List | Action::Get => return,
            Action::Post | Action::Put => (self.type_at(place), self.media(), true),
            Action::Patch => (self.form.reference(PATCH), self.patch_media(), true),
            Action::Delete | Action::DeleteCollection => {
                (self.form.reference(DELETE_OPTIONS), self.media(), false)
            }
        };
        match self.form {
            Form::V3 => {
                operation["requestBody"] = json!({ "content": content(&media, &schema) });
                if required {
                    operation["requestBody"]["required"] = Value::Bool(true);
                }
            }
            Form::V2 => {
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

    fn responses(&self, place: Place, action: Action) -> Value {
        let schema = match action {
            Action::List => self.form.reference(&list_name_of(self.kind)),
            Action::Delete if self.kind.returns_deleted => self.type_at(place),
            Action::Delete | Action::DeleteCollection => self.form.reference(STATUS),
            _ => self.type_at(place),
        };
        let response = |text: &str| match self.form {
            Form::V2 => json!({ "description": text, "schema": schema }),
            Form::V3 => {
                json!({ "description": text, "content": content(&self.media(), &schema) })
            }
        };
        let mut responses = json!({
            "200": response("OK"),
            "401": { "description": "Unauthorized" },
        });
        if matches!(action, Action::Post | Action::Put | Action::Patch) {
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

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
