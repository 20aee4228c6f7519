//! `client::Api` over the registry for the controllers of this process: no HTTP and no
//! encoding; objects are shared with the watch cache. Each client makes its calls as one user:
//! nothing authorizes them, but admission sees the user.

use std::sync::Arc;
use std::time::Duration;

use admission::RequestedWriteOptions;
use admission::policies::{KindResources, KindSchemas};
use admission::webhooks::NamespaceLookup;
use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Api, ApiResource, CoreEvent, DeleteOptions, ListOptions, ObjectList, Patch, ResourcePath,
    ResourceVersionMatch, Result, ServerResources, WatchEvent, WatchStream, WriteBody,
};
use machinery::{Gvk, Gvr, Object, Status, UserInfo};
use openapi::publish::{PublishedResource, inline_schema};
use serde_json::Value;
use watchcache::ObjectEventType;

use crate::read::RegistryWatchItem;
use crate::registry::Registry;
use crate::request::{
    DeleteResponse, FieldValidation, GetOptions, ObjectBody, RegistryWatchOptions,
    RegistryWriteOptions, RequestContext,
};

/// The registry as an [`Api`], without authorization.
pub struct LoopbackApi {
    registry: Arc<Registry>,
    ctx: RequestContext,
}

impl LoopbackApi {
    /// Creates an API whose calls are made as `user`.
    pub fn new(registry: Arc<Registry>, user: UserInfo) -> Arc<Self> {
        let ctx = RequestContext {
            user: Arc::new(user),
            ..RequestContext::internal()
        };
        Arc::new(Self { registry, ctx })
    }
}

/// The manager of the fields that the controllers of this process write.
const CONTROLLERS_FIELD_MANAGER: &str = "flotilla-controllers";

/// The objects that controllers create have no managers, which costs them nothing; what
/// they change in objects of others is tracked.
fn registry_write_options(options: &client::WriteOptions) -> RegistryWriteOptions {
    let manager = match options.field_manager.as_str() {
        "" => CONTROLLERS_FIELD_MANAGER,
        manager => manager,
    };
    RegistryWriteOptions {
        dry_run: options.dry_run,
        field_manager: manager.to_owned(),
        requested: RequestedWriteOptions {
            field_manager: options.field_manager.clone(),
            ..RequestedWriteOptions::default()
        },
        creates_without_managers: true,
        field_validation: FieldValidation::Ignore,
        patch_errors: Vec::new(),
    }
}

fn watch_event(item: RegistryWatchItem) -> WatchEvent {
    match item {
        RegistryWatchItem::Bookmark {
            revision,
            initial_end,
        } => WatchEvent::Bookmark {
            revision,
            initial_end,
        },
        RegistryWatchItem::Event(event) => {
            let object = event.object().clone();
            match event.change() {
                ObjectEventType::Added => WatchEvent::Added(object),
                ObjectEventType::Modified => WatchEvent::Modified(object),
                ObjectEventType::Deleted => WatchEvent::Deleted(object),
            }
        }
    }
}

#[async_trait]
impl NamespaceLookup for LoopbackApi {
    async fn get_namespace(&self, name: &str) -> std::result::Result<Option<Object>, Status> {
        self.registry.get_namespace(name).await
    }
}

impl KindResources for LoopbackApi {
    fn resource_of(&self, kind: &Gvk) -> Option<(Gvr, bool)> {
        let table = self.registry.table();
        let resource = table.resources().iter().find(|r| r.kind.gvk == *kind)?;
        Some((resource.kind.gvr.clone(), resource.kind.namespaced))
    }
}

impl KindSchemas for LoopbackApi {
    fn kind_of(&self, resource: &Gvr) -> Option<Gvk> {
        let table = self.registry.table();
        Some(table.find(resource)?.kind.gvk.clone())
    }

    fn schema_of(&self, kind: &Gvk) -> Option<Value> {
        let table = self.registry.table();
        let resource = table.resources().iter().find(|r| r.kind.gvk == *kind)?;
        let (kind, schema) = (&resource.kind, &resource.schema);
        inline_schema(PublishedResource { kind, schema })
    }
}

