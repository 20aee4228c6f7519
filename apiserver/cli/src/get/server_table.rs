//! The Tables that servers answer with (`meta.k8s.io/v1`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A `meta.k8s.io/v1` Table.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Table {
    pub(super) kind: String,
    pub(super) metadata: TableMeta,
    /// `null` in the later events of a watch.
    #[serde(deserialize_with = "null_as_default")]
    pub(super) column_definitions: Vec<ColumnDefinition>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) rows: Vec<TableRow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TableMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ColumnDefinition {
    pub(super) name: String,
    pub(super) priority: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TableRow {
    pub(super) cells: Vec<Value>,
    pub(super) object: RowObject,
}

/// The metadata of a row's object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RowObject {
    pub(super) metadata: RowMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RowMeta {
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
}

fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
