//! Lists objects for admission rules: all objects of a kind, page by page, or the objects of one
//! namespace from the watch cache.

use client::{Api, Error, ListOptions, ResourcePath, Result};
use machinery::{Gvr, Object, Status};

/// Objects per call.
const LIST_PAGE_ITEMS: u64 = 500;

/// Lists all objects of a resource; an empty namespace means every namespace.
pub(crate) async fn list_objects(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
) -> Result<Vec<Object>> {
    let mut options = ListOptions {
        limit: LIST_PAGE_ITEMS,
        ..ListOptions::default()
    };
    let mut all = Vec::new();
    loop {
        let path = ResourcePath::collection(resource, namespace);
        let page = api.list(path, &options).await?;
        all.extend(page.items);
        if page.continue_token.is_empty() {
            return Ok(all);
        }
        options.continue_token = page.continue_token;
    }
}

/// Lists the objects of a resource in a namespace from the watch cache, without a request to the
/// store.
pub(crate) async fn list_cached(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
) -> std::result::Result<Vec<Object>, Status> {
    let options = ListOptions {
        resource_version: "0".into(),
        ..ListOptions::default()
    };
    let listed = api.list(ResourcePath::collection(resource, namespace), &options);
    match listed.await {
        Ok(listed) => Ok(listed.items),
        // The server does not serve the kind, as behind a host.
        Err(e) if e.is_not_found() => Ok(Vec::new()),
        Err(Error::Status(status)) => Err(*status),
        Err(other) => Err(Status::internal(other)),
    }
}
