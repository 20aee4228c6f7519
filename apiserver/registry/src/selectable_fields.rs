//! The fields by which objects of a kind can be selected, and how their values are read from
//! the encoded object without decoding the rest (`pkg/apis/core/v1/conversion.go` and its
//! siblings).

use std::borrow::Cow;
use std::fmt;

use machinery::Object;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A field that field selectors support.
#[derive(Clone, Debug)]
pub(crate) struct SelectableField {
    /// The field label in selectors.
    pub(crate) label: Cow<'static, str>,
    /// The paths in the stored object; the first that is not empty counts.
    paths: Vec<Vec<Cow<'static, str>>>,
    /// The value of an absent field.
    absent_value: &'static str,
}

impl SelectableField {
    /// `paths` are separated by `|`.
    fn new(label: &'static str, paths: &'static str, absent_value: &'static str) -> Self {
        let fields = |path: &'static str| path.split('.').map(Cow::Borrowed).collect();
        Self {
            label: label.into(),
            paths: paths.split('|').map(fields).collect(),
            absent_value,
        }
    }

    /// A field of a custom resource (`spec.versions[].selectableFields`).
    pub(crate) fn custom(json_path: &str) -> Self {
        let label = json_path.trim_start_matches('.').to_owned();
        Self {
            paths: vec![label.split('.').map(|s| Cow::Owned(s.to_owned())).collect()],
            label: label.into(),
            absent_value: "",
        }
    }

    /// The value of the field in an object.
    #[expect(
        clippy::disallowed_methods,
        reason = "descends along its own path only"
    )]
    pub(crate) fn value(&self, object: &Object) -> String {
        let bytes = object.bytes();
        let read = |path: &Vec<_>| {
            let mut de = serde_json::Deserializer::from_slice(&bytes);
            let value = (FieldPathSeed { path }).deserialize(&mut de).ok()?;
            value.filter(|text| !text.is_empty())
        };
        let mut values = self.paths.iter().filter_map(read);
        values
            .next()
            .unwrap_or_else(|| self.absent_value.to_owned())
    }
}

const POD_FIELDS: &[(&str, &str)] = &[
    ("spec.nodeName", ""),
    ("spec.restartPolicy", ""),
    ("spec.schedulerName", ""),
    ("spec.serviceAccountName", ""),
    ("spec.hostNetwork", "false"),
    ("status.phase", ""),
    ("status.podIP", ""),
    ("status.nominatedNodeName", ""),
];

const CORE_EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    (
        "involvedObject.resourceVersion",
        "involvedObject.resourceVersion",
    ),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component|reportingComponent"),
    ("type", "type"),
];

const EVENTS_V1_FIELDS: &[(&str, &str)] = &[
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("regarding.apiVersion", "involvedObject.apiVersion"),
    (
        "regarding.resourceVersion",
        "involvedObject.resourceVersion",
    ),
    ("regarding.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];

/// The selectable fields of a built-in resource, in addition to `metadata.name` and
/// `metadata.namespace`.
pub(crate) fn built_in_fields(group: &str, resource: &str) -> Vec<SelectableField> {
    let fields_of = |table: &'static [(&'static str, &'static str)]| {
        table
            .iter()
            .map(|(label, absent)| SelectableField::new(label, label, absent))
            .collect()
    };
    let mapped = |table: &'static [(&'static str, &'static str)]| {
        table
            .iter()
            .map(|(label, path)| SelectableField::new(label, path, ""))
            .collect()
    };
    match (group, resource) {
        ("", "pods") => fields_of(POD_FIELDS),
        ("", "events") => mapped(CORE_EVENT_FIELDS),
        ("events.k8s.io", "events") => mapped(EVENTS_V1_FIELDS),
        ("", "secrets") => fields_of(&[("type", "")]),
        ("", "namespaces") => {
            mapped(&[("status.phase", "status.phase"), ("name", "metadata.name")])
        }
        ("", "services") => fields_of(&[("spec.clusterIP", ""), ("spec.type", "")]),
        ("", "nodes") => fields_of(&[("spec.unschedulable", "false")]),
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            fields_of(&[("status.replicas", "0")])
        }
        ("batch", "jobs") => fields_of(&[("status.successful", "0")]),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            fields_of(&[("spec.signerName", "")])
        }
        _ => Vec::new(),
    }
}

/// Reads the value at a path and skips other values without allocating.
struct FieldPathSeed<'a> {
    path: &'a [Cow<'static, str>],
}

impl<'de> DeserializeSeed<'de> for FieldPathSeed<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldPathSeed<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match self.path.split_first() {
                Some((head, rest)) if **head == *key => {
                    value = map.next_value_seed(FieldPathSeed { path: rest })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(self.path.is_empty().then(|| v.to_owned()))
    }

    fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
        Ok(self.path.is_empty().then(|| v.to_string()))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(self.path.is_empty().then(|| v.to_string()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(self.path.is_empty().then(|| v.to_string()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
        Ok(self.path.is_empty().then(|| v.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_read_from_encoded_objects() {
        let pod = json!({"metadata": {"name": "a"}, "x": [{"spec": 1}],
            "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"nodeName": "no"}]}});
        let pod = Object::from_value(&pod).unwrap();
        let fields = built_in_fields("", "pods");
        let get = |label: &str| {
            fields
                .iter()
                .find(|f| f.label == label)
                .map(|f| f.value(&pod))
        };
        let table = [
            ("spec.nodeName", Some("n1")),
            ("spec.hostNetwork", Some("true")),
            ("status.phase", Some("")),
            ("spec.containers", None),
        ];
        for (label, expected) in table {
            assert_eq!(get(label).as_deref(), expected, "{label}");
        }
        let event =
            Object::from_value(&json!({"metadata": {}, "involvedObject": {"name": "p"}})).unwrap();
        let new = built_in_fields("events.k8s.io", "events");
        let field = new.iter().find(|f| f.label == "regarding.name").unwrap();
        assert_eq!(field.value(&event), "p");
    }
}
