//! Answers watches of resources of members: one stream of events of all of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::ShutdownToken;
use futures_util::stream::Fuse;
use futures_util::{FutureExt, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use machinery::time::Clock;
use machinery::{Object, Status};
use members::{MemberWatchEvent, MemberWatchRequest, MemberWatchStream};
use openapi::KindInfo;
use serde_json::json;

use super::member_responses::response_options;
use super::native_request::{MemberResourceReader, NativeRequest};
use crate::negotiation::{self, Representation, ResponseSerialization};
use crate::response_body::{BodyChunkStream, ServerResponseBody};
use crate::response_writers::ResponseOptions;
use crate::table::{self, TableKind};
use crate::watch::{MAX_BATCH_BYTES, content_type, push_watch_event_line};
use crate::websocket_handshake::is_websocket_request;

impl MemberResourceReader {
    pub(super) async fn watch(
        &self,
        request: &NativeRequest,
        kind: &Arc<KindInfo>,
        headers: &HeaderMap,
        shutdown: ShutdownToken,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let options = response_options(headers, &request.query)?;
        if options.format.encoding == ResponseSerialization::Yaml {
            return Err(Status::not_acceptable(&[negotiation::JSON]));
        }
        if is_websocket_request(headers) {
            let text = "the global proxy does not serve watches over WebSocket";
            return Err(Status::bad_request(text));
        }
        let seconds = request.number("timeoutSeconds")?;
        let send_initial_events = request.query.get("sendInitialEvents");
        let watch = MemberWatchRequest {
            selection: request.selection(kind)?,
            resource_version: request.param("resourceVersion").to_owned(),
            resource_version_match: request.param("resourceVersionMatch").to_owned(),
            send_initial_events: send_initial_events
                .map(|_| request.query.flag("sendInitialEvents")),
            bookmarks: request.query.flag("allowWatchBookmarks"),
            timeout: (seconds > 0).then(|| Duration::from_secs(seconds)),
        };
        let events = self.cache.watch(&request.gvr(), watch).await?;
        let encoder = MemberWatchEncoder {
            kind: Arc::clone(kind),
            with_cluster: self.with_cluster_column,
            options,
            clock: Arc::clone(&self.clock),
            columns_sent: false,
        };
        let server = MemberWatchServer {
            events: events.fuse(),
            encoder,
            shutdown,
        };
        let body = ServerResponseBody::events(server.into_stream());
        let mut response = Response::new(body);
        let content_type = content_type(ResponseSerialization::Json);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }
}

/// Encodes the events of one watch, until the watch or the server ends.
struct MemberWatchServer {
    events: Fuse<MemberWatchStream>,
    encoder: MemberWatchEncoder,
    shutdown: ShutdownToken,
}

impl MemberWatchServer {
    fn into_stream(self) -> BodyChunkStream {
        let lines = futures_util::stream::unfold(self, |mut server| async {
            let batch = server.next_batch().await?;
            Some((batch, server))
        });
        lines.boxed()
    }

    /// The next event, and those behind it that are ready now: they are sent in one write.
    async fn next_batch(&mut self) -> Option<Bytes> {
        let first = self.events.next();
        let first = self.shutdown.run_until_triggered(first).await??;
        let mut lines = Vec::new();
        self.encoder.encode(first, &mut lines);
        while lines.len() < MAX_BATCH_BYTES {
            let Some(Some(event)) = self.events.next().now_or_never() else {
                break;
            };
            self.encoder.encode(event, &mut lines);
        }
        Some(lines.into())
    }
}

struct MemberWatchEncoder {
    kind: Arc<KindInfo>,
    /// Whether tables begin with a column of clusters.
    with_cluster: bool,
    options: ResponseOptions,
    clock: Arc<dyn Clock>,
    /// Column definitions are sent in a table's first event only.
    columns_sent: bool,
}

impl MemberWatchEncoder {
    fn encode(&mut self, event: Result<MemberWatchEvent, Status>, lines: &mut Vec<u8>) {
        let encoded = event.and_then(|event| match event {
            MemberWatchEvent::Object { event_type, object } => {
                Ok((event_type, self.encode_object(&object)?))
            }
            MemberWatchEvent::Bookmark {
                resource_version,
                initial_end,
            } => {
                let object = self.bookmark(&resource_version, initial_end)?;
                Ok(("BOOKMARK", self.encode_object(&object)?))
            }
        });
        let (event_type, object) =
            encoded.unwrap_or_else(|status| ("ERROR", status.to_json().to_string().into()));
        push_watch_event_line(lines, event_type, &object);
    }

    fn bookmark(&self, resource_version: &str, initial_end: bool) -> Result<Object, Status> {
        let gvk = &self.kind.gvk;
        let mut value = json!({"kind": gvk.kind, "apiVersion": gvk.api_version(),
            "metadata": {"resourceVersion": resource_version}});
        if initial_end {
            value["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        Object::from_value(&value).map_err(Status::internal)
    }

    fn encode_object(&mut self, object: &Object) -> Result<Bytes, Status> {
        Ok(match self.options.format.representation {
            Representation::Table { beta } => {
                let value = object.value().map_err(Status::internal)?;
                let version = &value["metadata"]["resourceVersion"];
                let metadata = json!({"resourceVersion": version}).to_string();
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let kind = TableKind {
                    kind: &self.kind,
                    with_cluster: self.with_cluster,
                };
                let mut text = table::table_opening(kind, beta, &metadata, columns);
                let (include, now) = (self.options.include, self.clock.now());
                text.push_str(&table::table_row(kind, object, include, beta, now)?);
                text.push_str("]}");
                text.into()
            }
            Representation::Metadata { beta } | Representation::MetadataList { beta } => {
                table::partial_object_metadata(object, beta)?
            }
            Representation::Object => object.served_bytes(),
        })
    }
}
