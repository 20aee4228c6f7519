//! [`GroupSplitApi`] presents two servers as one: it routes each call by the resource's
//! API group.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use machinery::{Object, Status};

use crate::api::{
    Api, DeleteOptions, ListOptions, ObjectList, Patch, ResourcePath, Result, ServerResources,
    WatchOptions, WatchStream, WriteOptions,
};
use crate::event::{CoreEvent, EVENTS};
use crate::write_body::WriteBody;

/// Routes calls for our own API groups to `own` and all others to `host`. What the host's
/// discovery reports for the own groups is ignored and not requested: the host would
/// proxy the request back to us.
pub struct GroupSplitApi {
    own: Arc<dyn Api>,
    host: Arc<dyn Api>,
    is_own_group: fn(&str) -> bool,
}

impl GroupSplitApi {
    /// `is_own` reports whether the group of this name belongs to `own`.
    pub fn new(own: Arc<dyn Api>, host: Arc<dyn Api>, is_own: fn(&str) -> bool) -> Arc<Self> {
        Arc::new(Self {
            own,
            host,
            is_own_group: is_own,
        })
    }

    fn api_for(&self, at: ResourcePath<'_>) -> &dyn Api {
        if (self.is_own_group)(&at.resource.group) {
            &*self.own
        } else {
            &*self.host
        }
    }
}

#[async_trait]
impl Api for GroupSplitApi {
    async fn get(&self, at: ResourcePath<'_>) -> Result<Object> {
        if (self.is_own_group)(&at.resource.group) || !at.subresource.is_empty() {
            self.api_for(at).get(at).await
        } else {
            get_by_list(&*self.host, at).await
        }
    }

    async fn list(&self, at: ResourcePath<'_>, options: &ListOptions) -> Result<ObjectList> {
        self.api_for(at).list(at, options).await
    }

    async fn watch(&self, at: ResourcePath<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.api_for(at).watch(at, options).await
    }

    async fn create(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).create(at, body, options).await
    }

    async fn create_events(&self, events: Vec<CoreEvent>) -> Vec<Result<()>> {
        self.api_for(ResourcePath::collection(&EVENTS, ""))
            .create_events(events)
            .await
    }

    async fn update(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).update(at, body, options).await
    }

    async fn patch(
        &self,
        at: ResourcePath<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.api_for(at).patch(at, patch, options).await
    }

    async fn delete(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<Option<Object>> {
        self.api_for(at).delete(at, options).await
    }

    async fn delete_collection(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.api_for(at)
            .delete_collection(at, options, select)
            .await
    }

    async fn discover(&self) -> Result<ServerResources> {
        let others = |group: &str| !(self.is_own_group)(group);
        let (own, host) = tokio::join!(
            self.own.discover_groups(&self.is_own_group),
            self.host.discover_groups(&others),
        );
        let (mut all, own) = (host?, own?);
        all.resources.extend(own.resources);
        all.failed_group_versions.extend(own.failed_group_versions);
        Ok(all)
    }

    /// Always the host's.
    async fn get_raw(&self, path: &str) -> Result<Bytes> {
        self.host.get_raw(path).await
    }
}

/// Reads one object with a LIST. Where the kind is not known in advance, RBAC can grant
/// `list` on `*` more narrowly than `get`, which would include `nodes/proxy` and
/// `pods/exec`.
async fn get_by_list(host: &dyn Api, at: ResourcePath<'_>) -> Result<Object> {
    let options = ListOptions {
        field_selector: format!("metadata.name={}", at.name),
        ..ListOptions::default()
    };
    let list = host.list(
        ResourcePath::collection(at.resource, at.namespace),
        &options,
    );
    let mut found = list.await?.items.into_iter();
    let found = found.find(|o| o.name() == at.name && o.namespace() == at.namespace);
    found.ok_or_else(|| Status::not_found(at.resource, at.name).into())
}
