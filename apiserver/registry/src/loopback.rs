//! `client::Api` over the registry for the controllers of this process: no HTTP and no
//! encoding; objects are shared with the watch cache. All calls are made as one user.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Api, ApiResource, At, DeleteOptions, Discovered, EncodedBody, Event, List, ListOptions, Match,
    Patch, Result, WatchEvent, WatchStream,
};
use machinery::{Object, Status, UserInfo};
use serde_json::Value;
use watchcache::Change;

use crate::read::Item;
use crate::registry::Registry;
use crate::request::{Body, Ctx, Deleted, FieldValidation, GetOptions, WatchOptions, WriteOptions};

/// The registry as an [`Api`], without authorization.
pub struct Loopback {
    registry: Arc<Registry>,
    ctx: Ctx,
}

impl Loopback {
    /// Creates an API whose calls are made as `user`.
    pub fn new(registry: Arc<Registry>, user: UserInfo) -> Arc<Self> {
        let ctx = Ctx {
            user: Arc::new(user),
            deadline: None,
        };
        Arc::new(Self { registry, ctx })
    }
}

fn writing(options: &client::WriteOptions) -> WriteOptions {
    WriteOptions {
        dry_run: options.dry_run,
        field_manager: options.field_manager.clone(),
        field_validation: FieldValidation::Ignore,
    }
}

fn event(item: Item) -> WatchEvent {
    match item {
        Item::Bookmark {
            revision,
            initial_end,
        } => WatchEvent::Bookmark {
            revision,
            initial_end,
        },
        Item::Event(event) => {
            let object = event.object().clone();
            match event.change() {
                Change::Added => WatchEvent::Added(object),
                Change::Modified => WatchEvent::Modified(object),
                Change::Deleted => WatchEvent::Deleted(object),
            }
        }
    }
}

fn decode(body: EncodedBody) -> Result<Value> {
    let tree = body.into_value();
    Ok(tree.map_err(|e| Status::bad_request(e.to_string()))?)
}

#[async_trait]
impl Api for Loopback {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        Ok(self
            .registry
            .get(&self.ctx, at, &GetOptions::default())
            .await?)
    }

    async fn get_cached(&self, at: At<'_>) -> Result<Object> {
        let options = GetOptions {
            resource_version: "0".into(),
        };
        Ok(self.registry.get(&self.ctx, at, &options).await?)
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        let reply = self.registry.list(&self.ctx, at, options).await?;
        Ok(List {
            items: reply.items,
            revision: reply.revision,
            continue_token: reply.next.unwrap_or_default(),
        })
    }

    async fn watch(&self, at: At<'_>, options: &client::WatchOptions) -> Result<WatchStream> {
        let initial = options.send_initial_events;
        let options = WatchOptions {
            label_selector: options.label_selector.clone(),
            field_selector: options.field_selector.clone(),
            resource_version: options.resource_version.clone(),
            resource_version_match: if initial {
                Match::NotOlderThan
            } else {
                Match::Unset
            },
            send_initial_events: initial.then_some(true),
            bookmarks: options.bookmarks,
            timeout: (options.timeout_seconds > 0)
                .then(|| Duration::from_secs(options.timeout_seconds.into())),
        };
        let watch = self.registry.watch(&self.ctx, at, &options).await?;
        let stream = futures_util::stream::unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            match watch.next().await? {
                Ok(item) => Some((Ok(event(item)), Some(watch))),
                Err(status) => Some((Err(status.into()), None)),
            }
        });
        Ok(Box::pin(stream))
    }

    async fn create(
        &self,
        at: At<'_>,
        body: Value,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let body = Body::from(body);
        let written = self
            .registry
            .create(&self.ctx, at, body, &writing(options))
            .await?;
        Ok(written.object)
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        self.create(at, decode(body)?, options).await
    }

    async fn record(&self, events: Vec<Event>) -> Vec<Result<()>> {
        let outcomes = self.registry.record(&self.ctx, events).await;
        let outcomes = outcomes.into_iter().map(|o| o.map_err(Into::into));
        outcomes.collect()
    }

    async fn update(
        &self,
        at: At<'_>,
        body: Value,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let body = Body::from(body);
        let written = self
            .registry
            .update(&self.ctx, at, body, &writing(options))
            .await?;
        Ok(written.object)
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        self.update(at, decode(body)?, options).await
    }

    async fn patch(
        &self,
        at: At<'_>,
        patch: Patch,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let written = self
            .registry
            .patch(&self.ctx, at, patch, &writing(options))
            .await?;
        Ok(written.object)
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        match self.registry.delete(&self.ctx, at, options).await? {
            Deleted::Object {
                object,
                gone: false,
            } => Ok(Some(object)),
            Deleted::Object { .. } | Deleted::Gone(_) => Ok(None),
        }
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.registry
            .delete_collection(&self.ctx, at, options, select)
            .await?;
        Ok(())
    }

    async fn resources(&self) -> Result<Discovered> {
        let table = self.registry.table();
        let rows = table
            .groups()
            .iter()
            .flat_map(|g| &g.versions)
            .flat_map(|v| &v.rows);
        let resources = rows
            .map(|resource| ApiResource {
                resource: resource.kind.gvr.clone(),
                kind: resource.kind.gvk.kind.to_string(),
                namespaced: resource.kind.namespaced,
                verbs: resource.verbs.clone(),
                subresources: resource
                    .subresources
                    .iter()
                    .map(|s| s.name.to_owned())
                    .collect(),
                categories: resource.kind.categories.clone(),
                short_names: resource.kind.short_names.clone(),
            })
            .collect();
        Ok(Discovered {
            resources,
            failed: Vec::new(),
        })
    }

    async fn raw(&self, path: &str) -> Result<Bytes> {
        let found = self.registry.raw(path);
        found.ok_or_else(|| Status::no_such_path().into())
    }
}
