//! A watch client that records what it receives, and checks of the record.
//!
//! The client follows a resource as a client-go reflector does: a list, then watches, each
//! resumed at the resourceVersion at which the last one ended. The record is checked
//! afterwards, event by event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{Error, ListOptions, ResourcePath, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use harness::ApiServerClient;
use harness::objects::CONFIG_MAPS;
use serde_json::Value;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedWatchEventType {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedWatchEvent {
    pub(crate) revision: u64,
    pub(crate) event_type: RecordedWatchEventType,
    pub(crate) name: String,
    /// `data.k` of a ConfigMap.
    pub(crate) value: String,
}

/// The record of one client.
#[derive(Default)]
pub(crate) struct WatchHistory {
    /// The result of the list: values by name.
    initial_list: BTreeMap<String, String>,
    events: Vec<RecordedWatchEvent>,
    /// Errors of watches, except those that a client retries.
    errors: Vec<String>,
    watch_count: usize,
    /// The highest resourceVersion of any event or bookmark.
    resource_version: u64,
}

fn value_of(object: &machinery::Object) -> String {
    let tree = object.value().unwrap();
    tree["data"]["k"].as_str().unwrap_or_default().to_owned()
}

/// Lists and watches the ConfigMaps of a namespace until one named `end` is created.
pub(crate) async fn list_and_watch(
    server: ApiServerClient,
    namespace: &'static str,
    end: &'static str,
) -> WatchHistory {
    let mut history = WatchHistory::default();
    let at = ResourcePath::collection(&CONFIG_MAPS, namespace);
    let list = loop {
        if let Ok(list) = server.api.list(at, &ListOptions::default()).await {
            break list;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    };
    for object in &list.items {
        history
            .initial_list
            .insert(object.name().into(), value_of(object));
    }
    history.resource_version = list.revision;
    while !history.ends_with(end) {
        let options = WatchOptions {
            resource_version: history.resource_version.to_string(),
            bookmarks: true,
            ..WatchOptions::default()
        };
        history.watch_count += 1;
        match server.api.watch(at, &options).await {
            Ok(mut stream) => history.record_stream(&mut stream, end).await,
            Err(error) => history.record_error(&error),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    history
}

impl WatchHistory {
    async fn record_stream(&mut self, stream: &mut client::WatchStream, end: &str) {
        while !self.ends_with(end) {
            match stream.next().await {
                None => return,
                Some(Err(error)) => return self.record_error(&error),
                Some(Ok(event)) => self.record_event(event),
            }
        }
    }

    fn ends_with(&self, name: &str) -> bool {
        self.events.last().is_some_and(|step| step.name == name)
    }

    fn record_event(&mut self, event: WatchEvent) {
        let (kind, object) = match event {
            WatchEvent::Added(object) => (RecordedWatchEventType::Added, object),
            WatchEvent::Modified(object) => (RecordedWatchEventType::Modified, object),
            WatchEvent::Deleted(object) => (RecordedWatchEventType::Deleted, object),
            WatchEvent::Bookmark { revision, .. } => {
                if revision < self.resource_version {
                    self.errors.push(format!("bookmark {revision} goes back"));
                }
                self.resource_version = self.resource_version.max(revision);
                return;
            }
        };
        let step = RecordedWatchEvent {
            revision: object.revision(),
            event_type: kind,
            name: object.name().into(),
            value: value_of(&object),
        };
        if step.revision <= self.resource_version {
            let text = format!("{step:?} is not after {}", self.resource_version);
            self.errors.push(text);
        }
        self.resource_version = self.resource_version.max(step.revision);
        self.events.push(step);
    }

    /// Records an error, unless it is one that clients retry.
    fn record_error(&mut self, error: &Error) {
        let is_retryable = match error {
            Error::Transport { .. } => true,
            Error::Status(status) => matches!(status.code, 429 | 503 | 504),
            Error::Protocol(_) => false,
        };
        if !is_retryable {
            self.errors.push(error.to_string());
        }
    }

    /// Asserts that no event is repeated, out of order or impossible, that each write in
    /// `acknowledged` (name by revision) has its event, and that list and events result in
    /// `last`.
    pub(crate) fn assert_complete(
        &self,
        who: &str,
        acknowledged: &BTreeMap<u64, String>,
        last: &BTreeMap<String, String>,
    ) {
        assert!(self.errors.is_empty(), "{who}: {:#?}", self.errors);
        let mut state = self.initial_list.clone();
        let mut revisions = BTreeSet::new();
        for step in &self.events {
            assert!(revisions.insert(step.revision), "{who}: repeated: {step:?}");
            let exists = state.contains_key(&step.name);
            let possible = exists == (step.event_type != RecordedWatchEventType::Added);
            assert!(possible, "{who}: {step:?}, and it existed: {exists}");
            match step.event_type {
                RecordedWatchEventType::Deleted => state.remove(&step.name),
                _ => state.insert(step.name.clone(), step.value.clone()),
            };
        }
        let first = self.events.first().map_or(u64::MAX, |s| s.revision);
        for (revision, name) in acknowledged.range(first..) {
            assert!(
                revisions.contains(revision),
                "{who}: {name} at {revision} was acknowledged and has no event"
            );
        }
        assert_eq!(state, *last, "{who}");
        assert!(self.watch_count > 1, "{who}: no watch was resumed");
    }
}

/// The values of ConfigMaps by name.
pub(crate) fn values_by_name(objects: &[Value]) -> BTreeMap<String, String> {
    let text = |o: &Value, path: &str| {
        let text = o.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let pairs = objects.iter();
    pairs
        .map(|o| (text(o, "/metadata/name"), text(o, "/data/k")))
        .collect()
}
