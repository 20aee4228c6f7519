//! The Tables that servers answer with (`meta.k8s.io/v1`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::sort::{SortField, SortKey};

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
    /// The field of the object by which rows are sorted, if they are.
    #[serde(skip)]
    pub(super) sort_key: Option<SortKey>,
}

impl Table {
    /// Decodes a Table; with a field to sort by, whose rows have whole objects.
    pub(super) fn decode(body: &[u8], sort_by: Option<&SortField>) -> serde_json::Result<Self> {
        let Some(field) = sort_by else {
            return machinery::json::from_slice(body);
        };
        let value: Value = machinery::json::from_slice(body)?;
        let rows = value["rows"].as_array();
        let keys = rows.into_iter().flatten();
        let keys: Vec<SortKey> = keys.map(|row| field.key_of(&row["object"])).collect();
        let mut table: Self = serde_json::from_value(value)?;
        for (row, key) in table.rows.iter_mut().zip(keys) {
            row.sort_key = Some(key);
        }
        Ok(table)
    }
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
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
}

fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
