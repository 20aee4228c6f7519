//! Lists objects page by page, for rules that read all objects of a kind.

use client::{Api, ListOptions, ResourcePath, Result};
use machinery::{Gvr, Object};

/// Objects per call.
const LIST_PAGE_ITEMS: u64 = 500;

/// All objects of a resource; an empty namespace means all of them.
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
