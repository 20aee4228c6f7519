//! Creates reviews on the host, with a timeout and retries.

use std::time::Duration;

use client::{Api, At, Error, WriteOptions};
use machinery::{FailureLog, Gvr, Status};
use serde_json::Value;

/// Timeout of a review, retries included.
const PATIENCE: Duration = Duration::from_secs(10);
/// First backoff between retries: as in Kubernetes' webhooks (500 ms, factor 1.5).
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 5;

/// Log state of each review resource that fails at present.
static FAILURES: FailureLog = FailureLog::new();

/// Creates `body` and returns its `status`. The error does not suggest that the user
/// was denied.
pub(super) async fn ask(
    host: &dyn Api,
    resource: &'static Gvr,
    body: &Value,
) -> Result<Value, Status> {
    let creation = tokio::time::timeout(PATIENCE, repeatedly(host, resource, body));
    let result = match creation.await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no response within {} s", PATIENCE.as_secs())),
    };
    let result = result.and_then(|object| {
        let mut value = object.value().map_err(|e| e.to_string())?;
        Ok(value["status"].take())
    });
    if result.is_ok() && FAILURES.record_success(resource) {
        tracing::info!(resource = %resource.qualified(), "reviews on the host succeed again");
    }
    result.map_err(|why| {
        if FAILURES.record_failure(resource, &why) {
            tracing::warn!(resource = %resource.qualified(), %why, "review on the host failed");
        }
        Status::internal(format!(
            "failed to create {} on the host: {why}",
            resource.qualified()
        ))
        .retry_after(1)
    })
}

async fn repeatedly(
    host: &dyn Api,
    resource: &'static Gvr,
    body: &Value,
) -> client::Result<machinery::Object> {
    let mut pause = FIRST_PAUSE;
    let mut attempt = 1;
    loop {
        let at = At::all(resource, "");
        let failed = match host
            .create(at, body.clone(), &WriteOptions::default())
            .await
        {
            Ok(object) => return Ok(object),
            Err(failed) => failed,
        };
        if attempt == ATTEMPTS || !may_pass(&failed) {
            return Err(failed);
        }
        attempt += 1;
        tokio::time::sleep(pause).await;
        pause = pause * 3 / 2;
    }
}

fn may_pass(error: &Error) -> bool {
    match error {
        Error::Transport { .. } => true,
        Error::Status(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        Error::Protocol(_) => false,
    }
}
