//! The page Activity: plots of the last hour, from the metrics that the console has sampled.

use machinery::time::{Clock, SystemClock};
use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{empty_state, notice};
use super::plot::{Plot, plot_card};
use crate::console::Console;
use crate::metrics_history::{
    FleetSample, SAMPLE_INTERVAL, lag_quantiles, oldest_item_ages, rates_per_minute,
};

pub(super) fn parts() -> PageParts {
    PageParts {
        title: "Activity".to_owned(),
        navigation: Navigation::Activity,
        head: html! { div .heading { h1 { "Activity" } } },
    }
}

pub(super) fn content(console: &Console) -> Markup {
    let samples = console.metrics.samples();
    let plots = plots(&samples);
    let now = SystemClock.now();
    html! {
        @if let Some(error) = console.metrics.error() { (notice("warn", "The metrics cannot be read", &error)) }
        @if samples.len() < 2 {
            (empty_state("Nothing is sampled yet", &html! {
                "The console reads the metrics of the server every " (SAMPLE_INTERVAL.as_secs()) " seconds while it runs, and keeps an hour of them."
            }))
        } @else {
            p .summary { "The last hour, sampled every " (SAMPLE_INTERVAL.as_secs()) " seconds while the console runs" }
            div .plots { @for plot in &plots { (plot_card(plot, now)) } }
        }
    }
}

fn plots(samples: &[FleetSample]) -> [Plot; 4] {
    [
        Plot {
            id: "placements",
            title: "Placements",
            unit: "a minute",
            points: rates_per_minute(samples, |sample| sample.schedule_attempts),
        },
        Plot {
            id: "latency",
            title: "Until 95 of 100 changes are applied",
            unit: "s",
            points: lag_quantiles(samples),
        },
        Plot {
            id: "queues",
            title: "Age of the oldest item in a queue",
            unit: "s",
            points: oldest_item_ages(samples),
        },
        Plot {
            id: "repairs",
            title: "Repairs of drift",
            unit: "a minute",
            points: rates_per_minute(samples, |sample| sample.drift_repairs),
        },
    ]
}
