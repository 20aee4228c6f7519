//! Renews certificates periodically, and logs failures without repeating them.

use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use machinery::FailureLogLimiter;
use tokio::sync::Notify;

/// The interval at which certificates are checked for renewal.
pub const CHECK_PERIOD: Duration = Duration::from_secs(60);

/// Calls `renew` once in each period, and when `changed` is notified, until the tasks
/// stop. A failure is logged once, and so is the success after it; `description` names the
/// certificates.
pub fn run_renewal_loop<F>(
    description: &'static str,
    period: Duration,
    changed: Arc<Notify>,
    tasks: &TaskGroup,
    mut renew: impl FnMut() -> F + Send + 'static,
) where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let stop = tasks.shutdown().clone();
    let failures = FailureLogLimiter::new();
    tasks.spawn(async move {
        loop {
            let next = async {
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep(period) => {}
                }
                renew().await
            };
            match stop.run_until_triggered(next).await {
                None => return,
                Some(Ok(())) => {
                    if failures.record_success(description) {
                        tracing::info!("{description} can be renewed again");
                    }
                }
                Some(Err(error)) => {
                    let error = format!("{error:#}");
                    if failures.record_failure(description, &error) {
                        tracing::warn!(error, "{description} cannot be renewed");
                    }
                }
            }
        }
    });
}
