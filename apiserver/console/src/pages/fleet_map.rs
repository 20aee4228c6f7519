//! The clusters by region and provider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maud::{Markup, html};

use super::cluster_facts::readiness;
use super::markup::{cluster_path, counted};
use crate::inventory::ClusterRow;

/// Rows and columns that are shown, and clusters of a cell.
const MAX_REGIONS: usize = 200;
const MAX_PROVIDERS: usize = 30;
const MAX_CLUSTERS: usize = 50;

/// Regions and providers sort by name; clusters without one come last.
type MapHeading<'a> = (bool, &'a str);

fn named(text: &str) -> MapHeading<'_> {
    (text.is_empty(), text)
}

/// A table with a row for each region and a column for each provider.
pub(super) fn map(clusters: &[Arc<ClusterRow>]) -> Markup {
    let mut cells: BTreeMap<(MapHeading<'_>, MapHeading<'_>), Vec<&ClusterRow>> = BTreeMap::new();
    for cluster in clusters {
        let cell = (named(&cluster.region), named(&cluster.provider));
        cells.entry(cell).or_default().push(cluster);
    }
    let regions: BTreeSet<MapHeading<'_>> = cells.keys().map(|(region, _)| *region).collect();
    let providers: BTreeSet<MapHeading<'_>> = cells.keys().map(|(_, provider)| *provider).collect();
    let shown = || providers.iter().take(MAX_PROVIDERS);
    html! {
        div .scroll role="region" aria-label="Clusters by region and provider" tabindex="0" {
            table .map {
                caption .visually-hidden { "Clusters by region and provider" }
                thead {
                    tr {
                        th scope="col" { "Region" }
                        @for provider in shown() { th scope="col" { (title(*provider, "no provider")) } }
                    }
                }
                tbody {
                    @for region in regions.iter().take(MAX_REGIONS) {
                        tr {
                            th scope="row" { (title(*region, "no region")) }
                            @for provider in shown() { td { (cell(cells.get(&(*region, *provider)))) } }
                        }
                    }
                }
            }
        }
        @if providers.len() > MAX_PROVIDERS { p .muted { (counted(providers.len() - MAX_PROVIDERS, "further provider")) } }
        @if regions.len() > MAX_REGIONS { p .muted { (counted(regions.len() - MAX_REGIONS, "further region")) } }
    }
}

fn title((is_absent, text): MapHeading<'_>, absent: &str) -> Markup {
    html! { @if is_absent { span .muted { (absent) } } @else { (text) } }
}

fn cell(clusters: Option<&Vec<&ClusterRow>>) -> Markup {
    let clusters = clusters.map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !clusters.is_empty() {
            ul .located {
                @for cluster in clusters.iter().take(MAX_CLUSTERS) {
                    li { a .name href=(cluster_path(&cluster.name, &[], &[])) { (cluster.name) } " " (readiness(cluster)) }
                }
                @if clusters.len() > MAX_CLUSTERS {
                    li .muted { (counted(clusters.len() - MAX_CLUSTERS, "further cluster")) }
                }
            }
        }
    }
}
