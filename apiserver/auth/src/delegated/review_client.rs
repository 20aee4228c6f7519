//! Creates reviews on the host, with a timeout and retries.

use std::time::Duration;

use client::{Api, Error, ResourcePath, WriteOptions};
use machinery::{FailureLogLimiter, Gvr, Status};
use serde_json::Value;

/// Timeout of a review, retries included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// First backoff between retries: as in Kubernetes' webhooks (500 ms, factor 1.5).
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_ATTEMPTS: u32 = 5;

/// Log state of each review resource that fails at present.
static FAILURES: FailureLogLimiter = FailureLogLimiter::new();

/// Creates `body` and returns its `status`. The error does not suggest that the user
/// was denied.
pub(super) async fn create_review(
    host: &dyn Api,
    resource: &'static Gvr,
    body: &Value,
) -> Result<Value, Status> {
    let creation = tokio::time::timeout(REVIEW_TIMEOUT, create_with_retries(host, resource, body));
    let result = match creation.await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no response within {} s", REVIEW_TIMEOUT.as_secs())),
    };
    let result = result.and_then(|object| {
        let mut value = object.value().map_err(|e| e.to_string())?;
        Ok(value["status"].take())
    });
    if result.is_ok() && FAILURES.record_success(resource) {
        tracing::info!(resource = %resource.group_resource(), "reviews on the host succeed again");
    }
    result.map_err(|message| {
        if FAILURES.record_failure(resource, &message) {
            tracing::warn!(resource = %resource.group_resource(), why = %message, "review on the host failed");
        }
        Status::internal(format!(
            "failed to create {} on the host: {message}",
            resource.group_resource()
        ))
        .with_retry_after(1)
    })
}

async fn create_with_retries(
    host: &dyn Api,
    resource: &'static Gvr,
    body: &Value,
) -> client::Result<machinery::Object> {
    let mut pause = INITIAL_BACKOFF;
    let mut attempt = 1;
    loop {
        let path = ResourcePath::collection(resource, "");
        let failed = match host
            .create(path, body.clone().into(), &WriteOptions::default())
            .await
        {
            Ok(object) => return Ok(object),
            Err(failed) => failed,
        };
        if attempt == MAX_ATTEMPTS || !is_retryable(&failed) {
            return Err(failed);
        }
        attempt += 1;
        tokio::time::sleep(pause).await;
        pause = pause * 3 / 2;
    }
}

fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Transport { .. } => true,
        Error::Status(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        Error::Protocol(_) => false,
    }
}
