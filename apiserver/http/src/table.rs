//! Renders objects as `Table` rows and `PartialObjectMetadata`, the representations
//! that kubectl and metadata clients ask for. Does no I/O.

use std::sync::Arc;

use bytes::Bytes;
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use machinery::{Object, Status, go_format};
use openapi::KindInfo;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use table_printers::TableColumnDefinition;

/// The object that a row of a table carries besides its cells (meta/v1 `IncludeObjectPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObjectPolicy {
    None,
    Metadata,
    Object,
}

impl IncludeObjectPolicy {
    /// Parses the `includeObject` query parameter. Fails with 400 when it is unknown.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                go_format::quoted(other)
            ))),
        }
    }
}

pub(crate) fn meta_api_version(beta: bool) -> &'static str {
    if beta {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    }
}

/// The `metadata` of a list, as JSON text. Only a list of objects that are not stored has no
/// revision.
pub(crate) fn list_metadata(
    revision: Option<u64>,
    next: Option<&str>,
    remaining: Option<u64>,
) -> String {
    let Some(revision) = revision else {
        return "{}".to_owned();
    };
    let mut text = format!("{{\"resourceVersion\":\"{revision}\"");
    if let Some(next) = next.filter(|n| !n.is_empty()) {
        text.push_str(",\"continue\":");
        text.push_str(&Value::from(next).to_string());
    }
    if let Some(remaining) = remaining {
        text.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    text.push('}');
    text
}

/// The kind of the rows of a table.
#[derive(Clone, Copy)]
pub(crate) struct TableKind<'a> {
    pub(crate) kind: &'a KindInfo,
    /// Whether the first column is the cluster of each object.
    pub(crate) with_cluster: bool,
}

impl<'a> From<&'a KindInfo> for TableKind<'a> {
    fn from(kind: &'a KindInfo) -> Self {
        Self {
            kind,
            with_cluster: false,
        }
    }
}

impl<'a> From<&'a Arc<KindInfo>> for TableKind<'a> {
    fn from(kind: &'a Arc<KindInfo>) -> Self {
        (&**kind).into()
    }
}

/// A table up to its rows. With `columns` false the column definitions are null, as in
/// every watch event but the first.
pub(crate) fn table_opening<'a>(
    kind: impl Into<TableKind<'a>>,
    beta: bool,
    metadata: &str,
    columns: bool,
) -> String {
    let TableKind { kind, with_cluster } = kind.into();
    let definitions = if columns {
        let mut headers = table_printers::columns(kind);
        if with_cluster {
            let cluster = TableColumnDefinition::new("Cluster", "string");
            let text = "The member cluster in which the object is.";
            headers.insert(0, cluster.with_description(text));
        }
        serde_json::to_string(&headers).unwrap_or_else(|_| "[]".into())
    } else {
        "null".into()
    };
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":{:?},\"metadata\":{metadata},\"columnDefinitions\":{definitions},\"rows\":[",
        meta_api_version(beta)
    )
}

/// One row of a table.
pub(crate) fn table_row<'a>(
    kind: impl Into<TableKind<'a>>,
    object: &Object,
    include: IncludeObjectPolicy,
    beta: bool,
    now: jiff::Timestamp,
) -> Result<String, Status> {
    let TableKind { kind, with_cluster } = kind.into();
    let value = object
        .value()
        .map_err(|e| registry::decode_failure(kind, object, e))?;
    let mut cells = table_printers::cells(kind, &value, now);
    if with_cluster {
        let cluster = &value["metadata"]["annotations"][CACHED_FROM_CLUSTER];
        cells.insert(0, cluster.clone());
    }
    let cells = Value::Array(cells);
    let mut text = format!("{{\"cells\":{cells},\"object\":");
    match include {
        IncludeObjectPolicy::None => text.push_str("null"),
        IncludeObjectPolicy::Metadata => {
            let partial = partial_object_metadata(object, beta)?;
            text.push_str(std::str::from_utf8(&partial).map_err(Status::internal)?);
        }
        IncludeObjectPolicy::Object => {
            text.push_str(std::str::from_utf8(&object.served_bytes()).map_err(Status::internal)?);
        }
    }
    text.push('}');
    Ok(text)
}

#[derive(Deserialize)]
struct ObjectWithRawMetadata<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Builds PartialObjectMetadata by splicing the metadata from the object's bytes.
pub(crate) fn partial_object_metadata(object: &Object, beta: bool) -> Result<Bytes, Status> {
    let bytes = object.served_bytes();
    let outer: Result<ObjectWithRawMetadata<'_>, _> = machinery::json::from_slice(&bytes);
    let outer = outer.map_err(|e| {
        let key = object.meta().key();
        Status::internal(format_args!("unable to read the metadata of {key:?}: {e}"))
    })?;
    let metadata = outer.metadata.map_or("{}", RawValue::get);
    Ok(format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":{:?},\"metadata\":{metadata}}}",
        meta_api_version(beta)
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_metadata_is_spliced() {
        let o = Object::from_json(
            r#"{"kind":"X","metadata":{"name":"a","resourceVersion":"3"},"spec":{}}"#.into(),
        )
        .unwrap();
        let actual: Value =
            machinery::json::from_slice(&partial_object_metadata(&o, false).unwrap()).unwrap();
        assert_eq!(
            actual,
            serde_json::json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "a", "resourceVersion": "3"}})
        );
        assert_eq!(
            list_metadata(Some(7), Some("t"), Some(2)),
            r#"{"resourceVersion":"7","continue":"t","remainingItemCount":2}"#
        );
        assert!(IncludeObjectPolicy::parse(Some("x")).is_err());
    }
}
