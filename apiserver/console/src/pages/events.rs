//! The events of a workload: of its template, its binding and its Works, as far as the user may list
//! them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use client::{Api, ListOptions, ResourcePath};
use futures_util::future::{BoxFuture, join_all};
use jiff::Timestamp;
use machinery::time::{self, rfc3339_seconds};
use machinery::{Gvr, Object};
use maud::{Markup, html};
use serde_json::Value;

use super::markup::{badge, counted, empty_state, notice};
use crate::clipped_text::clipped;

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
/// The namespace of the events of objects without one.
const DEFAULT_NAMESPACE: &str = "default";
/// Objects whose events are read.
const MAX_OBJECTS: usize = 40;
/// Events of an object that are read. The server sorts them by name, so that the newest may be the last.
const MAX_EVENTS_PER_OBJECT: u64 = 500;
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
    time: Option<Timestamp>,
    subject: String,
    is_warning: bool,
    reason: String,
    message: String,
    count: i64,
}

impl EventRow {
    fn new(subject: &str, event: &Value) -> Self {
        let text = |value: &Value| clipped(value.as_str().unwrap_or_default());
        let times = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
            &event["firstTimestamp"],
            &event["metadata"]["creationTimestamp"],
        ];
        let mut times = times.into_iter().filter_map(Value::as_str);
        Self {
            time: times.find_map(|text| time::parse(text).ok()),
            subject: subject.to_owned(),
            is_warning: event["type"] == "Warning",
            reason: text(&event["reason"]),
            message: text(&event["message"]),
            count: event["series"]["count"]
                .as_i64()
                .or(event["count"].as_i64())
                .unwrap_or(1),
        }
    }
}

/// The events of some objects.
#[derive(Default)]
struct EventRows {
    rows: Vec<EventRow>,
    /// Whether an object has more events than are read.
    has_more: bool,
}

fn read_events<'a>(
    api: &'a dyn Api,
    subject: &'a EventSubject<'a>,
) -> BoxFuture<'a, client::Result<EventRows>> {
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
        let list = list.await?;
        let events = list.items.iter().filter_map(|event| event.value().ok());
        let of_object = events.filter(|event| event["involvedObject"]["uid"] == *uid);
        let rows = of_object.map(|event| EventRow::new(&subject.text, &event));
        Ok(EventRows {
            rows: rows.collect(),
            has_more: !list.continue_token.is_empty(),
        })
    })
}

pub(super) async fn events_section(api: &dyn Api, subjects: Vec<EventSubject<'_>>) -> Markup {
    let further = subjects.len().saturating_sub(MAX_OBJECTS);
    let (mut all, mut failures) = (EventRows::default(), BTreeSet::new());
    let first = &subjects[..subjects.len().min(MAX_OBJECTS)];
    for batch in first.chunks(CONCURRENT_LISTS) {
        let lists = batch.iter().map(|subject| read_events(api, subject));
        for list in join_all(lists).await {
            match list {
                Ok(events) => {
                    all.rows.extend(events.rows);
                    all.has_more |= events.has_more;
                }
                Err(error) => drop(failures.insert(error.to_string())),
            }
        }
    }
    let EventRows { mut rows, has_more } = all;
    rows.sort_by_key(|row| Reverse(row.time));
    html! {
        section aria-labelledby="events" {
            h2 #events { "Events" }
            @if let Some(failure) = failures.first() {
                (notice("warn", "Not all events can be read", &clipped(failure)))
            }
            @if rows.is_empty() && failures.is_empty() {
                (empty_state("No events", &html! { "Kubernetes keeps events for an hour." }))
            } @else if !rows.is_empty() {
                p .summary {
                    @if rows.len() > MAX_EVENTS { "The newest " (MAX_EVENTS) " of " }
                    (counted(rows.len(), "event"))
                    @if rows.len() <= MAX_EVENTS { ", the newest first" }
                    @if has_more { "; there are more, which were not read" }
                }
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
                            td .time data-title="Time" { @if let Some(time) = row.time { (rfc3339_seconds(time)) } }
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
