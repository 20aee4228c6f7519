//! Replaces what may differ between two servers: uids, times, resource versions, keys in the
//! store, continue tokens, the documentation of columns and the status of a new definition.
//!
//! Each uid and each resource version of an object becomes a number in the order of appearance,
//! so that two replies still show whether an object is the same one and whether it changed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::differential::servers::ServerReply;

static UUID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap());
static VERSION_IN_MESSAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)(resource ?version[^0-9]{0,40}|current: |\()\d+").unwrap());
/// A cell of a table.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[0-9]+s$").unwrap());
/// Begins the errors of `structured-merge-diff`, a line each.
const SCHEMA_ERRORS: &str = ": errors:\n";
/// In the text of a refused object.
static TIME_IN_MESSAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"20[2-9]\d-\d\d-\d\dT[0-9:.]+Z").unwrap());
static MANAGERS_IN_MESSAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\\?"managedFields\\?":\[\{.*?\}\],"#).unwrap());
static CONTINUE_IN_MESSAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("eyJ[A-Za-z0-9_=-]{20,}").unwrap());

/// The words in which the two servers say that a text is malformed. No client reads them.
static YAML_ERROR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("(?s)(error converting YAML to JSON: ).*").unwrap());
static JSON_ERROR: LazyLock<Regex> = LazyLock::new(|| {
    let go = r"invalid character '.{1,6}' (looking for beginning of (value|object key string)|after (object key:value pair|object key|array element|top-level value)|in string literal)|unexpected end of JSON input|exceeded max depth(: JSON may be nested [0-9]+ levels deep)?";
    let syntax_error = r"(expected `.`( or `.`)?|control character \(.*?\) found while parsing a string|[A-Za-z][A-Za-z ]*) at line \d+ column \d+";
    Regex::new(&format!("{go}|{syntax_error}")).unwrap()
});

/// The values of a reply that later requests of the case use, and the names given to values.
#[derive(Default)]
pub(crate) struct ReplyNormalizer {
    compare_managers: bool,
    names: BTreeMap<String, String>,
    uids: usize,
    versions: usize,
    last: BTreeMap<&'static str, String>,
}

impl ReplyNormalizer {
    pub(crate) fn new(compare_managers: bool) -> Self {
        Self {
            compare_managers,
            ..Self::default()
        }
    }

