//! The page of a cluster: its conditions and resources, and what is placed there.

use anyhow::Context;
use client::ResourcePath;
use flotilla_cli::cordon::is_cordoned;
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::time::{Clock, SystemClock};
use maud::{Markup, html};

use super::bars::share_bar;
use super::cluster_contents::cluster_contents;
use super::cluster_facts::{location, mode, nodes, readiness, taints};
use super::connection::{certificate, last_heartbeat, tunnel};
use super::layout::{Navigation, PageParts};
use super::markup::{badge, bytes, cluster_path, cores, notice, units};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::inventory::ClusterRow;

/// Conditions that are shown.
const MAX_CONDITIONS: usize = 50;

/// The outcome of an action, by the word in the address.
const NOTES: [(&str, &str); 3] = [
    ("cordon", "Nothing new is placed on the cluster."),
    ("uncordon", "The cluster may get templates again."),
    ("drain", "What can leave the cluster is leaving it now."),
];

pub(super) fn parts(name: &str, note: &str) -> PageParts {
    let note = NOTES.iter().find(|(word, _)| *word == note);
    PageParts {
        title: name.to_owned(),
        navigation: Navigation::Fleet,
        head: html! {
            p .back { a href="/" { "All clusters" } }
            @if let Some((_, text)) = note { (notice("good", "Done", text)) }
        },
    }
}

pub(super) async fn content(console: &Console, name: &str) -> anyhow::Result<Markup> {
    let at = ResourcePath::object(&CLUSTERS, "", name);
    let cluster = console.api.get(at).await?.decode::<Cluster>()?;
    let row = console.inventory.cluster(name);
    let row = row.context("the cluster is not listed yet; load the page again")?;
    let contents = cluster_contents(console, name).await;
    let heartbeat = match row.is_pull {
        true => Some(last_heartbeat(console, name).await),
        false => None,
    };
    Ok(html! {
        div .heading.subject {
            h1 title=(name) { (name) " " (readiness(&row)) }
            p .muted {
                @if !row.version.is_empty() { (row.version) " · " }
                (mode(&row))
                @let location = location(&row);
                @if !location.is_empty() { " · " (location) }
            }
        }
        @if !row.remark.is_empty() { (notice("bad", "Not ready", &row.remark)) }
        (actions(name, &cluster))
        div .columns {
            (resources_section(&row))
            (facts_section(console, &row, &cluster, heartbeat.as_deref()))
        }
        (conditions_section(&cluster))
        (contents)
    })
}

fn actions(name: &str, cluster: &Cluster) -> Markup {
    html! {
        ul .actions aria-label="Actions" {
            @if is_cordoned(&cluster.spec.taints) {
                li { a .button href=(cluster_path(name, &["uncordon"], &[])) { "Uncordon" } }
            } @else {
                li { a .button href=(cluster_path(name, &["cordon"], &[])) { "Cordon" } }
            }
            li { a .button href=(cluster_path(name, &["drain"], &[])) { "Drain" } }
        }
    }
}

fn resources_section(row: &ClusterRow) -> Markup {
    html! {
        section aria-labelledby="resources" {
            h2 #resources { "Requested" }
            div .card {
                div .shares {
                    (share_bar("CPU", row.cpu.as_ref(), cores))
                    (share_bar("Memory", row.memory.as_ref(), bytes))
                    (share_bar("Pods", row.pods.as_ref(), units))
                }
            }
        }
    }
}

fn facts_section(
    console: &Console,
    row: &ClusterRow,
    cluster: &Cluster,
    heartbeat: Option<&str>,
) -> Markup {
    let zones = cluster.spec.zones.join(", ");
    html! {
        section aria-labelledby="facts" {
            h2 #facts { "About it" }
            div .card {
                dl {
                    dt { "Nodes" } dd { (nodes(row)) }
                    dt { "Taints" } dd { (taints(row)) }
                    dt { "Tunnel" } dd { (tunnel(console, row)) }
                    @if let Some(heartbeat) = heartbeat { dt { "Heartbeat" } dd { (heartbeat) } }
                    dt { "Expiry" } dd { (certificate(console, row, SystemClock.now())) }
                    @if !zones.is_empty() { dt { "Zones" } dd { (zones) } }
                    @if !cluster.spec.api_endpoint.is_empty() {
                        dt { "Address" } dd { code { (clipped(&cluster.spec.api_endpoint)) } }
                    }
                }
            }
        }
    }
}

fn conditions_section(cluster: &Cluster) -> Markup {
    html! {
        section aria-labelledby="conditions" {
            h2 #conditions { "Conditions" }
            div .scroll role="region" aria-label="Conditions" tabindex="0" {
                table .listed {
                    caption .visually-hidden { "Conditions" }
                    thead {
                        tr { @for title in ["Condition", "Status", "Since", "Reason", "Message"] { th scope="col" { (title) } } }
                    }
                    tbody {
                        @for condition in cluster.status.conditions.iter().take(MAX_CONDITIONS) {
                            @let tone = match &*condition.status { "True" => "good", "False" => "bad", _ => "calm" };
                            tr {
                                th scope="row" { (clipped(&condition.condition_type)) }
                                td data-title="Status" { (badge(tone, &clipped(&condition.status))) }
                                td .time data-title="Since" { (clipped(&condition.last_transition_time)) }
                                td data-title="Reason" { (clipped(&condition.reason)) }
                                td .reason data-title="Message" { (clipped(&condition.message)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
