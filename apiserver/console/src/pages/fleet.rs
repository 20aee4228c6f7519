//! The page Fleet: the clusters as cards, as a table, or by region and provider.

use std::sync::Arc;

use machinery::time::{Clock, SystemClock};
use maud::{Markup, html};

use super::bars::share_bar;
use super::cluster_facts::{location, mode, nodes, readiness, taints};
use super::connection::{certificate, tunnel};
use super::fleet_map::map;
use super::layout::{Navigation, PageParts};
use super::markup::{
    bytes, cluster_path, cores, counted, empty_state, remarks, replica_count, units,
};
use crate::console::Console;
use crate::inventory::{ClusterLoad, ClusterRow};
use crate::query::Link;

/// How the clusters are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetView {
    Cards,
    Table,
    /// By region and provider.
    Map,
}

impl FleetView {
    const ALL: [(Self, &str, &str); 3] = [
        (Self::Cards, "", "Cards"),
        (Self::Table, "table", "Table"),
        (Self::Map, "map", "Regions"),
    ];

    pub(super) fn parse(text: &str) -> Self {
        let mut views = Self::ALL.into_iter();
        let view = views.find(|(_, parameter, _)| *parameter == text);
        view.map_or(Self::Cards, |(view, ..)| view)
    }
}

pub(super) fn parts(view: FleetView) -> PageParts {
    PageParts {
        title: "Fleet".to_owned(),
        navigation: Navigation::Fleet,
        head: html! {
            div .heading {
                h1 { "Fleet" }
                div .switch role="group" aria-label="View" {
                    @for (other, parameter, text) in FleetView::ALL {
                        @let link = Link { path: &[], parameters: &[("view", parameter)] };
                        a href=(link) aria-current=[(other == view).then_some("true")] { (text) }
                    }
                }
            }
        },
    }
}

pub(super) fn content(console: &Console, view: FleetView) -> Markup {
    let clusters = console.inventory.clusters();
    let loads = console.inventory.loads();
    let load = |cluster: &ClusterRow| loads.get(&*cluster.name).copied().unwrap_or_default();
    let ready = clusters.iter().filter(|cluster| cluster.is_ready).count();
    let notes = console.inventory.remarks();
    html! {
        (remarks(&notes))
        @if clusters.is_empty() {
            @if notes.is_empty() {
                (empty_state("No clusters yet", &html! {
                    "Register one with " code { "flotilla join NAME --cluster-kubeconfig FILE" } "."
                }))
            }
        } @else {
            p .summary { (counted(clusters.len(), "cluster")) ", " (ready) " ready" }
            @match view {
                FleetView::Table => (table(console, &clusters, load)),
                FleetView::Map => (map(&clusters)),
                FleetView::Cards => ul .cards {
                    @for cluster in &clusters { li { (card(console, cluster, load(cluster))) } }
                },
            }
        }
    }
}

fn placed(cluster: &ClusterRow, load: ClusterLoad) -> Markup {
    let parameters = [("cluster", &*cluster.name)];
    let link = Link {
        path: &["workloads"],
        parameters: &parameters,
    };
    html! {
        a .nowrap href=(link) { (counted(load.workloads, "workload")) }
        @if load.replicas > 0 { ", " span .muted.nowrap { (replica_count(load.replicas)) } }
        @if load.evictions > 0 { ", " span .muted.nowrap { (load.evictions) " leaving" } }
    }
}

fn card(console: &Console, cluster: &ClusterRow, load: ClusterLoad) -> Markup {
    let now = SystemClock.now();
    html! {
        article .card {
            header {
                h2 title=(cluster.name) { a href=(cluster_path(&cluster.name, &[], &[])) { (cluster.name) } }
                (readiness(cluster))
            }
            p .muted {
                @if !cluster.version.is_empty() { (cluster.version) " · " }
                (mode(cluster))
                @let location = location(cluster);
                @if !location.is_empty() { " · " (location) }
            }
            @if !cluster.remark.is_empty() { p .remark { (cluster.remark) } }
            div .shares {
                (share_bar("CPU", cluster.cpu.as_ref(), cores))
                (share_bar("Memory", cluster.memory.as_ref(), bytes))
                (share_bar("Pods", cluster.pods.as_ref(), units))
            }
            dl {
                dt { "Nodes" } dd { (nodes(cluster)) }
                dt { "Placed" } dd { (placed(cluster, load)) }
                dt { "Taints" } dd { (taints(cluster)) }
                @if cluster.is_pull { dt { "Tunnel" } dd { (tunnel(console, cluster)) } }
                dt { "Expiry" } dd { (certificate(console, cluster, now)) }
            }
        }
    }
}

fn table(
    console: &Console,
    clusters: &[Arc<ClusterRow>],
    load: impl Fn(&ClusterRow) -> ClusterLoad,
) -> Markup {
    let now = SystemClock.now();
    html! {
        div .scroll role="region" aria-label="Clusters" tabindex="0" {
            table .clusters {
                caption .visually-hidden { "Clusters" }
                thead {
                    tr {
                        @for title in ["Cluster", "State", "Version", "Mode", "Nodes", "CPU", "Memory", "Pods", "Placed", "Taints", "Expiry"] {
                            th scope="col" { (title) }
                        }
                    }
                }
                tbody {
                    @for cluster in clusters {
                        tr {
                            th scope="row" .name title=(cluster.name) { a href=(cluster_path(&cluster.name, &[], &[])) { (cluster.name) } }
                            td title=(cluster.remark) { (readiness(cluster)) }
                            td .version title=(cluster.version) { (cluster.version) }
                            td {
                                (mode(cluster))
                                @if cluster.is_pull { div { (tunnel(console, cluster)) } }
                            }
                            td .number { @if let Some((ready, all)) = cluster.nodes { (ready) "/" (all) } }
                            td { (share_bar("CPU", cluster.cpu.as_ref(), cores)) }
                            td { (share_bar("Memory", cluster.memory.as_ref(), bytes)) }
                            td { (share_bar("Pods", cluster.pods.as_ref(), units)) }
                            td { (placed(cluster, load(cluster))) }
                            td { (taints(cluster)) }
                            td { (certificate(console, cluster, now)) }
                        }
                    }
                }
            }
        }
    }
}
