//! Get, list and watch, served by the watch cache.
//!
//! Selectors match stored objects; objects of other versions are converted afterwards.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::ResourcePath;
use machinery::{FieldSelector, Gvk, Gvr, LabelSelector, Object, Status};
use rand::Rng;
use tokio::sync::watch;
use tokio::time::Instant;
use watchcache::{
    CacheWatcher, CacherListRequest, CacherWatchRequest, ObjectEvent, ObjectEventType,
    ObjectPredicate, ResourceVersionParams, SelectionPredicate,
};

use crate::computed_resources::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, RegistryReader,
};
use crate::conversion::VersionConversion;
use crate::options::{list_params, watch_params};
use crate::registry::Registry;
use crate::request::{GetOptions, ObjectListPage, RegistryWatchOptions, RequestContext};
use crate::resource_table::{ResourceInfo, ResourceTable};
use crate::scale;
use crate::selectable_fields::{SelectableField, built_in_fields};

/// The timeout of watches without one is random, between this and twice this.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The storage key of an object without the prefix of its resource.
pub(crate) fn key_suffix(resource: &ResourceInfo, namespace: &str, name: &str) -> String {
    if resource.kind.namespaced {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

/// Converts a stored object to the version of a served resource.
pub(crate) fn convert_object(resource: &ResourceInfo, object: Object) -> Result<Object, Status> {
    if resource.conversion == VersionConversion::Stored {
        return Ok(object);
    }
    let mut value = object
        .value()
        .map_err(|e| resource.decode_failure(&object, e))?;
    resource
        .conversion
        .convert_from_storage(&resource.kind.gvk, &mut value);
    let converted = Object::from_value(&value).and_then(|o| o.with_managed_fields_of(&object));
    converted.map_err(Status::internal)
}

/// 405 unless the resource, or its subresource, supports the verb.
pub(crate) fn check_verb(
    resource: &ResourceInfo,
    path: &ResourcePath<'_>,
    verb: &str,
) -> Result<(), Status> {
    let allowed = if path.subresource.is_empty() {
        resource.supports_verb(verb)
    } else {
        let sub = resource
            .subresource(path.subresource)
            .ok_or_else(Status::path_not_found)?;
        sub.verbs.contains(&verb)
    };
    if allowed {
        Ok(())
    } else {
        Err(Status::method_not_allowed())
    }
}

impl Registry {
    /// Gets an object, or its `status` or `scale`. 404 if it does not exist.
    pub async fn get(
        &self,
        context: &RequestContext,
        path: ResourcePath<'_>,
        options: &GetOptions,
    ) -> Result<Object, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "get")?;
        let position = ResourceVersionParams {
            resource_version: &options.resource_version,
            resource_version_match: "",
            limit: 0,
            continue_token: "",
            send_initial_events: None,
        };
        let fresh = position.for_get()?;
        if let Some(provider) = self.provider_of(&resource) {
            let computed = self.compute(&**provider, context, &path, "").await?.objects;
            let computed_object = computed
                .into_iter()
                .find(|object| object.name() == path.name);
            return computed_object.ok_or_else(|| Status::not_found(&resource.kind.gvr, path.name));
        }
        let object = resource
            .storage
            .cache
            .get(&key_suffix(&resource, path.namespace, path.name), fresh)
            .await
            .map_err(|e| e.status())?
            .ok_or_else(|| Status::not_found(&resource.kind.gvr, path.name))?;
        match (path.subresource, &resource.kind.scale) {
            ("scale", Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                if resource.custom {
                    scale::check_replicas_exist(paths, &parent)?;
                }
                Object::from_value(&scale::scale_of(paths, &parent)?).map_err(Status::internal)
            }
            ("" | "status" | "approval", _) => convert_object(&resource, object),
            // Other subresources are served elsewhere.
            _ => Err(Status::path_not_found()),
        }
    }

    /// Lists a page of a collection.
    pub async fn list(
        &self,
        context: &RequestContext,
        path: ResourcePath<'_>,
        options: &client::ListOptions,
    ) -> Result<ObjectListPage, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "list")?;
        let position = list_params(options);
        let filter = watch_cache_filter(
            &resource,
            &path,
            &options.label_selector,
            &options.field_selector,
        )?;
        let revision = position.for_list()?;
        if let Some(provider) = self.provider_of(&resource) {
            let computed = self
                .compute(&**provider, context, &path, &options.label_selector)
                .await?;
            // The provider has matched the labels.
            let fields = watch_cache_filter(&resource, &path, "", &options.field_selector)?;
            return Ok(computed_page(resource, computed, &fields));
        }
        let request = CacherListRequest {
            filter,
            revision,
            limit: position.limit,
        };
        let reply = resource
            .storage
            .cache
            .list(request)
            .await
            .map_err(|e| e.status())?;
        let items = if resource.conversion == VersionConversion::Stored {
            reply.items
        } else {
            let converted = reply
                .items
                .into_iter()
                .map(|o| convert_object(&resource, o));
            converted.collect::<Result<_, _>>()?
        };
        Ok(ObjectListPage {
            items,
            revision: Some(reply.revision),
            continue_token: reply.continue_token,
            remaining_item_count: reply.remaining_item_count,
            warnings: Vec::new(),
            resource,
        })
    }

    /// The provider of a kind that is computed.
    fn provider_of(&self, resource: &ResourceInfo) -> Option<&Arc<dyn ComputedResourceProvider>> {
        if !resource.kind.computed {
            return None;
        }
        self.computed_resources.get(&resource.kind.gvr)
    }

    /// Asks the provider of a kind that is computed.
    async fn compute(
        &self,
        provider: &dyn ComputedResourceProvider,
        context: &RequestContext,
        path: &ResourcePath<'_>,
        label_selector: &str,
    ) -> Result<ComputedObjects, Status> {
        let request = ComputedListRequest {
            context,
            namespace: path.namespace,
            name: path.name,
            label_selector,
        };
        provider.list(self, &request).await
    }

    /// Watches a collection.
    pub async fn watch(
        &self,
        _: &RequestContext,
        path: ResourcePath<'_>,
        options: &RegistryWatchOptions,
    ) -> Result<RegistryWatch, Status> {
        let resource = self.resource_info(path.resource)?;
        check_verb(&resource, &path, "watch")?;
        let request = CacherWatchRequest {
            filter: watch_cache_filter(
                &resource,
                &path,
                &options.label_selector,
                &options.field_selector,
            )?,
            start: watch_params(options).for_watch()?,
            bookmarks: options.bookmarks,
            deadline: Some(Instant::now() + options.timeout.unwrap_or_else(random_watch_timeout)),
        };
        let watcher = resource
            .storage
            .cache
            .watch(request)
            .await
            .map_err(|e| e.status())?;
        let definition = resource.definition_watch.clone();
        Ok(RegistryWatch {
            watcher,
            resource,
            definition_watch: definition,
        })
    }
}

