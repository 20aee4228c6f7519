//! Facts about a cluster that several pages show.

use maud::{Markup, html};

use super::markup::{badge, grouped};
use crate::inventory::ClusterRow;

pub(super) fn readiness(cluster: &ClusterRow) -> Markup {
    match (cluster.is_deleting, cluster.is_ready) {
        (true, _) => badge("warn", "Leaving"),
        (false, true) => badge("good", "Ready"),
        (false, false) => badge("bad", "Not ready"),
    }
}

pub(super) fn mode(cluster: &ClusterRow) -> &'static str {
    if cluster.is_pull { "Pull" } else { "Push" }
}

pub(super) fn location(cluster: &ClusterRow) -> String {
    let parts = [&*cluster.provider, &*cluster.region];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

pub(super) fn taints(cluster: &ClusterRow) -> Markup {
    html! {
        @if cluster.taints.is_empty() {
            span .muted { "none" }
        } @else {
            ul .chips {
                @for taint in &cluster.taints {
                    li .chip title=(taint.effect) {
                        (taint.key)
                        @if !taint.value.is_empty() { "=" (taint.value) }
                        ":" (taint.effect)
                    }
                }
            }
        }
    }
}

pub(super) fn nodes(cluster: &ClusterRow) -> String {
    match cluster.nodes {
        Some((ready, all)) => format!("{} of {} ready", grouped(ready), grouped(all)),
        None => "not reported".to_owned(),
    }
}
