//! Holds the columns of a built-in kind and the functions that print its objects.

use serde_json::Value;

use super::printer_input::PrinterInput;

/// Name and type (a type of JSON Schema) of a column.
pub(super) type ColumnHeader = (&'static str, &'static str);

/// The columns of a kind, and how its objects are printed.
pub(super) struct PrintHandler {
    pub(super) columns: &'static [ColumnHeader],
    /// The names of the columns that only `-o wide` shows.
    pub(super) wide_columns: &'static [&'static str],
    pub(super) cells: fn(&PrinterInput<'_>) -> Vec<Value>,
}
