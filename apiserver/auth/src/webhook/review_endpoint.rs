//! Posts reviews to a webhook, with a timeout and retries.

use std::time::Duration;

use bytes::Bytes;
use client::remote::{RestConfig, RestConfigError};
use client::{Error, RemoteApi, TaskGroup};
use serde_json::Value;

/// Attempts of one review and the first pause between them, as in Kubernetes' webhooks.
const MAX_ATTEMPTS: u32 = 5;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// Bound on the body of a response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Why a review has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReviewFailure {
    pub(crate) message: String,
    pub(crate) is_timeout: bool,
}

/// The server of reviews of one kind.
pub struct ReviewEndpoint {
    server: RemoteApi,
    timeout: Duration,
}

impl ReviewEndpoint {
    /// `config` is the server with the whole path of the webhook; `timeout` bounds one
    /// attempt. Connections belong to `tasks`.
    pub fn new(
        config: RestConfig,
        timeout: Duration,
        tasks: &TaskGroup,
    ) -> Result<Self, RestConfigError> {
        Ok(Self {
            server: RemoteApi::new(config, tasks)?,
            timeout,
        })
    }

    /// Posts a review and returns its `status`. `record` gets the outcome of every attempt
    /// and how long it took.
    pub(crate) async fn review(
        &self,
        body: &Value,
        record: impl Fn(&'static str, Duration),
    ) -> Result<Value, ReviewFailure> {
        let body = Bytes::from(body.to_string());
        let mut pause = INITIAL_BACKOFF;
        let mut attempt = 1;
        loop {
            let start = tokio::time::Instant::now();
            let sent = self.server.post("", body.clone(), MAX_RESPONSE_BYTES);
            let (failure, retryable) = match tokio::time::timeout(self.timeout, sent).await {
                Ok(Ok(response)) => match status_of(&response) {
                    Ok(status) => {
                        record("success", start.elapsed());
                        return Ok(status);
                    }
                    Err(message) => (message, false),
                },
                Ok(Err(error)) => (error.to_string(), is_retryable(&error)),
                Err(_) => {
                    record("timeout", start.elapsed());
                    return Err(ReviewFailure {
                        message: format!("no response within {:?}", self.timeout),
                        is_timeout: true,
                    });
                }
            };
            record("error", start.elapsed());
            if attempt == MAX_ATTEMPTS || !retryable {
                return Err(ReviewFailure {
                    message: failure,
                    is_timeout: false,
                });
            }
            attempt += 1;
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
    }
}

fn status_of(response: &[u8]) -> Result<Value, String> {
    let mut review: Value = machinery::json::from_slice(response)
        .map_err(|e| format!("the response is not a review: {e}"))?;
    match review.get_mut("status") {
        Some(status) => Ok(status.take()),
        None => Ok(Value::Null),
    }
}

fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Transport { .. } => true,
        Error::Status(status) => matches!(status.code, 429 | 500 | 503),
        Error::Protocol(_) => false,
    }
}
