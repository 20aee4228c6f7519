//! Prints Tables of several servers as one text: rows of the same resource under one
//! header, with the columns CLUSTER and ADOPTION.

use std::collections::BTreeMap;

use client::ApiResource;
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE};
use serde_json::Value;

use super::query::ServerAnswer;
use super::server_table::{ColumnDefinition, TableRow};
use super::sort::SortKey;
use crate::printers::format_lines;

/// Which columns are printed.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnOptions {
    pub(super) wide: bool,
    pub(super) with_namespace: bool,
    pub(super) show_kind: bool,
    pub(super) show_labels: bool,
    pub(super) label_columns: Vec<String>,
    pub(super) no_headers: bool,
    pub(super) with_event: bool,
}

/// The rows of one resource from several servers.
pub(super) struct ResourceRows<'a> {
    resource: &'a ApiResource,
    options: &'a ColumnOptions,
    with_kind: bool,
    /// The columns of the first Table; another server may have others.
    columns: Vec<ColumnDefinition>,
    pub(super) header: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

/// Where a row comes from.
#[derive(Clone, Copy)]
pub(super) struct RowSource<'a> {
    pub(super) cluster: &'a str,
    pub(super) is_control_plane: bool,
    /// The type of a watch event.
    pub(super) event: &'a str,
}

impl<'a> ResourceRows<'a> {
    pub(super) fn new(
        resource: &'a ApiResource,
        options: &'a ColumnOptions,
        with_kind: bool,
        columns: &[ColumnDefinition],
    ) -> Self {
        let is_shown = |column: &&ColumnDefinition| options.wide || column.priority == 0;
        let mut titles = columns
            .iter()
            .filter(is_shown)
            .map(|c| c.name.to_uppercase());
        let mut header = Vec::new();
        if options.with_event {
            header.push("EVENT".to_owned());
        }
        if options.with_namespace && resource.namespaced {
            header.push("NAMESPACE".to_owned());
        }
        header.extend(titles.next());
        header.push("CLUSTER".to_owned());
        header.extend(titles);
        let mut rows = Self {
            resource,
            options,
            with_kind,
            columns: columns.to_vec(),
            header,
            lines: Vec::new(),
        };
        if rows.has_adoption() {
            rows.header.push("ADOPTION".to_owned());
        }
        // kubectl's titles of label columns: the last part of the key.
        let title = |key: &String| key.rsplit('/').next().unwrap_or(key).to_uppercase();
        rows.header.extend(options.label_columns.iter().map(title));
        if options.show_labels {
            rows.header.push("LABELS".to_owned());
        }
        rows
    }

    /// karmadactl shows the adoption of pods with `-o wide` only.
    fn has_adoption(&self) -> bool {
        self.options.wide || &*self.resource.resource.resource != "pods"
    }

    /// Adds a row of a Table with these columns, which are matched by name.
    pub(super) fn add(
        &mut self,
        columns: &[ColumnDefinition],
        row: &TableRow,
        source: RowSource<'_>,
    ) {
        let metadata = &row.object.metadata;
        let mut line = Vec::with_capacity(self.header.len());
        if self.options.with_event {
            line.push(source.event.to_owned());
        }
        if self.options.with_namespace && self.resource.namespaced {
            line.push(metadata.namespace.clone());
        }
        let shown = self
            .columns
            .iter()
            .filter(|c| self.options.wide || c.priority == 0);
        let mut cells = shown.map(|column| {
            let at = columns.iter().position(|other| other.name == column.name);
            at.and_then(|at| row.cells.get(at))
                .map(cell_text)
                .unwrap_or_default()
        });
        if let Some(name) = cells.next() {
            line.push(if self.with_kind {
                format!("{}/{name}", kind_prefix(self.resource))
            } else {
                name
            });
        }
        line.push(source.cluster.to_owned());
        line.extend(cells);
        if self.has_adoption() {
            let is_managed = metadata
                .labels
                .get(MANAGED)
                .is_some_and(|v| v == MANAGED_VALUE);
            let adoption = match (source.is_control_plane, is_managed) {
                (true, _) => "-",
                (false, true) => "Y",
                (false, false) => "N",
            };
            line.push(adoption.to_owned());
        }
        let labels = self.options.label_columns.iter();
        line.extend(labels.map(|key| metadata.labels.get(key).cloned().unwrap_or_default()));
        if self.options.show_labels {
            line.push(labels_text(&metadata.labels));
        }
        self.lines.push(line);
    }
}

fn kind_prefix(resource: &ApiResource) -> String {
    let kind = resource.kind.to_lowercase();
    match &*resource.resource.group {
        "" => kind,
        group => format!("{kind}.{group}"),
    }
}

fn labels_text(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return "<none>".to_owned();
    }
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}

/// The first line of a cell, without control characters.
fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => {
            let first = text.split(['\n', '\r', '\u{c}']).next().unwrap_or_default();
            let mut shown: String = first.chars().filter(|c| !c.is_control()).collect();
            if first.len() < text.len() {
                shown.push_str("...");
            }
            shown
        }
        other => other.to_string(),
    }
}

