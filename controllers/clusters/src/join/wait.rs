//! Waits for one object to satisfy a condition: by list and watch, with a timeout.

use std::time::Duration;

use client::{Api, Error, ListOptions, ResourcePath, Result, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use machinery::Object;

/// The delay before a retry after an error.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The timeout has passed. Holds the last error, if there was one.
#[derive(Debug)]
pub(crate) struct WaitTimeoutError(pub(crate) Option<Error>);

/// Waits until `check` returns a value for the object (`None`: it does not exist).
pub(crate) async fn wait_until<T>(
    api: &dyn Api,
    at: ResourcePath<'_>,
    limit: Duration,
    check: impl Fn(Option<&Object>) -> Option<T> + Send + Sync,
) -> std::result::Result<T, WaitTimeoutError> {
    let mut last = None;
    let search = async {
        loop {
            match list_and_watch(api, at, &check).await {
                Ok(Some(result)) => return result,
                Ok(None) => {}
                Err(e) => {
                    last = Some(e);
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    };
    let result = tokio::time::timeout(limit, search).await;
    result.map_err(|_| WaitTimeoutError(last))
}

/// One list and one watch; `None` if the watch ended first.
async fn list_and_watch<T>(
    api: &dyn Api,
    at: ResourcePath<'_>,
    check: &(impl Fn(Option<&Object>) -> Option<T> + Send + Sync),
) -> Result<Option<T>> {
    let all = ResourcePath::collection(at.resource, at.namespace);
    let field_selector = format!("metadata.name={}", at.name);
    let select = ListOptions {
        field_selector: field_selector.clone(),
        ..ListOptions::default()
    };
    let list = api.list(all, &select).await?;
    if let Some(outcome) = check(list.items.first()) {
        return Ok(Some(outcome));
    }
    let options = WatchOptions {
        field_selector,
        resource_version: list.revision.to_string(),
        ..WatchOptions::default()
    };
    let mut events = api.watch(all, &options).await?;
    while let Some(event) = events.next().await {
        let outcome = match event? {
            WatchEvent::Added(o) | WatchEvent::Modified(o) => check(Some(&o)),
            WatchEvent::Deleted(_) => check(None),
            WatchEvent::Bookmark { .. } => None,
        };
        if outcome.is_some() {
            return Ok(outcome);
        }
    }
    Ok(None)
}
