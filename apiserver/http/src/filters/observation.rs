//! Records every response in the request metrics, a streamed one when its body ends
//! (kube-apiserver's `InstrumentHandlerFunc`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult, MapResultLayer};
use super::request::ResolvedRequest;
use crate::metrics::{ApiServerMetrics, RequestLabels, ResponseMetricsGuard};

pub(super) type ObservationLayer = MapResultLayer<MakeObserveResponse>;

#[derive(Clone)]
pub(super) struct MakeObserveResponse {
    metrics: Arc<ApiServerMetrics>,
}

impl ObservationLayer {
    pub(super) fn new(metrics: &Arc<ApiServerMetrics>) -> Self {
        Self(MakeObserveResponse {
            metrics: Arc::clone(metrics),
        })
    }
}

impl<B> MakeMapResult<ResolvedRequest<B>> for MakeObserveResponse {
    type MapResult = ObserveResponse;

    fn make_map_result(&self, request: &ResolvedRequest<B>) -> ObserveResponse {
        ObserveResponse {
            metrics: Arc::clone(&self.metrics),
            labels: Arc::clone(&request.labels),
            received_at: request.received_at,
        }
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
            let duration = (!is_stream).then(|| received_at.elapsed());
            metrics.observe_response(&labels, code, duration, size);
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
    use hyper::service::Service;
    use tower::Layer;

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
        let full_request = resolved_request("GET", "/version");
        let Ok(_full) = layer.layer(respond(404)).call(full_request).await;
        assert!(recorded("apiserver_request_total{code=\"404\""));
    }
}