/// A list of computed objects, which is whole and has no version.
fn computed_page(
    resource: Arc<ResourceInfo>,
    computed: ComputedObjects,
    fields: &SelectionPredicate,
) -> ObjectListPage {
    let mut items = computed.objects;
    items.retain(|object| is_selected(fields, object));
    ObjectListPage {
        items,
        revision: None,
        continue_token: None,
        remaining_item_count: None,
        warnings: computed.warnings,
        resource,
    }
}

#[async_trait]
impl RegistryReader for Registry {
    fn resource_table(&self) -> Arc<ResourceTable> {
        self.table()
    }

    async fn list_objects(
        &self,
        context: &RequestContext,
        path: ResourcePath<'_>,
        label_selector: &str,
    ) -> Result<Vec<Object>, Status> {
        let options = client::ListOptions {
            label_selector: label_selector.to_owned(),
            ..client::ListOptions::default()
        };
        Ok(self.list(context, path, &options).await?.items)
    }
}

fn is_selected(filter: &SelectionPredicate, object: &Object) -> bool {
    let name = filter.name.as_deref();
    let matches = filter.matches.as_ref();
    name.is_none_or(|name| name == object.name()) && matches.is_none_or(|matches| matches(object))
}

/// Resolves when the definition of a custom resource changes or is deleted.
async fn definition_changed(definition: &mut Option<watch::Receiver<()>>) {
    match definition {
        // Nothing is ever sent; the drop of the sender is the signal.
        Some(definition) => while definition.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn random_watch_timeout() -> Duration {
    MIN_WATCH_TIMEOUT.mul_f64(1.0 + rand::rng().random::<f64>())
}

/// Builds the filter of the watch cache, which takes namespace and name separately.
fn watch_cache_filter(
    resource: &ResourceInfo,
    path: &ResourcePath<'_>,
    labels: &str,
    fields: &str,
) -> Result<SelectionPredicate, Status> {
    let namespace = match resource.kind.namespaced {
        true => path.namespace,
        false => "",
    };
    parse_selectors((namespace, path.name), (labels, fields), |label| {
        let selectable_fields = &resource.selectable_fields;
        let field = selectable_fields.iter().find(|field| field.label == label);
        field
            .cloned()
            .ok_or_else(|| unsupported_field(resource, label))
    })
}

/// The selection of objects of another server by namespace and name, which may be empty, and by
/// selectors. Only built-in kinds have fields.
pub fn select_by_kind(
    kind: &Gvr,
    path: (&str, &str),
    selectors: (&str, &str),
) -> Result<SelectionPredicate, Status> {
    let selectable_fields = built_in_fields(&kind.group, &kind.resource);
    parse_selectors(path, selectors, |label| {
        let field = selectable_fields.iter().find(|field| field.label == label);
        let unsupported = || Status::bad_request(format!("field label not supported: {label}"));
        field.cloned().ok_or_else(unsupported)
    })
}

fn parse_selectors(
    (namespace, name): (&str, &str),
    (labels, fields): (&str, &str),
    find_field: impl Fn(&str) -> Result<SelectableField, Status>,
) -> Result<SelectionPredicate, Status> {
    let labels = LabelSelector::parse(labels).map_err(Status::bad_request)?;
    let fields = FieldSelector::parse(fields).map_err(Status::bad_request)?;
    let mut filter = SelectionPredicate {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: (!name.is_empty()).then(|| name.to_owned()),
        matches: None,
    };
    let mut used: Vec<SelectableField> = Vec::new();
    let mut match_fields = false;
    for requirement in fields.requirements() {
        match (requirement.field.as_str(), requirement.equal) {
            ("metadata.name", true) if filter.name.is_none() => {
                filter.name = Some(requirement.value.clone());
            }
            ("metadata.name" | "metadata.namespace", _) => match_fields = true,
            (label, _) => {
                used.push(find_field(label)?);
                match_fields = true;
            }
        }
    }
    let match_labels = !labels.is_everything();
    if match_labels || match_fields {
        let predicate: ObjectPredicate = Arc::new(move |object: &Object| {
            labels.matches(|key| object.meta().label(key))
                && (!match_fields || fields.matches(|label| field_value(&used, object, label)))
        });
        filter.matches = Some(predicate);
    }
    Ok(filter)
}

/// 400 for a field that cannot be selected. Each kind of Kubernetes with selectable fields
/// has its own words; the others share one text.
fn unsupported_field(resource: &ResourceInfo, label: &str) -> Status {
    Status::bad_request(match &*resource.kind.gvk.kind {
        "Job" if !resource.custom => format!("field label {label:?} not supported for Job"),
        _ if resource.selectable_fields.is_empty() && resource.has_go_type() => format!(
            "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        _ => format!("field label not supported: {label}"),
    })
}

fn field_value<'a>(
    used: &[SelectableField],
    object: &'a Object,
    label: &str,
) -> Option<Cow<'a, str>> {
    match label {
        "metadata.name" => Some(Cow::Borrowed(object.name())),
        "metadata.namespace" => Some(Cow::Borrowed(object.namespace())),
        _ => used
            .iter()
            .find(|f| f.label == label)
            .map(|f| Cow::Owned(f.value(object))),
    }
}

/// A running watch; dropping it stops it.
pub struct RegistryWatch {
    watcher: CacheWatcher,
    resource: Arc<ResourceInfo>,
    definition_watch: Option<watch::Receiver<()>>,
}

/// An item of a watch.
pub enum RegistryWatchItem {
    Event(RegistryWatchEvent),
    /// All events up to `revision` were delivered; `initial_end` marks the end of the
    /// initial events.
    Bookmark {
        revision: u64,
        initial_end: bool,
    },
}

/// One event, with the object in the requested version.
pub struct RegistryWatchEvent(SharedOrConvertedEvent);

enum SharedOrConvertedEvent {
    Shared(ObjectEvent),
    Converted {
        change: ObjectEventType,
        object: Object,
        frame: OnceLock<Bytes>,
    },
}

impl RegistryWatchEvent {
    pub fn change(&self) -> ObjectEventType {
        match &self.0 {
            SharedOrConvertedEvent::Shared(d) => d.event_type(),
            SharedOrConvertedEvent::Converted { change, .. } => *change,
        }
    }

    pub fn object(&self) -> &Object {
        match &self.0 {
            SharedOrConvertedEvent::Shared(d) => d.object(),
            SharedOrConvertedEvent::Converted { object, .. } => object,
        }
    }

    pub fn revision(&self) -> u64 {
        self.object().revision()
    }

    /// `{"type":…,"object":…}` and a line feed; encoded once for all watchers of the
    /// storage version.
    pub fn frame(&self) -> Bytes {
        match &self.0 {
            SharedOrConvertedEvent::Shared(d) => d.frame(),
            SharedOrConvertedEvent::Converted {
                change,
                object,
                frame,
            } => frame.get_or_init(|| encode_frame(*change, object)).clone(),
        }
    }

    /// The event in protobuf, which `encode` makes; encoded once for all watchers of the
    /// storage version.
    pub fn protobuf_frame<E>(&self, encode: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        match &self.0 {
            SharedOrConvertedEvent::Shared(event) => event.protobuf_frame(encode),
            SharedOrConvertedEvent::Converted { .. } => encode(),
        }
    }
}

fn encode_frame(change: ObjectEventType, object: &Object) -> Bytes {
    let body = object.served_bytes();
    let mut line = Vec::with_capacity(body.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(change.as_str().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(&body);
    line.extend_from_slice(b"}\n");
    line.into()
}

impl RegistryWatch {
    /// The next item; `None` at the end of the watch, or when the definition of a custom
    /// resource changes. An error ends the watch. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<RegistryWatchItem, Status>> {
        let item = tokio::select! {
            biased;
            () = definition_changed(&mut self.definition_watch) => return None,
            item = self.watcher.next() => item?,
        };
        Some(self.convert(item))
    }

    /// The next item, if one is available without waiting.
    pub fn try_next(&mut self) -> Option<Result<RegistryWatchItem, Status>> {
        let definition = self.definition_watch.as_ref();
        if definition.is_some_and(|d| d.has_changed().is_err()) {
            return None;
        }
        let item = self.watcher.try_next()?;
        Some(self.convert(item))
    }

    /// The watched resource.
    pub fn resource(&self) -> &Arc<ResourceInfo> {
        &self.resource
    }

    /// The kind of the objects, for bookmarks.
    pub fn kind(&self) -> &Gvk {
        &self.resource.kind.gvk
    }

    fn convert(
        &self,
        item: Result<watchcache::CacheWatcherItem, watchcache::Error>,
    ) -> Result<RegistryWatchItem, Status> {
        match item.map_err(|e| e.status())? {
            watchcache::CacheWatcherItem::Bookmark {
                revision,
                initial_end,
            } => Ok(RegistryWatchItem::Bookmark {
                revision,
                initial_end,
            }),
            watchcache::CacheWatcherItem::Event(delivery)
                if self.resource.conversion == VersionConversion::Stored =>
            {
                Ok(RegistryWatchItem::Event(RegistryWatchEvent(
                    SharedOrConvertedEvent::Shared(delivery),
                )))
            }
            watchcache::CacheWatcherItem::Event(delivery) => Ok(RegistryWatchItem::Event(
                RegistryWatchEvent(SharedOrConvertedEvent::Converted {
                    change: delivery.event_type(),
                    object: convert_object(&self.resource, delivery.object().clone())?,
                    frame: OnceLock::new(),
                }),
            )),
        }
    }
}
