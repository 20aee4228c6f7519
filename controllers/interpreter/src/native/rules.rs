//! The rules of a native kind, and what they share.

use jiff::Timestamp;
use machinery::Object;
use serde_json::{Map, Value};

use crate::error::Error;

/// How many replicas a template asks for, and what each of them requires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateReplicas {
    pub count: i64,
    /// `ReplicaRequirements` of `work.karmada.io/v1alpha2`; absent when a replica has no
    /// requirements.
    pub requirements: Option<Value>,
}

/// The status that one cluster reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CollectedStatus<'a> {
    pub(crate) cluster: &'a str,
    /// Absent until a status was collected.
    pub(crate) status: Option<&'a Value>,
    /// Whether the cluster's copy was interpreted as healthy.
    pub(crate) healthy: bool,
    /// Whether the binding no longer places the template in this cluster: its copy counts until
    /// it is removed, but the template does not wait for it.
    pub(crate) leaving: bool,
}

#[cfg(test)]
impl<'a> CollectedStatus<'a> {
    pub(crate) fn new(cluster: &'a str, status: Option<&'a Value>) -> Self {
        Self {
            cluster,
            status,
            ..Self::default()
        }
    }
}

/// The rules of one kind. A method that a kind does not implement returns `None`: the hook is not
/// enabled.
pub(crate) trait NativeRules: Sync {
    fn replicas(&self, _object: &Object) -> Result<Option<TemplateReplicas>, Error> {
        Ok(None)
    }

    /// The field of the spec that holds the number of replicas.
    fn replica_field(&self) -> Option<&'static str> {
        None
    }

    fn retain(&self, _desired: &mut Value, _observed: &Value) -> Result<(), Error> {
        Ok(())
    }

    fn interpret_health(&self, _observed: &Object) -> Result<Option<bool>, Error> {
        Ok(None)
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        reflect_whole_status(observed)
    }

    fn aggregate_status(
        &self,
        _template: &Object,
        _items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        Ok(None)
    }
}

#[derive(serde::Deserialize)]
struct ObjectWithStatus {
    status: Option<Value>,
}

/// The whole status of an object (Karmada's `reflectWholeStatus`).
pub(crate) fn reflect_whole_status(observed: &Object) -> Result<Option<Value>, Error> {
    let object: ObjectWithStatus = parse_object(observed, "status")?;
    Ok(object.status.filter(|s| !s.is_null()))
}

/// Deserializes the fields that a rule needs from the bytes of an object.
pub(crate) fn parse_object<T: serde::de::DeserializeOwned>(
    object: &Object,
    what: &'static str,
) -> Result<T, Error> {
    machinery::json::from_slice(&object.bytes()).map_err(|e| Error::Malformed {
        what,
        source: e.into(),
    })
}

/// Deserializes the status that one cluster reported.
pub(crate) fn parse_collected_status<T: serde::de::DeserializeOwned>(
    item: &CollectedStatus<'_>,
    status: &Value,
) -> Result<T, Error> {
    T::deserialize(status).map_err(|source| Error::Status {
        cluster: item.cluster.to_owned(),
        source,
    })
}

/// The fields of the status that one cluster reported. Fails when it is not an object.
pub(crate) fn collected_fields<'a>(
    item: &CollectedStatus<'a>,
) -> Result<Option<&'a Map<String, Value>>, Error> {
    let Some(status) = item.status else {
        return Ok(None);
    };
    match status.as_object() {
        Some(fields) => Ok(Some(fields)),
        None => parse_collected_status::<Map<String, Value>>(item, status).map(|_| None),
    }
}

/// A counter in the status that one cluster reported; zero when absent. Fails when it is not an
/// integer.
pub(crate) fn collected_counter(
    item: &CollectedStatus<'_>,
    status: &Map<String, Value>,
    field: &str,
) -> Result<i64, Error> {
    let value_of_field = status.get(field).filter(|value| !value.is_null());
    value_of_field.map_or(Ok(0), |value| parse_collected_status(item, value))
}

/// Sets a field to the value that the member has; removes it when the member has none.
pub(crate) fn retain_field(at: &mut Value, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at[field] = value.clone();
        }
        None => {
            if let Some(fields) = at.as_object_mut() {
                fields.remove(field);
            }
        }
    }
}

/// Like [`retain_field`], for a field of the spec.
pub(crate) fn retain_spec_field(desired: &mut Value, field: &str, value: Option<&Value>) {
    let Some(fields) = desired.as_object_mut() else {
        return;
    };
    if value.is_some() || fields.contains_key("spec") {
        retain_field(fields.entry("spec").or_insert(Value::Null), field, value);
    }
}

/// Retains the spec fields that only the member has. An update could not remove them where the
/// spec is immutable.
pub(crate) fn retain_added_spec_fields(desired: &mut Value, observed: &Value) {
    let Some(spec) = desired.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (field, value) in observed["spec"].as_object().into_iter().flatten() {
        spec.entry(field.clone()).or_insert_with(|| value.clone());
    }
}

/// A counter of a status; zero when absent.
pub(crate) fn counter(status: &Map<String, Value>, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}
