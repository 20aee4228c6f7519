//! A watch client that records what it receives, and checks of the record.
//!
//! The client follows a resource as a client-go reflector does: a list, then watches, each
//! resumed at the resourceVersion at which the last one ended. The record is checked
//! afterwards, event by event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{At, Error, ListOptions, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use harness::Server;
use harness::objects::CONFIG_MAPS;
use serde_json::Value;

const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) revision: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// `data.k` of a ConfigMap.
    pub(crate) value: String,
}

/// The record of one client.
#[derive(Default)]
pub(crate) struct History {
    /// The result of the list: values by name.
    began: BTreeMap<String, String>,
    steps: Vec<Step>,
    /// Errors of watches, except those that a client retries.
    errors: Vec<String>,
    resumed: usize,
    /// The highest resourceVersion of any event or bookmark.
    reached: u64,
}

fn value_of(object: &machinery::Object) -> String {
    let tree = object.value().unwrap();
    tree["data"]["k"].as_str().unwrap_or_default().to_owned()
}

/// Lists and watches the ConfigMaps of a namespace until one named `end` is created.
pub(crate) async fn follow(server: Server, namespace: &'static str, end: &'static str) -> History {
    let mut history = History::default();
    let at = At::all(&CONFIG_MAPS, namespace);
    let list = loop {
        if let Ok(list) = server.api.list(at, &ListOptions::default()).await {
            break list;
        }
        tokio::time::sleep(PAUSE).await;
    };
    for object in &list.items {
        history.began.insert(object.name().into(), value_of(object));
    }
    history.reached = list.revision;
    while !history.has_seen(end) {
        let options = WatchOptions {
            resource_version: history.reached.to_string(),
            bookmarks: true,
            ..WatchOptions::default()
        };
        history.resumed += 1;
        match server.api.watch(at, &options).await {
            Ok(mut stream) => history.take(&mut stream, end).await,
            Err(error) => history.failed(&error),
        }
        tokio::time::sleep(PAUSE).await;
    }
    history
}

impl History {
    async fn take(&mut self, stream: &mut client::WatchStream, end: &str) {
        while !self.has_seen(end) {
            match stream.next().await {
                None => return,
                Some(Err(error)) => return self.failed(&error),
                Some(Ok(event)) => self.note(event),
            }
        }
    }

    fn has_seen(&self, name: &str) -> bool {
        self.steps.last().is_some_and(|step| step.name == name)
    }

    fn note(&mut self, event: WatchEvent) {
        let (kind, object) = match event {
            WatchEvent::Added(object) => (Kind::Added, object),
            WatchEvent::Modified(object) => (Kind::Modified, object),
            WatchEvent::Deleted(object) => (Kind::Deleted, object),
            WatchEvent::Bookmark { revision, .. } => {
                if revision < self.reached {
                    self.errors.push(format!("bookmark {revision} goes back"));
                }
                self.reached = self.reached.max(revision);
                return;
            }
        };
        let step = Step {
            revision: object.revision(),
            kind,
            name: object.name().into(),
            value: value_of(&object),
        };
        if step.revision <= self.reached {
            let text = format!("{step:?} is not after {}", self.reached);
            self.errors.push(text);
        }
        self.reached = self.reached.max(step.revision);
        self.steps.push(step);
    }

    /// Records an error, unless it is one that clients retry.
    fn failed(&mut self, error: &Error) {
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
    pub(crate) fn judge(
        &self,
        who: &str,
        acknowledged: &BTreeMap<u64, String>,
        last: &BTreeMap<String, String>,
    ) {
        assert!(self.errors.is_empty(), "{who}: {:#?}", self.errors);
        let mut state = self.began.clone();
        let mut revisions = BTreeSet::new();
        for step in &self.steps {
            assert!(revisions.insert(step.revision), "{who}: repeated: {step:?}");
            let exists = state.contains_key(&step.name);
            let possible = exists == (step.kind != Kind::Added);
            assert!(possible, "{who}: {step:?}, and it existed: {exists}");
            match step.kind {
                Kind::Deleted => state.remove(&step.name),
                _ => state.insert(step.name.clone(), step.value.clone()),
            };
        }
        let first = self.steps.first().map_or(u64::MAX, |s| s.revision);
        for (revision, name) in acknowledged.range(first..) {
            assert!(
                revisions.contains(revision),
                "{who}: {name} at {revision} was acknowledged and has no event"
            );
        }
        assert_eq!(state, *last, "{who}");
        assert!(self.resumed > 1, "{who}: no watch was resumed");
    }
}

/// The values of ConfigMaps by name.
pub(crate) fn state(objects: &[Value]) -> BTreeMap<String, String> {
    let text = |o: &Value, path: &str| {
        let text = o.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let pairs = objects.iter();
    pairs
        .map(|o| (text(o, "/metadata/name"), text(o, "/data/k")))
        .collect()
}
