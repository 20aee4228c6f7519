//! Refuses requests but probes with 429 while the server shuts down (kube-apiserver's
//! `WithRetryAfter`).

use std::future::{Ready, ready};
use std::sync::Arc;

use futures_util::future::Either;
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::request::ResolvedRequest;
use crate::metrics::ApiServerMetrics;
use crate::server_drain::ServerDrain;

pub(super) struct DrainLayer {
    drain: Arc<ServerDrain>,
    metrics: Arc<ApiServerMetrics>,
}

impl DrainLayer {
    pub(super) fn new(drain: &Arc<ServerDrain>, metrics: &Arc<ApiServerMetrics>) -> Self {
        Self {
            drain: Arc::clone(drain),
            metrics: Arc::clone(metrics),
        }
    }
}

impl<S> Layer<S> for DrainLayer {
    type Service = DrainService<S>;

    fn layer(&self, inner: S) -> DrainService<S> {
        DrainService {
            inner,
            drain: Arc::clone(&self.drain),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

pub(super) struct DrainService<S> {
    inner: S,
    drain: Arc<ServerDrain>,
    metrics: Arc<ApiServerMetrics>,
}

impl<S, B> Service<ResolvedRequest<B>> for DrainService<S>
where
    S: InnerService<ResolvedRequest<B>, Status>,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = Either<Ready<Result<ServerResponse, Status>>, S::Future>;

    fn call(&self, request: ResolvedRequest<B>) -> Self::Future {
        if self.drain.is_started() && !request.info.is_probe() {
            self.metrics.count_termination(request.labels.verb, "429");
            let text = "the server is shutting down, please try again later";
            return Either::Left(ready(Err(Status::too_many_requests(text, 1))));
        }
        Either::Right(self.inner.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{metrics, resolved_request, respond};
    use std::time::Duration;

    #[tokio::test]
    async fn only_probes_are_served_while_draining() {
        let layer = DrainLayer::new(&Arc::default(), &metrics());
        let service = layer.layer(respond(200));
        let call = async |path: &str| {
            let response = service.call(resolved_request("GET", path)).await;
            response.map_or_else(|s| s.code, |r| r.status().as_u16())
        };
        assert_eq!(call("/version").await, 200);
        layer.drain.start(Duration::ZERO);
        for (path, code) in [
            ("/version", 429),
            ("/api/v1/pods", 429),
            ("/healthzfoo", 429),
            ("/healthz", 200),
            ("/readyz/ping", 200),
        ] {
            assert_eq!(call(path).await, code, "{path}");
        }
    }
}
