//! Watches one resource on several servers and prints rows as they come.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use client::ResourcePath;
use client::{Api, ApiResource, WatchOptions};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::query::{QueriedServer, Query, list_table};
use super::selection::find_resources;
use super::server_table::Table;
use super::tables::{ColumnOptions, ResourceRows, RowSource, fit_widths, format_line};
use crate::output;

/// Rows that wait for the printer.
const MAX_QUEUED_TABLES: usize = 64;

pub(super) struct WatchedOutput {
    pub(super) columns: ColumnOptions,
    /// Prints changes alone.
    pub(super) skip_initial: bool,
    pub(super) list_timeout: Duration,
}

/// Rows of a server.
struct WatchedTable {
    cluster: String,
    is_control_plane: bool,
    resource: ApiResource,
    event: String,
    table: Table,
}

#[derive(Deserialize)]
struct TableEvent {
    r#type: String,
    object: serde_json::Value,
}

/// Prints rows until every watch has ended.
pub(super) async fn watch(
    servers: Vec<QueriedServer>,
    query: &Query,
    options: WatchedOutput,
) -> anyhow::Result<()> {
    let [typed] = query.selection.types.as_slice() else {
        bail!(
            "watch is only supported on individual resources and resource collections - more than 1 resource was found"
        );
    };
    ensure!(
        typed.objects.len() <= 1,
        "watch is only supported on individual resources and resource collections - more than 1 resource was found"
    );
    let (sender, mut receiver) = mpsc::channel(MAX_QUEUED_TABLES);
    let watches = servers.iter().map(|server| {
        let sender = sender.clone();
        let options = &options;
        async move {
            let watched = watch_server(server, query, options, sender).await;
            if let Err(error) = &watched {
                output::print_progress(format!(
                    "Warning: cluster({}) is not watched: {error:#}",
                    server.name
                ));
            }
            watched.is_ok()
        }
    });
    let watches: Vec<_> = watches.collect();
    drop(sender);
    let print = async {
        let mut printer = WatchPrinter::default();
        while let Some(rows) = receiver.recv().await {
            printer.print(&rows, &options.columns);
        }
    };
    let (ended, ()) = tokio::join!(join_all(watches), print);
    ensure!(ended.contains(&true), "no cluster could be watched");
    Ok(())
}

/// The header and the widths of the columns, which only grow.
#[derive(Default)]
struct WatchPrinter {
    columns: Option<Table>,
    widths: Vec<usize>,
}

impl WatchPrinter {
    fn print(&mut self, watched: &WatchedTable, options: &ColumnOptions) {
        let is_first = self.columns.is_none();
        let first = self.columns.get_or_insert_with(|| Table {
            column_definitions: watched.table.column_definitions.clone(),
            ..Table::default()
        });
        let columns = &first.column_definitions;
        let mut rows = ResourceRows::new(&watched.resource, options, false, columns);
        let source = RowSource {
            cluster: &watched.cluster,
            is_control_plane: watched.is_control_plane,
            event: &watched.event,
        };
        let own = match watched.table.column_definitions.as_slice() {
            [] => columns,
            own => own,
        };
        for row in &watched.table.rows {
            rows.add(own, row, source);
        }
        if is_first && !options.no_headers {
            fit_widths(&mut self.widths, std::slice::from_ref(&rows.header));
            fit_widths(&mut self.widths, &rows.lines);
            output::print_line(format_line(&rows.header, &self.widths));
        }
        fit_widths(&mut self.widths, &rows.lines);
        for line in &rows.lines {
            output::print_line(format_line(line, &self.widths));
        }
    }
}

/// Sends the present rows of a server, then each change until the server ends the watch.
async fn watch_server(
    server: &QueriedServer,
    query: &Query,
    options: &WatchedOutput,
    sender: mpsc::Sender<WatchedTable>,
) -> anyhow::Result<()> {
    let typed = query.selection.types.first().context("no type")?;
    let name = typed.objects.first().map_or("", String::as_str);
    let list = async {
        let served = server.api.discover().await?.resources;
        let found = find_resources(&served, typed)?;
        let [resource] = found.as_slice() else {
            bail!("{} is a category; watch one of its types", typed.name);
        };
        let table = list_table(&server.api, query, resource, name).await?;
        Ok(((*resource).clone(), table))
    };
    let listed = tokio::time::timeout(options.list_timeout, list).await;
    let (resource, mut table) = listed
        .with_context(|| format!("no answer within {} s", options.list_timeout.as_secs_f64()))??;
    let at = ResourcePath::object(&resource.resource, query.namespace_of(&resource), name);
    let watch = WatchOptions {
        label_selector: query.label_selector.clone(),
        field_selector: query.field_selector.clone(),
        resource_version: table.metadata.resource_version.clone(),
        ..WatchOptions::default()
    };
    if options.skip_initial {
        table.rows.clear();
    }
    let rows = |event: String, table: Table| WatchedTable {
        cluster: server.name.clone(),
        is_control_plane: server.is_control_plane,
        resource: resource.clone(),
        event,
        table,
    };
    sender.send(rows("ADDED".to_owned(), table)).await?;
    let mut events = server.api.watch_table(at, &watch).await?;
    while let Some(event) = events.next().await {
        let event: TableEvent = serde_json::from_slice(&event?)?;
        if event.r#type == "ERROR" {
            let message = event.object["message"]
                .as_str()
                .unwrap_or("the watch has failed");
            bail!("{message}");
        }
        let table = serde_json::from_value(event.object)?;
        sender.send(rows(event.r#type, table)).await?;
    }
    Ok(())
}
