//! `client::Api` over the registry for the controllers of this process: no HTTP and no
//! encoding; objects are shared with the watch cache. Each client makes its calls as one user:
//! nothing authorizes them, but admission sees the user.

use std::sync::Arc;
use std::time::Duration;

use admission::RequestedWriteOptions;
use admission::policies::{KindResources, KindSchemas};
use admission::webhooks::NamespaceLookup;
use async_trait::async_trait;
use client::{
    Api, ApiCall, ApiReply, ApiResource, ObjectList, ResourcePath, ResourceVersionMatch, Result,
    ServerResources, WatchEvent, WatchStream,
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

    async fn open_watch(
        &self,
        at: ResourcePath<'_>,
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
        let watch = self.registry.watch(&self.ctx, at, &options).await?;
        let stream = futures_util::stream::unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            match watch.next().await? {
                Ok(item) => Some((Ok(watch_event(item)), Some(watch))),
                Err(status) => Some((Err(status.into()), None)),
            }
        });
        Ok(Box::pin(stream))
    }

    fn resources(&self) -> ServerResources {
        let table = self.registry.table();
        let served = table
            .groups()
            .iter()
            .flat_map(|g| &g.versions)
            .flat_map(|v| &v.resources);
        let resources = served
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
        ServerResources {
            resources,
            failed_group_versions: Vec::new(),
        }
    }
}

/// The object that a delete left, with pending finalizers.
fn remaining_object(response: DeleteResponse) -> Option<Object> {
    match response {
        DeleteResponse::Object {
            object,
            gone: false,
        } => Some(object),
        DeleteResponse::Object { .. } | DeleteResponse::Status(_) => None,
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
        field_validation: match options.strict {
            true => FieldValidation::Strict,
            false => FieldValidation::Ignore,
        },
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
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let (registry, ctx) = (&self.registry, &self.ctx);
        Ok(match call {
            ApiCall::Get(at) => registry.get(ctx, at, &GetOptions::default()).await?.into(),
            ApiCall::GetCached(at) => {
                let options = GetOptions {
                    resource_version: "0".into(),
                };
                registry.get(ctx, at, &options).await?.into()
            }
            ApiCall::List(at, options) => {
                let page = registry.list(ctx, at, options).await?;
                let list = ObjectList {
                    items: page.items,
                    revision: page.revision.unwrap_or_default(),
                    continue_token: page.continue_token.unwrap_or_default(),
                };
                list.into()
            }
            ApiCall::Watch(at, options) => self.open_watch(at, options).await?.into(),
            ApiCall::Create(at, body, options) => {
                let body = ObjectBody::from(body.into_tree()?);
                let options = registry_write_options(options);
                let created = registry.create(ctx, at, body, &options).await?;
                created.object.into()
            }
            ApiCall::CreateEvents(events) => {
                let results = registry.create_events(ctx, events).await.into_iter();
                let results: Vec<Result<()>> = results.map(|r| r.map_err(Into::into)).collect();
                results.into()
            }
            ApiCall::Update(at, body, options) => {
                let body = ObjectBody::from(body.into_tree()?);
                let options = registry_write_options(options);
                let updated = registry.update(ctx, at, body, &options).await?;
                updated.object.into()
            }
            ApiCall::Patch(at, patch, options) => {
                let options = registry_write_options(options);
                let patched = registry.patch(ctx, at, patch, &options).await?;
                patched.object.into()
            }
            ApiCall::Delete(at, options) => {
                let deleted = registry.delete(ctx, at, options).await?;
                remaining_object(deleted.response).into()
            }
            ApiCall::DeleteCollection(at, options, select) => {
                let deleted = registry.delete_collection(ctx, at, options, select).await;
                deleted.map(drop)?.into()
            }
            ApiCall::Discover(filter) => self.resources().retain_groups(filter).into(),
            ApiCall::GetRaw(path, _) => {
                let body = registry.get_raw(path);
                body.ok_or_else(Status::path_not_found)?.into()
            }
        })
    }

    fn with_user(&self, user: &UserInfo) -> Option<Arc<dyn Api>> {
        Some(Self::new(Arc::clone(&self.registry), user.clone()))
    }

    fn server_identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.registry).cast::<()>() as usize)
    }
}
