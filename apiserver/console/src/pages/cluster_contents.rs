//! The templates that are placed on a cluster, those that leave it, and what else is still there.

use client::{ListOptions, ResourcePath};
use karmada_api::resources::WORKS;
use karmada_api::{Work, names};
use machinery::Object;
use maud::{Markup, html};

use super::markup::{badge, counted, empty_state, health_tone, notice, workload_path};
use super::workload_list::{EvictedWorkloads, evicted_workloads, placed_workloads, workload_table};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::query::Link;

/// Works that are read when nothing is placed on a cluster any more.
const MAX_WORKS: u64 = 200;
/// Objects that are still there that are named.
const MAX_NAMED: usize = 20;

pub(super) async fn cluster_contents(console: &Console, cluster: &str) -> Markup {
    let load = console.inventory.loads();
    let load = load.get(cluster).copied().unwrap_or_default();
    let rows = placed_workloads(console, cluster.to_owned());
    let evicted = evicted_workloads(console, cluster);
    let remaining = match rows.is_empty() && evicted.count == 0 {
        true => Some(RemainingObjects::read(console, cluster).await),
        false => None,
    };
    let all = Link {
        path: &["workloads"],
        parameters: &[("cluster", cluster)],
    };
    html! {
        section aria-labelledby="placed" {
            h2 #placed { "Placed there" }
            @if rows.is_empty() {
                (empty_state("Nothing", &html! {
                    "No template is placed on this cluster"
                    @if evicted.count > 0 { ", but not all have left it" }
                    "."
                }))
            } @else {
                p .summary { a href=(all) { (counted(load.workloads, "workload")) } }
                (workload_table(&rows))
            }
        }
        @if evicted.count > 0 { (evicted_section(cluster, &evicted)) }
        @match &remaining {
            Some(Ok(remaining)) => (remaining.section()),
            Some(Err(error)) => (notice("warn", "What is still there cannot be read", &clipped(&error.to_string()))),
            None => {}
        }
    }
}

fn evicted_section(cluster: &str, evicted: &EvictedWorkloads) -> Markup {
    html! {
        section aria-labelledby="evicted" {
            h2 #evicted { "Leaving it" }
            p .summary {
                (counted(evicted.count, "workload"))
                " still there until the replacement is healthy"
            }
            div .scroll role="region" aria-label="Leaving it" tabindex="0" {
                table .listed {
                    caption .visually-hidden { "Leaving it" }
                    thead {
                        tr { @for title in ["Workload", "State there", "Since", "Reason"] { th scope="col" { (title) } } }
                    }
                    tbody {
                        @for (key, row) in &evicted.rows {
                            @let eviction = row.eviction_from(cluster);
                            tr {
                                th scope="row" {
                                    a .name href=(workload_path(key, &[], &[])) title=(row.name) { (row.name) }
                                    span .muted.line {
                                        (row.kind)
                                        @if !key.0.is_empty() { " in " (key.0) }
                                    }
                                }
                                td data-title="State there" {
                                    @match eviction.and_then(|eviction| eviction.health.as_deref()) {
                                        Some("") => (badge("calm", "Unknown")),
                                        Some(health) => (badge(health_tone(health), health)),
                                        None => (badge("calm", "Not reported")),
                                    }
                                }
                                td .time data-title="Since" { (eviction.map_or("", |eviction| &*eviction.since)) }
                                td .reason data-title="Reason" { (clipped(eviction.map_or("", |eviction| &*eviction.reason))) }
                            }
                        }
                    }
                }
            }
            @if evicted.count > evicted.rows.len() {
                p .muted { (counted(evicted.count - evicted.rows.len(), "further workload")) }
            }
        }
    }
}

/// Objects in a cluster on which nothing is placed, whose Works are not gone yet.
struct RemainingObjects {
    texts: Vec<String>,
    /// Whether the cluster has more Works than are read.
    has_more: bool,
}

impl RemainingObjects {
    async fn read(console: &Console, cluster: &str) -> client::Result<Self> {
        let space = names::execution_space_name(cluster);
        let options = ListOptions {
            limit: MAX_WORKS,
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(&WORKS, &space);
        let list = console.api.list(at, &options).await?;
        let works = list.items.iter();
        Ok(Self {
            texts: works
                .filter_map(|work| leaving_text(console, work))
                .collect(),
            has_more: !list.continue_token.is_empty(),
        })
    }

    fn section(&self) -> Markup {
        let further = self.texts.len().saturating_sub(MAX_NAMED);
        html! {
            @if !self.texts.is_empty() {
                section aria-labelledby="remaining" {
                    h2 #remaining { "Still there" }
                    ul .facts { @for text in self.texts.iter().take(MAX_NAMED) { li { (text) } } }
                    @if further > 0 { p .muted { (counted(further, "further object")) } }
                    @if self.has_more { p .muted { "The first " (MAX_WORKS) " Works of the cluster are read." } }
                }
            }
        }
    }
}

/// The object of a Work that is being deleted, or whose template is placed elsewhere. Namespaces, which
/// go to every cluster, have no binding.
fn leaving_text(console: &Console, object: &Object) -> Option<String> {
    let work = object.decode::<Work>().ok()?;
    let manifest = work.spec.workload.manifests.first()?;
    let text = |pointer: &str| {
        let text = manifest
            .pointer(pointer)
            .and_then(serde_json::Value::as_str);
        text.unwrap_or_default()
    };
    let (kind, namespace, name) = (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    );
    let key = (namespace.to_owned(), names::binding_name(kind, name));
    let is_deleting = object.meta().deleting;
    if !is_deleting && console.inventory.workload(&key).is_none() {
        return None;
    }
    let state = match is_deleting {
        true => "being deleted",
        false => "kept until its replacement runs elsewhere",
    };
    let scope = match namespace {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    Some(clipped(&format!("{kind} {name}{scope}: {state}")))
}
