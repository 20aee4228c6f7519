//! Reads fields of an object for printing, and formats them as cells.

use jiff::Timestamp;
use machinery::selector::LabelSelector;
use machinery::time;
use serde_json::{Map, Value};

use crate::age;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";

/// An object being printed.
pub(super) struct PrinterInput<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> PrinterInput<'a> {
    /// The value at a JSON pointer; `null` if absent.
    pub(super) fn value(&self, pointer: &str) -> &'a Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.value(pointer).as_str().unwrap_or_default()
    }

    pub(super) fn text_or(&self, pointer: &str, otherwise: &'static str) -> &'a str {
        match self.text(pointer) {
            "" => otherwise,
            text => text,
        }
    }

    pub(super) fn number(&self, pointer: &str) -> i64 {
        self.value(pointer).as_i64().unwrap_or_default()
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        list(self.value(pointer))
    }

    pub(super) fn count(&self, pointer: &str) -> usize {
        match self.value(pointer) {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    pub(super) fn age(&self) -> Value {
        self.since(self.text("/metadata/creationTimestamp")).into()
    }

    /// Time since a timestamp; `<unknown>` if it is empty.
    pub(super) fn since(&self, timestamp: &str) -> String {
        age(timestamp, self.now)
    }

    pub(super) fn is_deleting(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    /// Names and images of the containers in a pod spec, each joined by commas.
    pub(super) fn containers(&self, pod_spec: &str) -> (Value, Value) {
        let containers = self.list(&format!("{pod_spec}/containers"));
        let joined = |field| join(containers.iter().map(|c| string(&c[field])), ",");
        (joined("name").into(), joined("image").into())
    }

    /// A label selector in query syntax; empty if it selects everything.
    pub(super) fn selector(&self, pointer: &str) -> String {
        LabelSelector::from_value(self.value(pointer))
            .map(|selector| selector.to_string())
            .unwrap_or_default()
    }

    /// Whether a status condition is `True`.
    pub(super) fn condition(&self, kind: &str) -> bool {
        condition(self.value("/status/conditions"), kind) == Some("True")
    }
}

/// The status of the condition of this type.
pub(super) fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a str> {
    let condition_of_kind = list(conditions).iter().find(|c| c["type"] == kind)?;
    condition_of_kind["status"].as_str()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A string or a number as text; empty for other values.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

pub(super) fn join<'a>(parts: impl Iterator<Item = &'a str>, separator: &str) -> String {
    parts.collect::<Vec<_>>().join(separator)
}

/// `text`, or `otherwise` if it is empty.
pub(super) fn or_default(text: String, otherwise: &str) -> String {
    if text.is_empty() {
        otherwise.to_owned()
    } else {
        text
    }
}

/// Labels as `a=b,c=d`, or `<none>`.
pub(super) fn format_labels(value: &Value) -> String {
    let pairs = |map: &Map<String, Value>| {
        let pairs: Vec<_> = map
            .iter()
            .map(|(key, value)| format!("{key}={}", string(value)))
            .collect();
        pairs.join(",")
    };
    or_default(value.as_object().map(pairs).unwrap_or_default(), NONE)
}

/// The first three parts, and the number of further ones.
pub(super) fn first_three(parts: &[String], otherwise: &str) -> String {
    const SHOWN: usize = 3;
    if parts.is_empty() {
        return otherwise.to_owned();
    }
    let listed = parts[..parts.len().min(SHOWN)].join(",");
    match parts.len().saturating_sub(SHOWN) {
        0 => listed,
        more => format!("{listed} + {more} more..."),
    }
}

/// `True`, `False` or `<unset>`.
pub(super) fn format_bool(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
}

/// The time between two timestamps; `None` if the second is missing.
pub(super) fn elapsed(from: &str, to: &str) -> Option<String> {
    Some(age(from, time::parse(to).ok()?))
}

/// `kind.group`, or `kind` in the core group, in lower case.
pub(super) fn lower_kind(api_version: &str, kind: &str) -> String {
    let (group, _) = machinery::names::split_api_version(api_version);
    machinery::names::join_group(&kind.to_lowercase(), group)
}
