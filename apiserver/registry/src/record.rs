//! Creates the events of this process's controllers on a fast path, since they are more
//! numerous than all other objects and valid by construction.
//!
//! The stored bytes are those that a POST of the event would store, without a JSON tree,
//! schema validation or response.

use bytes::Bytes;
use client::Event;
use client::event::EVENTS;
use futures_util::future::join_all;
use machinery::Status;
use machinery::names::dns1123_subdomain;
use serde_json::Value;

use crate::registry::Registry;
use crate::request::{Body, Ctx, WriteOptions};
use crate::table::Row;

impl Registry {
    /// Creates events; results are in the same order.
    pub(crate) async fn record(&self, ctx: &Ctx, events: Vec<Event>) -> Vec<Result<(), Status>> {
        let resource = match self.row(&EVENTS) {
            Ok(resource) => resource,
            Err(status) => return events.iter().map(|_| Err(status.clone())).collect(),
        };
        let now = self.now();
        let writes = events
            .into_iter()
            .map(|event| self.record_one(ctx, &resource, event, &now));
        // The store commits them together.
        join_all(writes).await
    }

    async fn record_one(
        &self,
        ctx: &Ctx,
        resource: &Row,
        mut event: Event,
        now: &str,
    ) -> Result<(), Status> {
        if dns1123_subdomain(&event.metadata.name).is_err() {
            // An invalid name needs the error of a regular create.
            return self.record_by_post(ctx, &event).await;
        }
        let (namespace, name) = (&event.metadata.namespace, &event.metadata.name);
        self.check_lifecycle(resource, namespace, name).await?;
        let key = self.key(resource, namespace, name);
        event.metadata.creation_timestamp = now.to_owned();
        event.metadata.uid = uuid::Uuid::new_v4().to_string();
        let bytes = Bytes::from(serde_json::to_vec(&event).map_err(Status::internal)?);
        match self.put_unseen(resource, key, bytes).await? {
            Some(_) => Ok(()),
            None => Err(Status::already_exists(
                &resource.kind.gvr,
                &event.metadata.name,
            )),
        }
    }

    async fn record_by_post(&self, ctx: &Ctx, event: &Event) -> Result<(), Status> {
        let body: Value = serde_json::to_value(event).map_err(Status::internal)?;
        let at = client::At::all(&EVENTS, &event.metadata.namespace);
        let options = WriteOptions::default();
        let written = self.create(ctx, at, Body::from(body), &options).await;
        written.map(drop)
    }
}
