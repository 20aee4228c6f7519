//! [`GroupSplitApi`] presents two servers as one: it routes each call by the resource's
//! API group.

use std::sync::Arc;

use async_trait::async_trait;
use machinery::{Object, Status};

use crate::api::{
    Api, ApiCall, ApiReply, GroupFilter, ListOptions, ResourcePath, Result, ServerResources,
};

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

    async fn discover_both(&self, filter: GroupFilter<'_>) -> Result<ServerResources> {
        let is_own = |group: &str| filter(group) && (self.is_own_group)(group);
        let is_of_host = |group: &str| filter(group) && !(self.is_own_group)(group);
        let (own, host) = tokio::join!(
            self.own.discover_groups(&is_own),
            self.host.discover_groups(&is_of_host),
        );
        let (mut all, own) = (host?, own?);
        all.resources.extend(own.resources);
        all.failed_group_versions.extend(own.failed_group_versions);
        Ok(all)
    }
}

#[async_trait]
impl Api for GroupSplitApi {
    /// Raw paths are always the host's.
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let path = call.path();
        let is_own = path.is_some_and(|at| (self.is_own_group)(&at.resource.group));
        match call {
            ApiCall::Discover(filter) => Ok(self.discover_both(filter).await?.into()),
            call if is_own => self.own.call(call).await,
            ApiCall::Get(at) | ApiCall::GetCached(at) if at.subresource.is_empty() => {
                Ok(get_by_list(&*self.host, at).await?.into())
            }
            call => self.host.call(call).await,
        }
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
    let mut items = list.await?.items.into_iter();
    let items = items.find(|o| o.name() == at.name && o.namespace() == at.namespace);
    items.ok_or_else(|| Status::not_found(at.resource, at.name).into())
}
