//! Counts a request as in flight until its body ends: for the gauges, and for the
//! shutdown, which waits for short requests (kube-apiserver's `WithWaitGroup`).

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::attach_guard::BodyGuardAttacher;
use super::map_result::{MakeMapResult, MapResultLayer};
use super::request::AuthenticatedRequest;
use crate::metrics::{ApiServerMetrics, GaugeGuard};
use crate::server_drain::ServerDrain;

/// The gauge of a request, and its permit when it is short.
type InFlightGuard = (GaugeGuard, Option<OwnedSemaphorePermit>);

pub(super) type InFlightLayer = MapResultLayer<MakeInFlightGuard>;

#[derive(Clone)]
pub(super) struct MakeInFlightGuard {
    drain: Arc<ServerDrain>,
    metrics: Arc<ApiServerMetrics>,
}

impl InFlightLayer {
    pub(super) fn new(drain: &Arc<ServerDrain>, metrics: &Arc<ApiServerMetrics>) -> Self {
        Self(MakeInFlightGuard {
            drain: Arc::clone(drain),
            metrics: Arc::clone(metrics),
        })
    }
}

impl<B> MakeMapResult<AuthenticatedRequest<B>> for MakeInFlightGuard {
    type MapResult = BodyGuardAttacher<InFlightGuard>;

    fn make_map_result(&self, request: &AuthenticatedRequest<B>) -> Self::MapResult {
        let request = &request.request;
        let guards = if request.long_running {
            (self.metrics.start_long_running(&request.labels), None)
        } else {
            let gauge = self.metrics.start_inflight(request.info.is_mutating());
            (gauge, self.drain.short_requests.enter())
        };
        BodyGuardAttacher(Some(guards))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, metrics, resolved_request, respond_chunked};
    use http_body_util::BodyExt;
    use hyper::service::Service;
    use std::time::Duration;
    use tower::Layer;

    #[tokio::test(start_paused = true)]
    async fn requests_are_in_flight_until_their_body_ends() {
        let layer = InFlightLayer::new(&Arc::default(), &metrics());
        let gauge = |kind: &str| {
            let text = String::from_utf8(layer.0.metrics.text()).unwrap();
            text.contains(&format!("{kind} 1"))
        };
        let read_only = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";
        let service = layer.layer(respond_chunked());
        let request = as_user(resolved_request("GET", "/api/v1/pods"), "ann", &[]);
        let response = service.call(request).await.ok().unwrap();
        let requests_end = || {
            let wait = layer.0.drain.short_requests.wait_for_all();
            tokio::time::timeout(Duration::from_secs(1), wait)
        };
        assert!(gauge(read_only) && requests_end().await.is_err());
        drop(response.into_body().collect().await.unwrap());
        assert!(!gauge(read_only) && requests_end().await.is_ok());
        let mut long_running_request = as_user(resolved_request("GET", "/api/v1/pods"), "ann", &[]);
        long_running_request.request.long_running = true;
        let _open = service.call(long_running_request).await.ok().unwrap();
        assert!(!gauge(read_only) && requests_end().await.is_ok());
        assert!(gauge("verb=\"LIST\",version=\"v1\"}"));
    }
}
