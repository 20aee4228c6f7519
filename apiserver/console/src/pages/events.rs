//! The events of a workload: of its template, its binding and its Works, as far as the user may list
//! them.

use std::collections::BTreeSet;

use client::{Api, ListOptions, ResourcePath};
use futures_util::future::{BoxFuture, join_all};
use machinery::{Gvr, Object};
use maud::{Markup, html};
use serde_json::Value;

use super::markup::{badge, empty_state, notice};
use crate::clipped_text::clipped;

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
/// The namespace of the events of objects without one.
const DEFAULT_NAMESPACE: &str = "default";
/// Objects whose events are read.
const MAX_OBJECTS: usize = 40;
/// Events of an object that are read.
const MAX_EVENTS_PER_OBJECT: u64 = 50;
/// Events that are shown, the newest first.
const MAX_EVENTS: usize = 25;
/// Lists at once.
const CONCURRENT_LISTS: usize = 8;

/// An object with events.
pub(super) struct EventSubject<'a> {
    /// As the page names it, such as `Work in east`.
    pub(super) text: String,
    pub(super) object: &'a Object,
}

struct EventRow {
    time: String,
    subject: String,
    is_warning: bool,
    reason: String,
    message: String,
    count: i64,
}

impl EventRow {
    fn new(subject: &str, event: &Value) -> Self {
        let text = |value: &Value| clipped(value.as_str().unwrap_or_default());
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
        let times = times.map(|field| text(&event[field]));
        Self {
            time: times
                .into_iter()
                .find(|t| !t.is_empty())
                .unwrap_or_default(),
            subject: subject.to_owned(),
            is_warning: event["type"] == "Warning",
            reason: text(&event["reason"]),
            message: text(&event["message"]),
            count: event["count"].as_i64().unwrap_or(1),
        }
    }
}

fn read_events<'a>(
    api: &'a dyn Api,
    subject: &'a EventSubject<'a>,
) -> BoxFuture<'a, client::Result<Vec<EventRow>>> {
    Box::pin(async move {
        let uid = subject.object.uid();
        let namespace = match subject.object.namespace() {
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        };
        let options = ListOptions {
            field_selector: format!("involvedObject.uid={uid}"),
            limit: MAX_EVENTS_PER_OBJECT,
            ..ListOptions::default()
        };
        let list = api.list(ResourcePath::collection(&EVENTS, namespace), &options);
        let events = list.await?.items;
        let events = events.iter().filter_map(|event| event.value().ok());
        let of_object = events.filter(|event| event["involvedObject"]["uid"] == *uid);
        let rows = of_object.map(|event| EventRow::new(&subject.text, &event));
        Ok(rows.collect())
    })
}

pub(super) async fn events_section(api: &dyn Api, subjects: Vec<EventSubject<'_>>) -> Markup {
    let further = subjects.len().saturating_sub(MAX_OBJECTS);
    let (mut rows, mut failures) = (Vec::new(), BTreeSet::new());
    let first = &subjects[..subjects.len().min(MAX_OBJECTS)];
    for batch in first.chunks(CONCURRENT_LISTS) {
        let lists = batch.iter().map(|subject| read_events(api, subject));
        for list in join_all(lists).await {
            match list {
                Ok(events) => rows.extend(events),
                Err(error) => drop(failures.insert(error.to_string())),
            }
        }
    }
    rows.sort_by(|a, b| b.time.cmp(&a.time));
    html! {
        section aria-labelledby="events" {
            h2 #events { "Events" }
            @if let Some(failure) = failures.first() {
                (notice("warn", "Not all events can be read", &clipped(failure)))
            }
            @if rows.is_empty() && failures.is_empty() {
                (empty_state("No events", &html! { "Kubernetes keeps events for an hour." }))
            } @else if !rows.is_empty() {
                (events_table(&rows))
            }
            @if further > 0 {
                p .muted { "The events of the first " (MAX_OBJECTS) " objects are read." }
            }
        }
    }
}

fn events_table(rows: &[EventRow]) -> Markup {
    html! {
        div .scroll role="region" aria-label="Events" tabindex="0" {
            table .listed {
                caption .visually-hidden { "Events" }
                thead {
                    tr { @for title in ["Time", "Object", "Reason", "Message"] { th scope="col" { (title) } } }
                }
                tbody {
                    @for row in rows.iter().take(MAX_EVENTS) {
                        tr {
                            td .time data-title="Time" { (row.time) }
                            td data-title="Object" { (row.subject) }
                            td data-title="Reason" {
                                (badge(if row.is_warning { "warn" } else { "calm" }, &row.reason))
                                @if row.count > 1 { " " span .muted.nowrap { "× " (row.count) } }
                            }
                            td .reason data-title="Message" { (row.message) }
                        }
                    }
                }
            }
        }
    }
}
