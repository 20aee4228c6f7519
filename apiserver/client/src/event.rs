//! Events (core/v1) in the form in which they are created.
//!
//! The fields serialize in the order in which objects are stored. What the server sets
//! (uid, creation time) stays empty.

use std::sync::Arc;

use machinery::names::validate_dns1123_subdomain;
use machinery::{Gvr, Object};
use serde::{Deserialize, Serialize};

/// The name of an event about an object: `OBJECT.NANOSECONDS`. The names of some kinds, such as
/// roles, are no names of events, or too long; their events are named at random, as client-go
/// does (`tools/record/util`).
pub fn event_name(object: &str, nanoseconds: i128) -> String {
    let name = format!("{object}.{nanoseconds:x}");
    match validate_dns1123_subdomain(&name) {
        Ok(()) => name,
        Err(_) => format!("{:032x}", rand::random::<u128>()),
    }
}

/// The resource of [`CoreEvent`].
pub static EVENTS: Gvr = Gvr::from_static("", "v1", "events");

/// The object that an event is about (`involvedObject`, an `ObjectReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvolvedObject {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Empty in cluster scope; the event is then created in the namespace `default`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InvolvedObjectTypeMeta {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

impl InvolvedObject {
    pub fn new(api_version: &str, kind: &str, object: &Object) -> Self {
        let resource_version = match object.revision() {
            0 => String::new(),
            n => n.to_string(),
        };
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            resource_version,
        }
    }

    /// Reads `apiVersion` and `kind` from the object's bytes.
    pub fn from_object(object: &Object) -> Self {
        match machinery::json::from_slice::<InvolvedObjectTypeMeta>(&object.bytes()) {
            Ok(t) => Self::new(&t.api_version, &t.kind, object),
            Err(_) => Self::new("", "", object),
        }
    }
}

/// A new event. The fields are in alphabetical order, in which objects are stored.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreEvent {
    api_version: &'static str,
    pub count: u64,
    /// RFC 3339 with seconds.
    pub first_timestamp: String,
    pub involved_object: InvolvedObject,
    kind: &'static str,
    pub last_timestamp: String,
    pub message: String,
    pub metadata: CoreEventObjectMeta,
    pub reason: String,
    pub reporting_component: Arc<str>,
    /// Empty, but always present.
    reporting_instance: &'static str,
    source: EventSource,
    /// `Normal` or `Warning`.
    r#type: &'static str,
}

/// The metadata of an event; the server sets `creationTimestamp` and `uid`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreEventObjectMeta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub creation_timestamp: String,
    pub name: String,
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

#[derive(Clone, Debug, Serialize)]
struct EventSource {
    component: Arc<str>,
}

impl CoreEvent {
    /// An event with `count` 1 and both timestamps at `now`. Without a namespace in
    /// `about` it goes to the namespace `default`.
    pub fn new(component: &Arc<str>, about: InvolvedObject, warning: bool, now: &str) -> Self {
        let namespace = match about.namespace.as_str() {
            "" => "default",
            own => own,
        };
        let metadata = CoreEventObjectMeta {
            namespace: namespace.to_owned(),
            ..CoreEventObjectMeta::default()
        };
        Self {
            api_version: "v1",
            count: 1,
            first_timestamp: now.to_owned(),
            involved_object: about,
            kind: "Event",
            last_timestamp: now.to_owned(),
            message: String::new(),
            metadata,
            reason: String::new(),
            reporting_component: Arc::clone(component),
            reporting_instance: "",
            source: EventSource {
                component: Arc::clone(component),
            },
            r#type: if warning { "Warning" } else { "Normal" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_any_object_have_valid_names() {
        assert_eq!(event_name("web-1", 255), "web-1.ff");
        let long = "x".repeat(253);
        for object in ["system:node", "Web_1", "a.", "", &long] {
            let name = event_name(object, 255);
            assert_eq!(validate_dns1123_subdomain(&name), Ok(()), "{name}");
            assert_ne!(name, event_name(object, 255));
        }
    }
}
