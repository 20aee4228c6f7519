//! Turns a step of a case into a request to one server.
//!
//! The key of a step is a method and a path, its value the body; a text is sent as it is.
//!
//! | method | request |
//! |---|---|
//! | GET, POST, PUT, DELETE | the same; a POST or PUT gets apiVersion, kind and name unless the body has the key; null leaves them out |
//! | MERGE, JSON, STRATEGIC | PATCH of that type |
//! | APPLY:manager, APPLY:manager! | PATCH by server-side apply; `!` forces; the body is completed as that of a PUT |
//! | WATCH | GET with `watch=1`, until the server ends it after three seconds |
//! | CRD | creates the definition of this plural in its short form on both servers |
//!
//! A path `v1/things/a` is in the namespace of the case and the group of the theme,
//! `cluster:v1/things/a` in the group only; `crds/x` is a CustomResourceDefinition; others begin
//! with `/`. Options of a step are `accept`, `type` (of the body), `agent` (User-Agent) and
//! `until`: the step is repeated until the reply has this code.
//!
//! In paths and bodies `{rv}`, `{uid}` and `{continue}` are those of the last reply that had
//! them, `{first-rv}` is the first one of the case, and `{ns}` is the namespace.

use serde_json::{Map, Value, json};

use crate::differential::case::CaseStep;

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OPTIONS: [&str; 4] = ["accept", "type", "agent", "until"];

/// A request without an address.
#[derive(Clone)]
pub(crate) struct PreparedRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl PreparedRequest {
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: "GET",
            path: path.to_owned(),
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn json(method: &'static str, path: &str, body: &Value) -> Self {
        Self {
            method,
            path: path.to_owned(),
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string(),
        }
    }
}

/// The base of the paths and bodies of a case.
pub(crate) struct CaseContext<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) group: &'a str,
    /// Kind by plural.
    pub(crate) kinds: &'a Map<String, Value>,
}

/// A step that is parsed, but whose placeholders are not yet replaced.
pub(crate) struct ParsedStep {
    pub(crate) title: String,
    pub(crate) action: StepAction,
    pub(crate) until: Option<u16>,
}

pub(crate) enum StepAction {
    Send(PreparedRequest),
    CreateDefinition { plural: String, short: Value },
}

pub(crate) fn parse_step(step: &CaseStep, context: &CaseContext<'_>) -> ParsedStep {
    let mut keys = step.keys().filter(|key| !OPTIONS.contains(&key.as_str()));
    let (Some(title), None) = (keys.next(), keys.next()) else {
        panic!("{}: a step is one request: {step:?}", context.namespace)
    };
    let body = &step[title];
    let (method, path) = title
        .split_once(' ')
        .unwrap_or_else(|| panic!("{title}: no path"));
    let until = step.get("until").and_then(Value::as_u64);
    let action = match method {
        "CRD" => StepAction::CreateDefinition {
            plural: path.to_owned(),
            short: body.clone(),
        },
        _ => StepAction::Send(request(method, path, body, step, context)),
    };
    ParsedStep {
        title: title.clone(),
        action,
        until: until.map(|code| u16::try_from(code).unwrap()),
    }
}

fn request(
    method: &str,
    short: &str,
    body: &Value,
    step: &CaseStep,
    context: &CaseContext<'_>,
) -> PreparedRequest {
    let (method, manager) = method.split_once(':').unwrap_or((method, ""));
    let mut path = full_path(short, context);
    let (method, content_type, completed) = match method {
        "GET" => ("GET", "", false),
        "WATCH" => {
            add_query(&mut path, "watch=1");
            if !path.contains("timeoutSeconds") {
                add_query(&mut path, "timeoutSeconds=3");
            }
            ("GET", "", false)
        }
        "DELETE" => ("DELETE", "application/json", false),
        "POST" => ("POST", "application/json", true),
        "PUT" => ("PUT", "application/json", true),
        "MERGE" => ("PATCH", "application/merge-patch+json", false),
        "JSON" => ("PATCH", "application/json-patch+json", false),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json", false),
        "APPLY" => {
            apply_query(&mut path, manager);
            ("PATCH", "application/apply-patch+yaml", true)
        }
        _ => panic!("unknown method {method}"),
    };
    let body = match body {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(object) if completed => complete(object, short, context).to_string(),
        other => other.to_string(),
    };
    let mut headers = Vec::new();
    let mut add = |name, option: &str, default: &str| {
        let option_value = step.get(option).map(|v| v.as_str().unwrap());
        let value = option_value.unwrap_or(default);
        if !value.is_empty() {
            headers.push((name, value.to_owned()));
        }
    };
    add("accept", "accept", "");
    let content_type = if body.is_empty() { "" } else { content_type };
    add("content-type", "type", content_type);
    add("user-agent", "agent", "case/1.0");
    PreparedRequest {
        method,
        path,
        headers,
        body,
    }
}

fn add_query(path: &mut String, query: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(query);
}

fn apply_query(path: &mut String, manager: &str) {
    let (name, force) = match manager.strip_suffix('!') {
        Some(name) => (name, true),
        None => (manager, false),
    };
    if !name.is_empty() {
        add_query(path, &format!("fieldManager={name}"));
    }
    if force {
        add_query(path, "force=true");
    }
}

fn full_path(short: &str, context: &CaseContext<'_>) -> String {
    if short.starts_with('/') {
        return short.to_owned();
    }
    if let Some(rest) = short.strip_prefix("crds") {
        return format!("{CRDS}{rest}");
    }
    let group = context.group;
    if let Some(rest) = short.strip_prefix("cluster:") {
        return format!("/apis/{group}/{rest}");
    }
    let (version, rest) = short
        .split_once('/')
        .unwrap_or_else(|| panic!("{short}: no version"));
    format!(
        "/apis/{group}/{version}/namespaces/{}/{rest}",
        context.namespace
    )
}

/// Adds apiVersion, kind and name to an object of a custom resource.
fn complete(object: &Map<String, Value>, short: &str, context: &CaseContext<'_>) -> Value {
    let mut object = object.clone();
    let path = short.strip_prefix("cluster:").unwrap_or(short);
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/');
    let version = parts.next().unwrap_or_default();
    let plural = parts.next().unwrap_or_default();
    if let Some(kind) = context.kinds.get(plural) {
        let api_version = json!(format!("{}/{version}", context.group));
        object.entry("apiVersion").or_insert(api_version);
        object.entry("kind").or_insert(kind.clone());
        if let Some(name) = parts.next() {
            let metadata = object.entry("metadata").or_insert(json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.entry("name").or_insert(json!(name));
                metadata.retain(|_, value| !value.is_null());
            }
        }
        object.retain(|key, value| {
            !(value.is_null() && ["apiVersion", "kind", "metadata"].contains(&key.as_str()))
        });
    }
    Value::Object(object)
}
