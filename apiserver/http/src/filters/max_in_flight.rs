//! Bounds the requests in flight, read-only and mutating ones apart; fails with 429
//! above (kube-apiserver's `WithMaxInFlightLimit`). Long-running requests, probes and
//! `system:masters` are exempt. A permit is held until the response's body ends.

use std::future::{Ready, ready};
use std::sync::Arc;

use futures_util::future::Either;
use hyper::service::Service;
use machinery::Status;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Layer;

use super::attach_guard::BodyGuardAttacher;
use super::inner_service::{InnerService, ServerResponse};
use super::map_result::MapResultFuture;
use super::request::AuthenticatedRequest;
use crate::metrics::ApiServerMetrics;

pub(super) struct MaxInFlightLayer {
    limits: Arc<InFlightLimits>,
    /// Not while flow control bounds the requests.
    is_enabled: bool,
}

impl MaxInFlightLayer {
    pub(super) fn new(limits: &Arc<InFlightLimits>, is_enabled: bool) -> Self {
        Self {
            limits: Arc::clone(limits),
            is_enabled,
        }
    }
}

impl<S> Layer<S> for MaxInFlightLayer {
    type Service = MaxInFlightService<S>;

    fn layer(&self, inner: S) -> MaxInFlightService<S> {
        MaxInFlightService {
            inner,
            limits: Arc::clone(&self.limits),
            is_enabled: self.is_enabled,
        }
    }
}

pub(super) struct MaxInFlightService<S> {
    inner: S,
    limits: Arc<InFlightLimits>,
    is_enabled: bool,
}

impl<S, B> Service<AuthenticatedRequest<B>> for MaxInFlightService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status>,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = Either<
        Ready<Result<ServerResponse, Status>>,
        MapResultFuture<S::Future, BodyGuardAttacher<OwnedSemaphorePermit>>,
    >;

    fn call(&self, request: AuthenticatedRequest<B>) -> Self::Future {
        let permit = if !self.is_enabled || is_exempt(&request) {
            None
        } else {
            let mutating = request.request.info.is_mutating();
            let verb = request.request.labels.verb;
            match self.limits.acquire(mutating, verb) {
                Ok(permit) => Some(permit),
                Err(status) => return Either::Left(ready(Err(status))),
            }
        };
        let response = self.inner.call(request);
        Either::Right(MapResultFuture::new(response, BodyGuardAttacher(permit)))
    }
}

fn is_exempt<B>(request: &AuthenticatedRequest<B>) -> bool {
    request.request.long_running
        || request.request.info.is_probe()
        || request.user.in_group(SYSTEM_PRIVILEGED_GROUP)
}

pub(crate) struct InFlightLimits {
    /// Of read-only requests, then of mutating ones.
    permits: [Arc<Semaphore>; 2],
    metrics: Arc<ApiServerMetrics>,
}

impl InFlightLimits {
    pub(crate) fn new(read_only: usize, mutating: usize, metrics: Arc<ApiServerMetrics>) -> Self {
        Self {
            permits: [read_only, mutating].map(|n| Arc::new(Semaphore::new(n))),
            metrics,
        }
    }

    /// Fails with 429 when all permits are taken; `verb` is the metric's label.
    pub(super) fn acquire(
        &self,
        mutating: bool,
        verb: &'static str,
    ) -> Result<OwnedSemaphorePermit, Status> {
        let permits = &self.permits[usize::from(mutating)];
        Arc::clone(permits).try_acquire_owned().map_err(|_| {
            self.metrics.count_termination(verb, "429");
            Status::too_many_requests("too many requests, please try again later.", 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, metrics, resolved_request, respond, respond_chunked};
    use http_body_util::BodyExt;

    const PODS: &str = "/api/v1/pods";

    #[tokio::test]
    async fn permits_are_held_until_the_body_ends() {
        let limits = Arc::new(InFlightLimits::new(1, 0, metrics()));
        let layer = MaxInFlightLayer::new(&limits, true);
        let service = layer.layer(respond_chunked());
        let call = |groups: &[&str], method: &str| {
            let request = as_user(resolved_request(method, PODS), "ann", groups);
            service.call(request)
        };
        let first = call(&[], "GET").await.ok().unwrap();
        for (groups, method, code) in [
            (&[][..], "GET", Some(429)),
            (&[], "POST", Some(429)),
            (&[SYSTEM_PRIVILEGED_GROUP], "GET", None),
        ] {
            assert_eq!(call(groups, method).await.err().map(|s| s.code), code);
        }
        drop(first.into_body().collect().await.unwrap());
        assert!(call(&[], "GET").await.is_ok());
        // The permit of a body that is dropped early, or in memory, is free at once.
        assert_eq!(limits.permits[0].available_permits(), 1);
        let request = as_user(resolved_request("GET", PODS), "ann", &[]);
        let _kept = layer.layer(respond(200)).call(request).await.ok().unwrap();
        assert_eq!(limits.permits[0].available_permits(), 1);
    }

    #[tokio::test]
    async fn long_running_requests_and_probes_are_exempt() {
        let limits = Arc::new(InFlightLimits::new(0, 0, metrics()));
        let service = MaxInFlightLayer::new(&limits, true).layer(respond(200));
        let mut long_running_request = resolved_request("GET", PODS);
        long_running_request.long_running = true;
        for (request, code) in [
            (long_running_request, None),
            (resolved_request("GET", "/livez"), None),
            (resolved_request("GET", "/livezz"), Some(429)),
        ] {
            let response = service.call(as_user(request, "ann", &[])).await;
            assert_eq!(response.err().map(|s| s.code), code);
        }
    }
}
