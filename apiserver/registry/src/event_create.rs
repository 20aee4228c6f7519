//! Creates the events of this process's controllers on a fast path, since they are more
//! numerous than all other objects and valid by construction.
//!
//! The stored bytes are those that a POST of the event would store, without a JSON tree,
//! schema validation or response.

use bytes::Bytes;
use client::CoreEvent;
use client::event::EVENTS;
use futures_util::FutureExt;
use futures_util::future::join_all;
use machinery::Status;
use machinery::names::validate_dns1123_subdomain;
use serde_json::Value;

use crate::registry::Registry;
use crate::request::{ObjectBody, RegistryWriteOptions, RequestContext};
use crate::resource_table::ResourceInfo;

impl Registry {
    /// Creates events; results are in the same order.
    pub(crate) async fn create_events(
        &self,
        ctx: &RequestContext,
        events: Vec<CoreEvent>,
    ) -> Vec<Result<(), Status>> {
        let resource = match self.resource_info(&EVENTS) {
            Ok(resource) => resource,
            Err(status) => return events.iter().map(|_| Err(status.clone())).collect(),
        };
        let now = self.now();
        let writes = events
            .into_iter()
            .map(|event| self.create_event(ctx, &resource, event, &now));
        // The store commits them together.
        join_all(writes).await
    }

    async fn create_event(
        &self,
        ctx: &RequestContext,
        resource: &ResourceInfo,
        mut event: CoreEvent,
        now: &str,
    ) -> Result<(), Status> {
        let has_admission = self.matching_admission(resource, "").is_some();
        if has_admission || validate_dns1123_subdomain(&event.metadata.name).is_err() {
            // Policies and webhooks need a regular create, and an invalid name needs its error.
            // The box keeps the futures of other events small.
            return self.create_event_as_object(ctx, &event).boxed().await;
        }
        let (namespace, name) = (&event.metadata.namespace, &event.metadata.name);
        self.check_namespace_lifecycle(resource, namespace, name)
            .await?;
        let key = self.storage_key(resource, namespace, name);
        event.metadata.creation_timestamp = now.to_owned();
        event.metadata.uid = uuid::Uuid::new_v4().to_string();
        let bytes = Bytes::from(serde_json::to_vec(&event).map_err(Status::internal)?);
        match self.put_without_decoding(resource, key, bytes).await? {
            Some(_) => Ok(()),
            None => Err(Status::already_exists(
                &resource.kind.gvr,
                &event.metadata.name,
            )),
        }
    }

    async fn create_event_as_object(
        &self,
        ctx: &RequestContext,
        event: &CoreEvent,
    ) -> Result<(), Status> {
        let body: Value = serde_json::to_value(event).map_err(Status::internal)?;
        let path = client::ResourcePath::collection(&EVENTS, &event.metadata.namespace);
        let options = RegistryWriteOptions {
            creates_without_managers: true,
            ..RegistryWriteOptions::default()
        };
        let written = self
            .create(ctx, path, ObjectBody::from(body), &options)
            .await;
        written.map(drop)
    }
}
