//! Serves watches: encodes the events of a registry watch as a stream of JSON lines, or of
//! frames of protobuf.
//!
//! All watchers share one buffer per event of the object itself and per encoding; tables and
//! partial metadata are encoded per watcher.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flotilla_metrics::Counter;
use futures_util::{FutureExt, StreamExt};
use http::HeaderValue;
use machinery::time::Clock;
use machinery::{Object, Status};
use openapi::protobuf;
use registry::RegistryWatchItem;
use registry::{RegistryWatch, ResourceInfo};

use crate::negotiation::{self, Representation, ResponseSerialization};
use crate::protobuf_responses;
use crate::response_body::BodyChunkStream;
use crate::response_writers::ResponseOptions;
use crate::table;
use crate::watch_drain::OpenWatch;

/// Bound on bytes of ready events that are sent in one write.
pub(crate) const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Encodes watch events (kube-apiserver's `watchEncoder`).
struct WatchEncoder {
    resource_info: Arc<ResourceInfo>,
    options: ResponseOptions,
    clock: Arc<dyn Clock>,
    /// Column definitions are sent in a table's first event only.
    columns_sent: bool,
}

impl WatchEncoder {
    fn encode(&mut self, item: Result<RegistryWatchItem, Status>) -> (Bytes, bool) {
        let line = match item {
            Ok(item) => self.encode_event(item),
            Err(status) => Err(status),
        };
        match line {
            Ok(line) => (line, false),
            Err(status) => (self.encode_error(&status), true),
        }
    }

    fn encode_error(&self, status: &Status) -> Bytes {
        let status = status.to_json();
        if self.is_protobuf()
            && let Ok(object) = protobuf_responses::encode_value(&status)
        {
            return protobuf::encode_watch_event("ERROR", &object).into();
        }
        watch_event_line("ERROR", &status.to_string())
    }

    fn is_protobuf(&self) -> bool {
        self.options.format.encoding == ResponseSerialization::Protobuf
    }

    /// Encodes an event as a frame of protobuf.
    fn encode_frame(&self, event_type: &str, object: &Object) -> Result<Bytes, Status> {
        let view = match self.options.format.representation {
            Representation::MetadataList { beta } => Representation::Metadata { beta },
            view => view,
        };
        let object = protobuf_responses::encode_object(object, view)?;
        Ok(protobuf::encode_watch_event(event_type, &object).into())
    }

    fn encode_event(&mut self, item: RegistryWatchItem) -> Result<Bytes, Status> {
        match item {
            RegistryWatchItem::Event(delivery) if self.is_protobuf() => {
                let change = delivery.change().as_str();
                let encode = || self.encode_frame(change, delivery.object());
                match self.options.format.representation {
                    Representation::Object => delivery.protobuf_frame(encode),
                    _ => encode(),
                }
            }
            RegistryWatchItem::Event(delivery)
                if self.options.format.representation == Representation::Object =>
            {
                Ok(delivery.frame())
            }
            RegistryWatchItem::Event(delivery) => {
                let object = self.encode_object(delivery.object())?;
                Ok(watch_event_line(delivery.change().as_str(), &object))
            }
            RegistryWatchItem::Bookmark {
                revision,
                initial_end,
            } => {
                let object = self.bookmark(revision, initial_end)?;
                if self.is_protobuf() {
                    return self.encode_frame("BOOKMARK", &object);
                }
                let text = self.encode_object(&object)?;
                Ok(watch_event_line("BOOKMARK", &text))
            }
        }
    }

    fn encode_object(&mut self, object: &Object) -> Result<String, Status> {
        match self.options.format.representation {
            Representation::Table { beta } => {
                let metadata = table::list_metadata(Some(object.revision()), None, None);
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let mut text =
                    table::table_opening(&self.resource_info.kind, beta, &metadata, columns);
                let now = self.clock.now();
                let kind = &self.resource_info.kind;
                let row = table::table_row(kind, object, self.options.include, beta, now)?;
                text.push_str(&row);
                text.push_str("]}");
                Ok(text)
            }
            Representation::Metadata { beta } | Representation::MetadataList { beta } => {
                let bytes = table::partial_object_metadata(object, beta)?;
                String::from_utf8(bytes.into()).map_err(Status::internal)
            }
            Representation::Object => {
                String::from_utf8(object.served_bytes().into()).map_err(Status::internal)
            }
        }
    }

    /// The object of a bookmark.
    fn bookmark(&self, revision: u64, initial_end: bool) -> Result<Object, Status> {
        let annotations = if initial_end {
            ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}"
        } else {
            ""
        };
        let gvk = &self.resource_info.kind.gvk;
        let text = format!(
            "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{{\"resourceVersion\":\"{revision}\"{annotations}}}}}",
            gvk.kind,
            gvk.api_version()
        );
        Object::from_json(text.into()).map_err(Status::internal)
    }
}

