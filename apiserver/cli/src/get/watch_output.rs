//! Prints the rows of a watch: on a terminal as one table, which is drawn anew with each
//! change, elsewhere line by line.

use std::collections::BTreeMap;

use client::ApiResource;

use super::server_table::{ColumnDefinition, Table};
use super::tables::{ColumnOptions, ResourceRows, RowSource};
use crate::output::{self, RedrawnText};
use crate::printers::{fit_widths, format_line, format_lines};

/// Rows of a server.
pub(super) struct WatchedTable {
    pub(super) cluster: String,
    pub(super) is_control_plane: bool,
    pub(super) resource: ApiResource,
    pub(super) event: String,
    pub(super) table: Table,
}

/// Whether a row is of a member, its cluster, namespace and name: the order of a screen.
type RowKey = (bool, String, String, String);

enum WatchOutput {
    /// Lines below each other; columns only grow.
    Lines { widths: Vec<usize> },
    Screen {
        header: Vec<String>,
        lines: BTreeMap<RowKey, Vec<String>>,
        text: RedrawnText,
    },
}

pub(super) struct WatchPrinter {
    options: ColumnOptions,
    /// The columns of the first table, once there is one.
    columns: Option<Vec<ColumnDefinition>>,
    output: WatchOutput,
}

impl WatchPrinter {
    /// With `in_place` the objects that exist are one table, else each event is a line.
    pub(super) fn new(options: ColumnOptions, in_place: bool) -> Self {
        let output = match in_place {
            true => WatchOutput::Screen {
                header: Vec::new(),
                lines: BTreeMap::new(),
                text: RedrawnText::default(),
            },
            false => WatchOutput::Lines { widths: Vec::new() },
        };
        Self {
            options,
            columns: None,
            output,
        }
    }

    /// Prints the lines, or keeps them for the next [`Self::draw`].
    pub(super) fn add(&mut self, watched: &WatchedTable) {
        let is_first = self.columns.is_none();
        let definitions = &watched.table.column_definitions;
        let columns = self.columns.get_or_insert_with(|| definitions.clone());
        let own = match definitions.as_slice() {
            [] => columns.as_slice(),
            own => own,
        };
        let mut rows = ResourceRows::new(&watched.resource, &self.options, false, columns);
        let source = RowSource {
            cluster: &watched.cluster,
            is_control_plane: watched.is_control_plane,
            event: &watched.event,
        };
        for row in &watched.table.rows {
            rows.add(own, row, source);
        }
        let (new_header, new_lines) = (rows.header, rows.lines);
        match &mut self.output {
            WatchOutput::Lines { widths } => {
                if is_first && !self.options.no_headers {
                    fit_widths(widths, std::slice::from_ref(&new_header));
                    fit_widths(widths, &new_lines);
                    output::print_line(format_line(&new_header, widths));
                }
                fit_widths(widths, &new_lines);
                for line in &new_lines {
                    output::print_line(format_line(line, widths));
                }
            }
            WatchOutput::Screen { header, lines, .. } => {
                *header = new_header;
                for (row, line) in watched.table.rows.iter().zip(new_lines) {
                    let metadata = &row.object.metadata;
                    let key = (
                        !watched.is_control_plane,
                        watched.cluster.clone(),
                        metadata.namespace.clone(),
                        metadata.name.clone(),
                    );
                    match watched.event.as_str() {
                        "DELETED" => lines.remove(&key),
                        _ => lines.insert(key, line),
                    };
                }
            }
        }
    }

    /// Draws the table of all rows, if it is on a screen.
    pub(super) fn draw(&mut self) {
        if let WatchOutput::Screen {
            header,
            lines,
            text,
        } = &mut self.output
        {
            let shown: Vec<Vec<String>> = lines.values().cloned().collect();
            let header = (!self.options.no_headers).then_some(&*header);
            text.print(format_lines(header, &shown).trim_end_matches('\n'));
        }
    }
}
