//! Requests to a host that does not answer yet.

use std::time::Duration;

use machinery::FailureLogLimiter;

/// The backoff of requests.
const HOST_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Retries a request to the host until it answers. Errors that a retry cannot fix are
/// returned.
pub(crate) async fn retry_until_answered<T, F>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> client::Result<T>
where
    F: Future<Output = client::Result<T>>,
{
    let failures = FailureLogLimiter::new();
    loop {
        let error = match ask().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let passing = match &error {
            client::Error::Transport { .. } => true,
            client::Error::Status(status) => status.code == 429 || status.code >= 500,
            client::Error::Protocol(_) => false,
        };
        if !passing {
            return Err(error);
        }
        if failures.record_failure(what, &error.to_string()) {
            tracing::warn!(%error, "{what}: the host does not answer, retrying");
        }
        tokio::time::sleep(HOST_RETRY_INTERVAL).await;
    }
}