/// The content type of a watch.
pub(crate) fn content_type(encoding: ResponseSerialization) -> HeaderValue {
    HeaderValue::from_static(match encoding {
        ResponseSerialization::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        ResponseSerialization::Json | ResponseSerialization::Yaml => negotiation::JSON,
    })
}

/// A watch event in JSON, with its line feed.
fn watch_event_line(kind: &str, object: &str) -> Bytes {
    let mut line = Vec::new();
    push_watch_event_line(&mut line, kind, object.as_bytes());
    line.into()
}

/// Appends a watch event in JSON, with its line feed.
pub(crate) fn push_watch_event_line(lines: &mut Vec<u8>, kind: &str, object: &[u8]) {
    const FRAME_BYTES: usize = 40;
    lines.reserve(object.len() + FRAME_BYTES);
    lines.extend_from_slice(b"{\"type\":\"");
    lines.extend_from_slice(kind.as_bytes());
    lines.extend_from_slice(b"\",\"object\":");
    lines.extend_from_slice(object);
    lines.extend_from_slice(b"}\n");
}

/// Encodes the events of one registry watch for the response body.
struct WatchServer {
    watch: RegistryWatch,
    encoder: WatchEncoder,
    open_watch: OpenWatch,
    sent_events: Counter,
    done: bool,
}

/// The encoded events of a watch. The stream ends when the watch ends, or when the
/// draining server ends this watch.
pub(crate) fn event_stream(
    watch: RegistryWatch,
    resource_info: Arc<ResourceInfo>,
    response_options: ResponseOptions,
    clock: Arc<dyn Clock>,
    open_watch: OpenWatch,
    sent_events: Counter,
) -> BodyChunkStream {
    let state = WatchServer {
        watch,
        encoder: WatchEncoder {
            resource_info,
            options: response_options,
            clock,
            columns_sent: false,
        },
        open_watch,
        sent_events,
        done: false,
    };
    futures_util::stream::unfold(state, |mut state| async move {
        let lines = next_batch(&mut state).await?;
        Some((lines, state))
    })
    .boxed()
}

async fn next_batch(state: &mut WatchServer) -> Option<Bytes> {
    if state.done {
        return None;
    }
    let item = tokio::select! {
        biased;
        () = state.open_watch.wait_for_turn() => return None,
        item = state.watch.next() => item?,
    };
    let (first, is_last) = state.encoder.encode(item);
    let mut count = 1;
    state.done = is_last;
    let mut batch = BytesMut::new();
    while !state.done && first.len() + batch.len() < MAX_BATCH_BYTES {
        // Takes only events that are ready now, without waiting for more.
        let Some(ready) = state.watch.next().now_or_never() else {
            break;
        };
        let Some(item) = ready else {
            state.done = true;
            break;
        };
        let (line, is_last) = state.encoder.encode(item);
        count += 1;
        state.done = is_last;
        if batch.is_empty() {
            batch.reserve(first.len() + 2 * line.len());
            batch.extend_from_slice(&first);
        }
        batch.extend_from_slice(&line);
    }
    state.sent_events.inc_by(count);
    Some(if batch.is_empty() {
        first
    } else {
        batch.freeze()
    })
}