/// All answers as text; the rows of a resource are under one header, resources are
/// separated by an empty line.
pub(super) fn format_answers(answers: Vec<ServerAnswer>, options: &ColumnOptions) -> String {
    let mut resources: Vec<&ApiResource> = Vec::new();
    for answered in answers.iter().flat_map(|answer| &answer.resources) {
        let has_rows = answered.tables.iter().any(|table| !table.rows.is_empty());
        let is_new = !resources
            .iter()
            .any(|r| r.resource == answered.resource.resource);
        if has_rows && is_new {
            resources.push(&answered.resource);
        }
    }
    let with_kind = options.show_kind || resources.len() > 1;
    let mut text = String::new();
    for resource in resources {
        if let Some(rows) = collect_rows(&answers, resource, options, with_kind) {
            if !text.is_empty() {
                text.push('\n');
            }
            let header = (!options.no_headers).then_some(&rows.header);
            text.push_str(&format_lines(header, &rows.lines));
        }
    }
    text
}

fn collect_rows<'a>(
    answers: &[ServerAnswer],
    resource: &'a ApiResource,
    options: &'a ColumnOptions,
    with_kind: bool,
) -> Option<ResourceRows<'a>> {
    let mut rows: Option<ResourceRows<'a>> = None;
    let mut keys = Vec::new();
    for answer in answers {
        let source = RowSource {
            cluster: &answer.cluster,
            is_control_plane: answer.is_control_plane,
            event: "",
        };
        let answered = answer.resources.iter();
        let same = answered.filter(|answered| answered.resource.resource == resource.resource);
        let mut columns: &[ColumnDefinition] = &[];
        for table in same.flat_map(|answered| &answered.tables) {
            // A later page of a list has no column definitions.
            if !table.column_definitions.is_empty() {
                columns = &table.column_definitions;
            }
            let rows = rows
                .get_or_insert_with(|| ResourceRows::new(resource, options, with_kind, columns));
            for row in &table.rows {
                keys.push(row.sort_key.clone());
                rows.add(columns, row, source);
            }
        }
    }
    if let Some(rows) = &mut rows {
        sort_lines(&mut rows.lines, keys);
    }
    rows
}

/// Sorts lines by the keys of their rows; rows that are not sorted have none.
fn sort_lines(lines: &mut Vec<Vec<String>>, keys: Vec<Option<SortKey>>) {
    let mut keyed: Vec<_> = keys.into_iter().zip(lines.drain(..)).collect();
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    lines.extend(keyed.into_iter().map(|(_, line)| line));
}

#[cfg(test)]
mod tests {
    use machinery::Gvr;
    use serde_json::json;

    use super::*;
    use crate::get::server_table::Table;
    use crate::printers::{fit_widths, format_line};

    fn resource(plural: &str) -> ApiResource {
        ApiResource {
            resource: Gvr::new("apps", "v1", plural),
            kind: "Deployment".into(),
            namespaced: true,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        }
    }

    fn table(value: Value) -> Table {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn later_events_of_a_watch_have_no_column_definitions() {
        let event = table(json!({"columnDefinitions": null, "rows": null}));
        assert!(event.column_definitions.is_empty() && event.rows.is_empty());
    }

    #[test]
    fn columns_of_another_server_are_matched_by_name() {
        let (resource, options) = (resource("deployments"), ColumnOptions::default());
        let first = table(
            json!({"columnDefinitions": [{"name": "Name"}, {"name": "Ready"},
            {"name": "Image", "priority": 1}]}),
        );
        let other = table(json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "Old"}, {"name": "Ready"}],
            "rows": [{"cells": ["web", 7, "1/1\nsecond line"],
                "object": {"metadata": {"labels": {"karmada.io/managed": "true"}}}}]}));
        let mut rows = ResourceRows::new(&resource, &options, true, &first.column_definitions);
        let source = RowSource {
            cluster: "m1",
            is_control_plane: false,
            event: "",
        };
        rows.add(&other.column_definitions, &other.rows[0], source);
        assert_eq!(rows.header, ["NAME", "CLUSTER", "READY", "ADOPTION"]);
        let line = ["deployment.apps/web", "m1", "1/1...", "Y"];
        assert_eq!(rows.lines, [line]);
        let mut widths = Vec::new();
        fit_widths(&mut widths, std::slice::from_ref(&rows.header));
        assert_eq!(
            format_line(&rows.header, &widths),
            "NAME   CLUSTER   READY   ADOPTION"
        );
    }

    #[test]
    fn cells_have_one_line_without_control_characters() {
        for (cell, text) in [
            (json!(null), ""),
            (json!(3), "3"),
            (json!("a\u{1b}[31m"), "a[31m"),
            (json!("a\nb"), "a..."),
        ] {
            assert_eq!(cell_text(&cell), text);
        }
    }
}