    /// Replaces `{rv}` and the other placeholders of [`crate::differential::request`].
    pub(crate) fn fill_placeholders(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.last {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }

    /// The comparable form of a reply.
    pub(crate) fn normalize(&mut self, reply: &ServerReply) -> Value {
        let body = match reply.json() {
            // A watch with a single event; with more its body is no JSON.
            Some(event) if event["type"].is_string() && event["object"].is_object() => {
                self.normalize_events(vec![event])
            }
            Some(mut body) => {
                // A controller writes it in Kubernetes, the create itself here.
                if reply.code == 201 && body["kind"] == "CustomResourceDefinition" {
                    body["status"] = Value::Null;
                }
                self.normalize_document(body)
            }
            None => {
                let lines = reply.text();
                let documents: Option<Vec<Value>> = lines
                    .lines()
                    .map(|line| machinery::json::from_str(line).ok())
                    .collect();
                match documents {
                    Some(events) => self.normalize_events(events),
                    None => json!(self.normalize_text(&lines)),
                }
            }
        };
        let warnings: Vec<String> = reply
            .warnings
            .iter()
            .map(|w| self.normalize_text(w))
            .collect();
        json!({
            "code": reply.code,
            "contentType": reply.content_type,
            "warnings": warnings,
            "body": body,
        })
    }

    fn normalize_events(&mut self, events: Vec<Value>) -> Value {
        let compared = events
            .into_iter()
            .filter(|event| !is_periodic_bookmark(event));
        Value::Array(
            compared
                .map(|event| self.normalize_document(event))
                .collect(),
        )
    }

    fn normalize_document(&mut self, document: Value) -> Value {
        self.remember(&document);
        if document["object"].is_object() {
            self.remember(&document["object"]);
        }
        self.normalize_value("", document)
    }

    fn remember(&mut self, document: &Value) {
        let metadata = &document["metadata"];
        for (name, field) in [
            ("rv", "resourceVersion"),
            ("uid", "uid"),
            ("continue", "continue"),
        ] {
            if let Some(value) = metadata[field].as_str().filter(|v| !v.is_empty()) {
                self.last.insert(name, value.to_owned());
                if name == "rv" {
                    self.last
                        .entry("first-rv")
                        .or_insert_with(|| value.to_owned());
                }
            }
        }
    }

    fn normalize_value(&mut self, key: &str, value: Value) -> Value {
        match value {
            Value::Object(object) => self.normalize_object(object),
            Value::Array(list) => {
                let mut list = list;
                if key == "managedFields" {
                    // Kubernetes sorts them by their time.
                    list.sort_by_cached_key(manager_sort_key);
                }
                let list = list.into_iter();
                Value::Array(list.map(|item| self.normalize_value("", item)).collect())
            }
            Value::String(text) if !text.is_empty() => json!(self.normalize_string(key, text)),
            other => other,
        }
    }

    fn normalize_object(&mut self, mut object: Map<String, Value>) -> Value {
        if !self.compare_managers {
            object.remove("managedFields");
        }
        // The version of a list depends on all writes to the server.
        if !object.contains_key("uid")
            && let Some(Value::String(version)) = object.get_mut("resourceVersion")
            && version.len() > 1
        {
            *version = "of the list".to_owned();
        }
        // No client can tell an empty token from none.
        if object.get("continue").is_some_and(|token| token == "") {
            object.remove("continue");
        }
        // The wording of documentation is each server's own.
        sort_causes(&mut object);
        let documented = ["Name", "Age"].contains(
            &object
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        );
        if documented && object.contains_key("priority") {
            object.remove("description");
        }
        let named = object.into_iter().map(|(key, value)| {
            let value = self.normalize_value(&key, value);
            (key, value)
        });
        Value::Object(named.collect())
    }

    fn normalize_string(&mut self, key: &str, text: String) -> String {
        match key {
            "uid" if UUID.is_match(&text) => {
                self.uids += usize::from(!self.names.contains_key(&text));
                let name = format!("uid {}", self.uids);
                self.names.entry(text).or_insert(name).clone()
            }
            // The versions of a new server are small; no object has one of these two.
            "resourceVersion" if text != "0" && text != "1" && text.parse::<u64>().is_ok() => {
                let key = format!("version {text}");
                self.versions += usize::from(!self.names.contains_key(&key));
                let name = format!("version {}", self.versions);
                self.names.entry(key).or_insert(name).clone()
            }
            "continue" => "a token".to_owned(),
            _ if AGE.is_match(&text) => "an age".to_owned(),
            _ if is_recent(&text) => "a time".to_owned(),
            _ => self.normalize_text(&sort_schema_errors(&text)),
        }
    }

    fn normalize_text(&self, text: &str) -> String {
        let text = UUID.replace_all(text, |captures: &regex::Captures<'_>| {
            let name = self.names.get(&captures[0]);
            name.cloned().unwrap_or_else(|| "another uid".to_owned())
        });
        // The reference keeps its objects below a prefix of its own.
        let text = text.replace("/registry/apiextensions.kubernetes.io/", "/registry/");
        let text = YAML_ERROR.replace_all(&text, "${1}a reason");
        let text = JSON_ERROR.replace_all(&text, "not JSON");
        let text = CONTINUE_IN_MESSAGE.replace_all(&text, "a token");
        let text = TIME_IN_MESSAGE.replace_all(&text, |captures: &regex::Captures<'_>| {
            let time = &captures[0];
            if is_recent(time) {
                "a time".to_owned()
            } else {
                time.to_owned()
            }
        });
        let text = match self.compare_managers {
            true => text,
            false => MANAGERS_IN_MESSAGE
                .replace_all(&text, "")
                .into_owned()
                .into(),
        };
        if !text
            .to_lowercase()
            .replace(' ', "")
            .contains("resourceversion")
        {
            return text.into_owned();
        }
        VERSION_IN_MESSAGE.replace_all(&text, "${1}N").into_owned()
    }
}

/// Kubernetes reports the errors of several fields in the order of a Go map, and some of custom
/// resources twice. The message of a Status repeats them.
fn sort_causes(status: &mut Map<String, Value>) {
    let Some(causes) = status
        .get_mut("details")
        .and_then(|d| d.get_mut("causes")?.as_array_mut())
    else {
        return;
    };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_cached_key(ToString::to_string);
    causes.dedup();
    let repeated = match causes.as_slice() {
        [one] => one["field"].as_str().zip(one["message"].as_str()),
        _ => None,
    };
    let repeated = repeated.map(|(field, message)| format!(": {field}: {message}"));
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(at) = message.find(": [")
    {
        message.replace_range(at.., repeated.as_deref().unwrap_or(": [the causes]"));
    }
}

/// Bookmarks other than that after the initial events come by the server's clock: Kubernetes
/// sends one within 1.25 seconds of the start of such a watch, or none if it ends before.
fn is_periodic_bookmark(event: &Value) -> bool {
    let annotations = &event["object"]["metadata"]["annotations"];
    event["type"] == "BOOKMARK" && annotations["k8s.io/initial-events-end"].is_null()
}

/// Times of this run, not the times that a case has in its fields.
fn is_recent(text: &str) -> bool {
    let Ok(time) = text.parse::<Timestamp>() else {
        return false;
    };
    time.duration_since(Timestamp::now()).abs() < SignedDuration::from_hours(24)
}

fn manager_sort_key(entry: &Value) -> String {
    let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    [
        field("manager"),
        field("operation"),
        field("apiVersion"),
        field("subresource"),
    ]
    .join("/")
}

/// Kubernetes reports the errors of fields in the order of a Go map.
fn sort_schema_errors(text: &str) -> String {
    let Some((start, errors)) = text.split_once(SCHEMA_ERRORS) else {
        return text.to_owned();
    };
    let mut errors: Vec<&str> = errors.split('\n').collect();
    errors.sort_unstable();
    [start, SCHEMA_ERRORS, &errors.join("\n")].concat()
}
