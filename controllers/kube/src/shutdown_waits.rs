//! Waits of the controllers that end with their tasks.

use client::{Informer, TaskGroup};
use flotilla_runtime::Workqueue;
use tokio::sync::watch;

/// Enqueues `keys` whenever the root certificates change.
pub(crate) fn requeue_on_change(
    mut root_ca: watch::Receiver<String>,
    queue: &Workqueue<String>,
    keys: impl Fn() -> Vec<String> + Send + 'static,
    tasks: &TaskGroup,
) {
    let (queue, stop) = (queue.clone(), tasks.shutdown().clone());
    tasks.spawn(async move {
        // An error means that the server, which renews the certificates, has stopped.
        while let Some(Ok(())) = stop.run_until_triggered(root_ca.changed()).await {
            root_ca.borrow_and_update();
            for key in keys() {
                queue.add_low(key);
            }
        }
    });
}

/// Waits until all informers are synced; false if `tasks` end first.
pub(crate) async fn wait_for_cache_sync<'a>(
    tasks: &TaskGroup,
    informers: impl IntoIterator<Item = &'a Informer>,
) -> bool {
    for informer in informers {
        let listed = tasks
            .shutdown()
            .run_until_triggered(informer.wait_for_cache_sync())
            .await;
        if listed.is_none() {
            return false;
        }
    }
    true
}
