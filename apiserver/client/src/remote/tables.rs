//! Reads objects and collections as Tables (`meta.k8s.io/v1`), which the server has
//! formatted for people, for commands that print them.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http_body_util::BodyExt;

use super::pool::ResponseBody;
use super::request::ApiRequest;
use super::{MAX_LIST_BYTES, RemoteApi};
use crate::api::{Error, ListOptions, ResourcePath, Result, WatchOptions};

/// kubectl's header; a server that knows no Tables answers with objects.
const TABLE_ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// A watch event holds one row and the metadata of its object.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// The encoded events of a watch; each has a Table as its object. An error is the last
/// item.
pub type TableWatchStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

impl RemoteApi {
    /// GET of an object or a collection as a Table, whose rows have the metadata of their
    /// objects, or all of them.
    pub async fn get_table(
        &self,
        at: ResourcePath<'_>,
        options: &ListOptions,
        whole_objects: bool,
    ) -> Result<Bytes> {
        let mut ask = ApiRequest::list(at, options);
        if whole_objects {
            ask.add_query("includeObject", "Object");
        }
        ask.accept = TABLE_ACCEPT;
        self.fetch_body_of(&ask, MAX_LIST_BYTES).await
    }

    /// GET of a collection or of one object with `watch=1`, whose events have Tables.
    pub async fn watch_table(
        &self,
        at: ResourcePath<'_>,
        options: &WatchOptions,
    ) -> Result<TableWatchStream> {
        let mut ask = ApiRequest::watch(at, options);
        ask.accept = TABLE_ACCEPT;
        let watch = TableWatch {
            body: Box::pin(self.open_body(&ask).await?),
            buffer: BytesMut::new(),
            scanned: 0,
            host: self.host.clone(),
        };
        Ok(Box::pin(stream::try_unfold(
            watch,
            |mut watch| async move {
                let event = watch.next_event().await?;
                Ok(event.map(|event| (event, watch)))
            },
        )))
    }
}

/// An open watch, read line by line.
struct TableWatch {
    body: Pin<Box<ResponseBody>>,
    buffer: BytesMut,
    /// The bytes of the buffer that have no line feed.
    scanned: usize,
    host: String,
}

impl TableWatch {
    async fn next_event(&mut self) -> Result<Option<Bytes>> {
        loop {
            let rest = &self.buffer[self.scanned..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + at + 1).freeze();
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_EVENT_BYTES {
                return Err(Error::Protocol(format!(
                    "a watch event exceeds {MAX_EVENT_BYTES} bytes"
                )));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::Transport {
                        host: self.host.clone(),
                        message: super::pool::error_chain(&error),
                    });
                }
                None => return Ok(None),
            }
        }
    }
}
