//! The namespaces of the host, which the registry checks before it creates objects.
//!
//! They come from an informer. A namespace that the informer does not have is read from
//! the host, so that one created a moment ago is found.

use std::sync::Arc;

use admission::webhooks::Namespaces;
use async_trait::async_trait;
use client::{Api, At, Error, Informer, Informers, Select};
use machinery::{Gvr, Object, Status};

static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");

pub(super) struct HostNamespaces {
    host: Arc<dyn Api>,
    copy: Informer,
}

impl HostNamespaces {
    pub(super) fn new(host: &Arc<dyn Api>, informers: &Informers) -> Arc<Self> {
        Arc::new(Self {
            host: Arc::clone(host),
            copy: informers.get(host, &Select::all(&NAMESPACES)),
        })
    }
}

#[async_trait]
impl Namespaces for HostNamespaces {
    async fn find(&self, name: &str) -> Result<Option<Object>, Status> {
        if let Some(found) = self.copy.get("", name) {
            return Ok(Some(found));
        }
        match self.host.get(At::one(&NAMESPACES, "", name)).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(Error::Status(status)) if status.code == 403 => {
                let why = format!("the host does not allow reading namespaces: {status}");
                Err(Status::internal(why))
            }
            Err(error) => {
                let why = format!("cannot read namespace {name:?} of the host: {error}");
                Err(Status::unavailable(why).retry_after(1))
            }
        }
    }
}
