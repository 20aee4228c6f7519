//! The parts that the pages of all kinds of policies have.

use karmada_api::{ClusterAffinity, ResourceSelector};
use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{cluster_path, counted};
use crate::console::Console;
use crate::inventory::{ClusterRow, ObjectKey, describe_selector};

/// Selectors that are shown; the manifest has all.
const MAX_SELECTORS: usize = 50;
/// Clusters of an affinity that are shown.
const MAX_CLUSTERS: usize = 30;

/// The frame of the page of a policy, below a list.
pub(super) fn policy_frame(key: &ObjectKey, list: &str, list_title: &str) -> PageParts {
    PageParts {
        title: key.1.clone(),
        navigation: Navigation::Policies,
        head: html! { p .back { a href=(format!("/{list}")) { (list_title) } } },
    }
}

pub(super) fn policy_heading(kind: &str, (namespace, name): &ObjectKey) -> Markup {
    html! {
        div .heading.subject {
            h1 title=(name) { (name) }
            p .muted {
                (kind)
                @if !namespace.is_empty() { " in " (namespace) }
            }
        }
    }
}

pub(super) fn selects_section(selectors: &[ResourceSelector], namespace: &str) -> Markup {
    let further = selectors.len().saturating_sub(MAX_SELECTORS);
    html! {
        section aria-labelledby="selects" {
            h2 #selects { "Selects" }
            ul .facts {
                @for selector in selectors.iter().take(MAX_SELECTORS) {
                    li { (describe_selector(selector, namespace)) }
                }
                @if selectors.is_empty() { li { "every object" } }
            }
            @if further > 0 { p .muted { (counted(further, "further selector")) } }
        }
    }
}

pub(super) fn manifest_section(manifest: &str) -> Markup {
    html! {
        section aria-labelledby="manifest" {
            h2 #manifest { "Manifest" }
            pre .scroll tabindex="0" { (manifest) }
        }
    }
}

/// The clusters that an affinity selects; all without one.
pub(super) fn selected_clusters(
    console: &Console,
    affinity: Option<&ClusterAffinity>,
) -> Vec<String> {
    let clusters = console.inventory.clusters();
    let matcher = affinity.map(ClusterAffinity::matcher);
    let is_selected = |cluster: &ClusterRow| {
        let attributes = cluster.attributes();
        matcher
            .as_ref()
            .is_none_or(|matcher| matcher.matches(&attributes))
    };
    let selected = clusters.iter().filter(|cluster| is_selected(cluster));
    selected.map(|cluster| cluster.name.clone()).collect()
}

/// Clusters as links, of many the first.
pub(super) fn cluster_chips(names: &[String]) -> Markup {
    html! {
        @if names.is_empty() {
            p .muted { "no cluster of the fleet" }
        } @else {
            ul .chips {
                @for name in names.iter().take(MAX_CLUSTERS) {
                    li .chip { a href=(cluster_path(name, &[], &[])) { (name) } }
                }
                @if names.len() > MAX_CLUSTERS {
                    li .muted { (counted(names.len() - MAX_CLUSTERS, "further cluster")) }
                }
            }
        }
    }
}
