//! Bounds the time of requests that are not long-running; fails with 504 beyond it
//! (kube-apiserver's `WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests`).

use std::future::{Ready, ready};
use std::time::Duration;

use futures_util::future::Either;
use hyper::service::Service;
use machinery::{Status, duration};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Timeout, timeout};
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MapResult, MapResultFuture};
use super::request::AuthenticatedRequest;
use crate::requestinfo::QueryParams;

pub(super) struct DeadlineLayer {
    request_timeout: Duration,
}

impl DeadlineLayer {
    pub(super) fn new(request_timeout: Duration) -> Self {
        Self { request_timeout }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService {
            inner,
            request_timeout: self.request_timeout,
        }
    }
}

pub(super) struct DeadlineService<S> {
    inner: S,
    request_timeout: Duration,
}

impl<S, B> Service<AuthenticatedRequest<B>> for DeadlineService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status>,
{
    type Response = ServerResponse;
    type Error = Status;
    /// Names the inner future twice; this is the innermost filter.
    type Future = Either<
        Either<Ready<Result<ServerResponse, Status>>, S::Future>,
        MapResultFuture<Timeout<S::Future>, TimeoutToStatusMapper>,
    >;

    fn call(&self, mut request: AuthenticatedRequest<B>) -> Self::Future {
        if request.request.long_running {
            return Either::Left(Either::Right(self.inner.call(request)));
        }
        let limit = match time_limit(&request.request.query, self.request_timeout) {
            Ok(limit) => limit,
            Err(status) => return Either::Left(Either::Left(ready(Err(status)))),
        };
        request.deadline = Some(Instant::now() + limit);
        let response = timeout(limit, self.inner.call(request));
        Either::Right(MapResultFuture::new(response, TimeoutToStatusMapper))
    }
}

pub(super) struct TimeoutToStatusMapper;

impl MapResult<Result<Result<ServerResponse, Status>, Elapsed>> for TimeoutToStatusMapper {
    type Error = Status;

    fn map_result(
        self,
        result: Result<Result<ServerResponse, Status>, Elapsed>,
    ) -> Result<ServerResponse, Status> {
        let text = "request did not complete within the allotted timeout";
        result.unwrap_or_else(|_| Err(Status::timeout(text)))
    }
}

/// The timeout of a request: its `timeout` parameter, at most the server's limit. Zero
/// and negative durations stand for that limit, as in kube-apiserver; what is no duration
/// is 400.
pub(super) fn time_limit(query: &QueryParams, limit: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else {
        return Ok(limit);
    };
    if !duration::is_duration(text) {
        return Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {text:?}"
        )));
    }
    let requested = duration::parse(text).unwrap_or(limit);
    Ok(match requested.is_zero() {
        true => limit,
        false => requested.min(limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, handler_fn, resolved_request, respond};

    #[test]
    fn timeouts_are_capped() {
        let check = |query: &str, expect: u64| {
            let actual = time_limit(&QueryParams::parse(Some(query)), Duration::from_secs(60));
            let actual = actual.map_or(0, |limit| limit.as_millis());
            assert_eq!(actual, u128::from(expect), "{query}");
        };
        check("", 60_000);
        check("timeout=34s", 34_000);
        check("timeout=500ms", 500);
        check("timeout=2m", 60_000);
        check("timeout=1m30s", 60_000);
        check("timeout=1s500ms", 1_500);
        check("timeout=0s", 60_000);
        check("timeout=-1s", 60_000);
        check("timeout=", 60_000);
        check("timeout=x", 0);
        check("timeout=5", 0);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_end_at_their_deadline() {
        let slow = handler_fn(async |request: AuthenticatedRequest<()>| {
            assert_eq!(request.deadline.is_none(), request.request.long_running);
            tokio::time::sleep(Duration::from_secs(40)).await;
            respond(200).call(request).await
        });
        let service = DeadlineLayer::new(Duration::from_secs(60)).layer(slow);
        for (path, long_running, code) in [
            ("/api/v1/pods", false, None),
            ("/api/v1/pods?timeout=30s", false, Some(504)),
            ("/api/v1/pods?timeout=30s", true, None),
            ("/api/v1/pods?timeout=soon", false, Some(400)),
        ] {
            let mut request = as_user(resolved_request("GET", path), "ann", &[]);
            request.request.long_running = long_running;
            let response = service.call(request).await;
            assert_eq!(response.err().map(|s| s.code), code, "{path}");
        }
    }
}
