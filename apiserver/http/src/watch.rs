//! Serves watches: encodes the events of a registry watch as a stream of JSON lines.
//!
//! All watchers share one buffer per event of the object itself; tables and partial
//! metadata are encoded per watcher.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use machinery::time::Clock;
use machinery::{Object, Status};
use flotilla_metrics::Counter;
use registry::Item;
use registry::{Row, Watch};

use crate::body::Events;
use crate::ending::Leaving;
use crate::negotiation::View;
use crate::reply::Shape;
use crate::table;

/// Bound on bytes of ready events that are sent in one write.
const BATCH: usize = 64 * 1024;

/// Encodes watch events (kube-apiserver's `watchEncoder`).
struct Writer {
    row: Arc<Row>,
    shape: Shape,
    clock: Arc<dyn Clock>,
    /// Column definitions are sent in a table's first event only.
    columns_sent: bool,
}

impl Writer {
    fn line(&mut self, item: Result<Item, Status>) -> (Bytes, bool) {
        let line = match item {
            Ok(item) => self.event(item),
            Err(status) => Err(status),
        };
        match line {
            Ok(line) => (line, false),
            Err(status) => {
                let text = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.document());
                (text.into(), true)
            }
        }
    }

    fn event(&mut self, item: Item) -> Result<Bytes, Status> {
        match item {
            Item::Event(delivery) if self.shape.form.view == View::Object => Ok(delivery.frame()),
            Item::Event(delivery) => {
                let object = self.view(delivery.object())?;
                Ok(wrap(delivery.change().as_str(), &object))
            }
            Item::Bookmark {
                revision,
                initial_end,
            } => {
                let object = self.bookmark(revision, initial_end)?;
                Ok(wrap("BOOKMARK", &object))
            }
        }
    }

    fn view(&mut self, object: &Object) -> Result<String, Status> {
        match self.shape.form.view {
            View::Table { beta } => {
                let metadata = table::list_metadata(object.revision(), None, None);
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let mut text = table::open(&self.row, beta, &metadata, columns);
                let now = self.clock.now();
                let row = table::row(&self.row, object, self.shape.include, beta, now)?;
                text.push_str(&row);
                text.push_str("]}");
                Ok(text)
            }
            View::Metadata { beta } | View::MetadataList { beta } => {
                let bytes = table::partial(object, beta)?;
                String::from_utf8(bytes.into()).map_err(Status::internal)
            }
            View::Object => String::from_utf8(object.bytes().to_vec()).map_err(Status::internal),
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Result<String, Status> {
        let annotations = if initial_end {
            ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}"
        } else {
            ""
        };
        let gvk = &self.row.kind.gvk;
        let text = format!(
            "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{{\"resourceVersion\":\"{revision}\",\"creationTimestamp\":null{annotations}}}}}",
            gvk.kind,
            gvk.api_version()
        );
        if self.shape.form.view == View::Object {
            return Ok(text);
        }
        let object = Object::from_json(text.into()).map_err(Status::internal)?;
        self.view(&object)
    }
}

fn wrap(kind: &str, object: &str) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

struct State {
    watch: Watch,
    writer: Writer,
    leaving: Leaving,
    sent: Counter,
    over: bool,
}

/// The encoded events of a watch. The stream ends when the watch ends, or when the
/// draining server ends this watch.
pub(crate) fn events(
    watch: Watch,
    resource_info: Arc<Row>,
    response_options: Shape,
    clock: Arc<dyn Clock>,
    open_watch: Leaving,
    sent_events: Counter,
) -> Events {
    let state = State {
        watch,
        writer: Writer {
            row: resource_info,
            shape: response_options,
            clock,
            columns_sent: false,
        },
        leaving: open_watch,
        sent: sent_events,
        over: false,
    };
    futures_util::stream::unfold(state, |mut state| async move {
        let lines = next(&mut state).await?;
        Some((lines, state))
    })
    .boxed()
}

async fn next(state: &mut State) -> Option<Bytes> {
    if state.over {
        return None;
    }
    let item = tokio::select! {
        biased;
        () = state.leaving.turn() => return None,
        item = state.watch.next() => item?,
    };
    let (first, over) = state.writer.line(item);
    let mut count = 1;
    state.over = over;
    let mut batch = BytesMut::new();
    while !state.over && first.len() + batch.len() < BATCH {
        // Takes only events that are ready now, without waiting for more.
        let Some(ready) = state.watch.next().now_or_never() else {
            break;
        };
        let Some(item) = ready else {
            state.over = true;
            break;
        };
        let (line, over) = state.writer.line(item);
        count += 1;
        state.over = over;
        if batch.is_empty() {
            batch.reserve(first.len() + 2 * line.len());
            batch.extend_from_slice(&first);
        }
        batch.extend_from_slice(&line);
    }
    state.sent.inc_by(count);
    Some(if batch.is_empty() {
        first
    } else {
        batch.freeze()
    })
}
