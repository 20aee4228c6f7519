//! The namespaces of the host, which the registry checks before it creates objects.
//!
//! They come from an informer. A namespace that the informer does not have is read from
//! the host, so that one created a moment ago is found.

use std::sync::Arc;

use admission::webhooks::NamespaceLookup;
use async_trait::async_trait;
use client::{Api, Error, Informer, InformerFactory, ListWatchSelector, ResourcePath};
use machinery::{Gvr, Object, Status};

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");

pub struct HostNamespaceLookup {
    host: Arc<dyn Api>,
    informer: Informer,
}

impl HostNamespaceLookup {
    pub(super) fn new(host: &Arc<dyn Api>, informers: &InformerFactory) -> Arc<Self> {
        Arc::new(Self {
            host: Arc::clone(host),
            informer: informers.get(host, &ListWatchSelector::all(&NAMESPACES)),
        })
    }
}

#[async_trait]
impl NamespaceLookup for HostNamespaceLookup {
    async fn get_namespace(&self, name: &str) -> Result<Option<Object>, Status> {
        if let Some(namespace) = self.informer.get("", name) {
            return Ok(Some(namespace));
        }
        match self
            .host
            .get(ResourcePath::object(&NAMESPACES, "", name))
            .await
        {
            Ok(namespace) => Ok(Some(namespace)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(Error::Status(status)) if status.code == 403 => {
                let message = format!("the host does not allow reading namespaces: {status}");
                Err(Status::internal(message))
            }
            Err(error) => {
                let message = format!("cannot read namespace {name:?} of the host: {error}");
                Err(Status::unavailable(message).with_retry_after(1))
            }
        }
    }
}