#[async_trait]
impl Api for LoopbackApi {
    async fn get(&self, path: ResourcePath<'_>) -> Result<Object> {
        Ok(self
            .registry
            .get(&self.ctx, path, &GetOptions::default())
            .await?)
    }

    async fn get_cached(&self, path: ResourcePath<'_>) -> Result<Object> {
        let options = GetOptions {
            resource_version: "0".into(),
        };
        Ok(self.registry.get(&self.ctx, path, &options).await?)
    }

    async fn list(&self, path: ResourcePath<'_>, options: &ListOptions) -> Result<ObjectList> {
        let reply = self.registry.list(&self.ctx, path, options).await?;
        Ok(ObjectList {
            items: reply.items,
            revision: reply.revision.unwrap_or_default(),
            continue_token: reply.continue_token.unwrap_or_default(),
        })
    }

    async fn watch(
        &self,
        path: ResourcePath<'_>,
        options: &client::WatchOptions,
    ) -> Result<WatchStream> {
        let initial = options.send_initial_events;
        let options = RegistryWatchOptions {
            label_selector: options.label_selector.clone(),
            field_selector: options.field_selector.clone(),
            resource_version: options.resource_version.clone(),
            resource_version_match: if initial {
                ResourceVersionMatch::NotOlderThan
            } else {
                ResourceVersionMatch::Unset
            },
            send_initial_events: initial.then_some(true),
            bookmarks: options.bookmarks,
            timeout: (options.timeout_seconds > 0)
                .then(|| Duration::from_secs(options.timeout_seconds.into())),
        };
        let watch = self.registry.watch(&self.ctx, path, &options).await?;
        let stream = futures_util::stream::unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            match watch.next().await? {
                Ok(item) => Some((Ok(watch_event(item)), Some(watch))),
                Err(status) => Some((Err(status.into()), None)),
            }
        });
        Ok(Box::pin(stream))
    }

    async fn create(
        &self,
        path: ResourcePath<'_>,
        body: WriteBody,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let body = ObjectBody::from(body.into_tree()?);
        let written = self
            .registry
            .create(&self.ctx, path, body, &registry_write_options(options))
            .await?;
        Ok(written.object)
    }

    async fn create_events(&self, events: Vec<CoreEvent>) -> Vec<Result<()>> {
        let outcomes = self.registry.create_events(&self.ctx, events).await;
        let outcomes = outcomes.into_iter().map(|o| o.map_err(Into::into));
        outcomes.collect()
    }

    async fn update(
        &self,
        path: ResourcePath<'_>,
        body: WriteBody,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let body = ObjectBody::from(body.into_tree()?);
        let written = self
            .registry
            .update(&self.ctx, path, body, &registry_write_options(options))
            .await?;
        Ok(written.object)
    }

    async fn patch(
        &self,
        path: ResourcePath<'_>,
        patch: Patch,
        options: &client::WriteOptions,
    ) -> Result<Object> {
        let written = self
            .registry
            .patch(&self.ctx, path, patch, &registry_write_options(options))
            .await?;
        Ok(written.object)
    }

    async fn delete(
        &self,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<Option<Object>> {
        match self
            .registry
            .delete(&self.ctx, path, options)
            .await?
            .response
        {
            DeleteResponse::Object {
                object,
                gone: false,
            } => Ok(Some(object)),
            DeleteResponse::Object { .. } | DeleteResponse::Status(_) => Ok(None),
        }
    }

    async fn delete_collection(
        &self,
        path: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.registry
            .delete_collection(&self.ctx, path, options, select)
            .await?;
        Ok(())
    }

    async fn discover(&self) -> Result<ServerResources> {
        let table = self.registry.table();
        let rows = table
            .groups()
            .iter()
            .flat_map(|g| &g.versions)
            .flat_map(|v| &v.resources);
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
        Ok(ServerResources {
            resources,
            failed_group_versions: Vec::new(),
        })
    }

    async fn get_raw(&self, path: &str) -> Result<Bytes> {
        let object = self.registry.get_raw(path);
        object.ok_or_else(|| Status::path_not_found().into())
    }

    fn with_user(&self, user: &UserInfo) -> Option<Arc<dyn Api>> {
        Some(Self::new(Arc::clone(&self.registry), user.clone()))
    }

    fn server_identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.registry).cast::<()>() as usize)
    }
}
