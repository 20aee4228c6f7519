//! Bars as inline SVG, since styles within the page are not allowed by its policy.

use std::sync::Arc;

use maud::{Markup, html};

use crate::inventory::ResourceShare;

/// Colors of the segments of a bar, which repeat.
const SEGMENT_COLORS: usize = 6;
/// The widths of a bar are in thousandths of it.
const BAR_WIDTH: i64 = 1000;
const BUSY_PERCENT: u8 = 75;
const FULL_PERCENT: u8 = 90;

/// The share of a resource that is allocated, with a text beside it.
pub(super) fn share_bar(
    name: &str,
    share: Option<&ResourceShare>,
    text: fn(machinery::Quantity) -> String,
) -> Markup {
    let Some(share) = share else {
        return html! {
            div .share {
                span .name { (name) }
                span .amount.unknown { "not reported" }
            }
        };
    };
    let percent = share.percent();
    let tone = share_tone(percent);
    let (allocated, all) = (text(share.allocated), text(share.allocatable));
    html! {
        div .share {
            span .name { (name) }
            span .amount { (allocated) span .of { " of " (all) } }
            (percent_bar(percent, tone, &format!("{name}: {allocated} of {all} are requested, {percent} %")))
        }
    }
}

/// The color of a bar: a nearly full one is a warning.
pub(super) fn share_tone(percent: u8) -> &'static str {
    match percent {
        FULL_PERCENT.. => "full",
        BUSY_PERCENT.. => "busy",
        _ => "calm",
    }
}

/// A bar from 0 to 100 percent.
pub(super) fn percent_bar(percent: u8, tone: &str, label: &str) -> Markup {
    html! {
        svg .bar viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect .track width="1000" height="10" {}
            rect class={"fill " (tone)} width=(i64::from(percent) * BAR_WIDTH / 100) height="10" {}
        }
    }
}

/// The replicas of each cluster as segments; clusters without replicas have equal segments.
pub(super) fn placement_bar(targets: &[(Arc<str>, i64)]) -> Markup {
    let total: i64 = targets.iter().map(|(_, replicas)| replicas.max(&0)).sum();
    let count = i64::try_from(targets.len()).unwrap_or(i64::MAX);
    let mut texts = Vec::new();
    let mut segments = Vec::new();
    let mut before = 0;
    for (at, (name, replicas)) in targets.iter().enumerate() {
        let part = match total {
            0 => BAR_WIDTH / count.max(1),
            total => replicas.max(&0).saturating_mul(BAR_WIDTH) / total,
        };
        let text = match total {
            0 => name.to_string(),
            _ => format!("{name}: {replicas}"),
        };
        segments.push((at % SEGMENT_COLORS, before, part, text.clone()));
        texts.push(text);
        before += part;
    }
    html! {
        svg .bar.placement viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(texts.join(", ")) {
            rect .track width="1000" height="10" {}
            @for (color, x, part, text) in &segments {
                rect class={"segment s" (color)} x=(x) width=(part) height="10" { title { (text) } }
            }
        }
    }
}
