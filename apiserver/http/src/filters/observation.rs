//! Records every response in the request metrics, a streamed one when its body ends
//! (kube-apiserver's `InstrumentHandlerFunc`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use hyper::service::Service;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MapResult, MapResultFuture};
use super::request::ResolvedRequest;
use crate::metrics::{ApiServerMetrics, RequestLabels, ResponseMetricsGuard};

pub(super) struct ObservationLayer {
    metrics: Arc<ApiServerMetrics>,
}

impl ObservationLayer {
    pub(super) fn new(metrics: &Arc<ApiServerMetrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
        }
    }
}

impl<S> Layer<S> for ObservationLayer {
    type Service = ObservationService<S>;

    fn layer(&self, inner: S) -> ObservationService<S> {
        ObservationService {
            inner,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

pub(super) struct ObservationService<S> {
    inner: S,
    metrics: Arc<ApiServerMetrics>,
}

impl<S, B> Service<ResolvedRequest<B>> for ObservationService<S>
where
    S: InnerService<ResolvedRequest<B>, Infallible>,
{
    type Response = ServerResponse;
    type Error = Infallible;
    type Future = MapResultFuture<S::Future, ObserveResponse>;

    fn call(&self, request: ResolvedRequest<B>) -> Self::Future {
        let observe = ObserveResponse {
            metrics: Arc::clone(&self.metrics),
            labels: Arc::clone(&request.labels),
            received_at: request.received_at,
        };
        MapResultFuture::new(self.inner.call(request), observe)
    }
}

pub(super) struct ObserveResponse {
    metrics: Arc<ApiServerMetrics>,
    labels: Arc<RequestLabels>,
    received_at: Instant,
}

impl MapResult<Result<ServerResponse, Infallible>> for ObserveResponse {
    type Error = Infallible;

    fn map_result(
        self,
        result: Result<ServerResponse, Infallible>,
    ) -> Result<ServerResponse, Infallible> {
        let mut response = result?;
        let Self {
            metrics,
            labels,
            received_at,
        } = self;
        let code = response.status().as_u16();
        let is_stream = matches!(labels.verb, "WATCH" | "CONNECT") && code < 300;
        let size = http_body::Body::size_hint(response.body()).exact();
        if response.body().is_full() || is_stream {
            let took = (!is_stream).then(|| received_at.elapsed());
            metrics.observe_response(&labels, code, took, size);
        } else {
            response.body_mut().attach_guard(ResponseMetricsGuard {
                metrics,
                labels,
                code,
                received_at,
                size,
            });
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{metrics, resolved_request, respond, respond_chunked};
    use http_body_util::BodyExt;

    const TOTAL: &str = "apiserver_request_total{";
    const DURATION: &str = "apiserver_request_duration_seconds_count{";

    #[tokio::test]
    async fn responses_are_recorded_at_the_end_of_their_body() {
        let metrics = metrics();
        let recorded = |name: &str| String::from_utf8(metrics.text()).unwrap().contains(name);
        let layer = ObservationLayer::new(&metrics);
        let watch = resolved_request("GET", "/api/v1/pods?watch=1");
        let Ok(_open) = layer.layer(respond_chunked()).call(watch).await;
        assert!(recorded(TOTAL) && !recorded(DURATION));
        let streamed = resolved_request("GET", "/version");
        let Ok(response) = layer.layer(respond_chunked()).call(streamed).await;
        assert!(!recorded(DURATION));
        drop(response.into_body().collect().await.unwrap());
        assert!(recorded(DURATION));
        let full = resolved_request("GET", "/version");
        let Ok(_full) = layer.layer(respond(404)).call(full).await;
        assert!(recorded("apiserver_request_total{code=\"404\""));
    }
}
