//! Watches one resource on several servers; [`super::watch_output`] prints the rows as they come.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use client::ResourcePath;
use client::{Api, WatchOptions};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::query::{QueriedServer, Query, list_table};
use super::selection::find_resources;
use super::server_table::Table;
use super::tables::ColumnOptions;
use super::watch_output::{WatchPrinter, WatchedTable};
use crate::output::{self, RedrawnText};

/// Rows that wait for the printer.
const MAX_QUEUED_TABLES: usize = 64;

pub(super) struct WatchedOutput {
    pub(super) columns: ColumnOptions,
    /// Prints changes alone.
    pub(super) skip_initial: bool,
    pub(super) list_timeout: Duration,
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
        // The history of events is not redrawn.
        let in_place =
            RedrawnText::is_in_place() && !options.skip_initial && !options.columns.with_event;
        let mut printer = WatchPrinter::new(options.columns.clone(), in_place);
        while let Some(rows) = receiver.recv().await {
            printer.add(&rows);
            // One drawing shows all that is there.
            while let Ok(rows) = receiver.try_recv() {
                printer.add(&rows);
            }
            printer.draw();
        }
    };
    let (ended, ()) = tokio::join!(join_all(watches), print);
    ensure!(ended.contains(&true), "no cluster could be watched");
    Ok(())
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
        let resources = find_resources(&served, typed)?;
        let [resource] = resources.as_slice() else {
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
        let event: TableEvent = machinery::json::from_slice(&event?)?;
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
