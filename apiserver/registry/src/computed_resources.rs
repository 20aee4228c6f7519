//! Kinds whose objects are computed for each request and not stored. A process serves such a
//! kind where it has a provider of its objects.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::ResourcePath;
use machinery::{Gvr, Object, Status};

use crate::request::RequestContext;
use crate::resource_table::ResourceTable;

/// The objects that providers read from the registry that asks them.
#[async_trait]
pub trait RegistryReader: Send + Sync {
    fn resource_table(&self) -> Arc<ResourceTable>;

    /// The stored objects at a path, with any name if it has none, and with these labels.
    async fn list_objects(
        &self,
        context: &RequestContext,
        path: ResourcePath<'_>,
        label_selector: &str,
    ) -> Result<Vec<Object>, Status>;
}

/// Computes the objects of one kind.
#[async_trait]
pub trait ComputedResourceProvider: Send + Sync {
    /// The objects in the namespace, with the name and with the labels of the request.
    async fn list(
        &self,
        registry: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status>;
}

/// The providers by the resource that they serve.
pub type ComputedResourceProviders = HashMap<Gvr, Arc<dyn ComputedResourceProvider>>;

/// The requested objects.
pub struct ComputedListRequest<'a> {
    pub context: &'a RequestContext,
    /// Empty: all namespaces, or a kind without namespaces.
    pub namespace: &'a str,
    /// Empty: all names.
    pub name: &'a str,
    /// A valid selector.
    pub label_selector: &'a str,
}

/// The objects that a provider has computed.
#[derive(Default)]
pub struct ComputedObjects {
    pub objects: Vec<Object>,
    /// The missing clusters, for the response of a list.
    pub warnings: Vec<String>,
}

impl From<Vec<Object>> for ComputedObjects {
    fn from(objects: Vec<Object>) -> Self {
        Self {
            objects,
            warnings: Vec::new(),
        }
    }
}
