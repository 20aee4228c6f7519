//! Waits for the first list of the objects of a member.

use std::time::Duration;

use client::Informer;

/// Timeout of the first list of a member's objects.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until the informer of a member's objects has synced: before that its cache is incomplete.
/// Does not wait for a list that fails.
pub(crate) async fn wait_for_initial_list(informer: &Informer) -> Result<(), String> {
    if informer.has_synced() {
        return Ok(());
    }
    if informer.last_error().is_none() {
        let first = tokio::time::timeout(INITIAL_LIST_TIMEOUT, informer.wait_for_cache_sync());
        if first.await.is_ok() {
            return Ok(());
        }
    }
    let reason = informer.last_error();
    let reason = reason.unwrap_or_else(|| "no answer yet".to_owned());
    Err(format!("cannot list {}: {reason}", informer.resource()))
}
