//! Inserts and reads rows of the history, whose values are whole or deltas.

use bytes::Bytes;
use machinery::delta_codec;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::database::SqlRevision;
use super::delta_encoder::{DeltaEncoder, StoredValue};

/// The columns of [`read_stored`], in a query of `history` with [`BASE_JOIN`].
pub(super) const VALUE_COLUMNS: &str = "history.value, history.base, base.value";
/// Adds the base of a row.
pub(super) const BASE_JOIN: &str = "LEFT JOIN base ON base.id = history.base";

/// The columns of a row.
pub(super) struct HistoryRow<'a> {
    pub(super) revision: u64,
    pub(super) key: &'a str,
    /// The revision of the row that it replaces; 0: none.
    pub(super) previous: u64,
    pub(super) expires: Option<i64>,
    /// `None`: deleted.
    pub(super) value: Option<&'a Bytes>,
}

impl HistoryRow<'_> {
    /// Inserts the row in the open transaction. Returns the bytes that store its value.
    pub(super) fn insert(
        &self,
        connection: &Connection,
        deltas: &mut DeltaEncoder,
    ) -> rusqlite::Result<usize> {
        let previous = SqlRevision(self.previous);
        let stored = match self.value {
            Some(value) => deltas.encode(connection, self.key, previous, value)?,
            None => StoredValue::Whole,
        };
        let (bytes, base, added_bytes) = match &stored {
            StoredValue::Whole => (self.value.map(|value| &**value), None, 0),
            StoredValue::Delta {
                base,
                delta,
                added_bytes,
            } => (Some(&**delta), Some(*base), *added_bytes),
        };
        connection
            .prepare_cached(
                "INSERT INTO history (revision, key, previous, expires, value, base) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                SqlRevision(self.revision),
                self.key,
                previous,
                self.expires,
                bytes,
                base
            ])?;
        Ok(bytes.map_or(0, <[u8]>::len) + added_bytes)
    }
}

/// The value of a row whose [`VALUE_COLUMNS`] begin at the column `first`; `None`: deleted.
pub(super) fn read_stored(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Bytes>> {
    let Some(stored) = row.get_ref(first)?.as_blob_or_null()? else {
        return Ok(None);
    };
    if row.get::<_, Option<i64>>(first + 1)?.is_none() {
        return Ok(Some(Bytes::copy_from_slice(stored)));
    }
    let base = row.get_ref(first + 2)?.as_blob()?;
    let value = delta_codec::decode(base, stored)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(first, Type::Blob, e.into()))?;
    Ok(Some(value.into()))
}
