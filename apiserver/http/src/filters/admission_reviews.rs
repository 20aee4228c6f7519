//! Serves the admission webhooks for other API servers, before authentication: their
//! callers have no credentials. They count against the in-flight limit like mutating
//! requests.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either};
use http_body::Body;
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::deadline::time_limit;
use super::inner_service::{InnerService, ServerResponse};
use super::max_in_flight::InFlightLimits;
use super::request::ResolvedRequest;
use crate::admission_review::{AdmissionReviewHandler, AdmissionReviewHandlers};
use crate::request_memory::MemoryCharge;
use crate::{admission_review, request_body};

pub(super) struct AdmissionReviewsLayer {
    reviews: Arc<AdmissionReviewFilter>,
}

impl AdmissionReviewsLayer {
    pub(super) fn new(
        handlers: &AdmissionReviewHandlers,
        limits: &Arc<InFlightLimits>,
        request_timeout: Duration,
    ) -> Self {
        Self {
            reviews: Arc::new(AdmissionReviewFilter {
                handlers: handlers.clone(),
                limits: Arc::clone(limits),
                request_timeout,
            }),
        }
    }
}

impl<S> Layer<S> for AdmissionReviewsLayer {
    type Service = AdmissionReviewsService<S>;

    fn layer(&self, inner: S) -> AdmissionReviewsService<S> {
        AdmissionReviewsService {
            inner,
            reviews: Arc::clone(&self.reviews),
        }
    }
}

pub(super) struct AdmissionReviewsService<S> {
    inner: S,
    reviews: Arc<AdmissionReviewFilter>,
}

impl<S, B> Service<ResolvedRequest<B>> for AdmissionReviewsService<S>
where
    S: InnerService<ResolvedRequest<B>, Status>,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Display + Send,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = Either<BoxFuture<'static, Result<ServerResponse, Status>>, S::Future>;

    fn call(&self, request: ResolvedRequest<B>) -> Self::Future {
        match self.reviews.handlers.get(&*request.info.path) {
            Some(handler) if request.info.verb == "post" => {
                let reviews = Arc::clone(&self.reviews);
                Either::Left(Box::pin(reviews.serve(*handler, request)))
            }
            _ => Either::Right(self.inner.call(request)),
        }
    }
}

struct AdmissionReviewFilter {
    handlers: AdmissionReviewHandlers,
    limits: Arc<InFlightLimits>,
    request_timeout: Duration,
}

impl AdmissionReviewFilter {
    async fn serve<B>(
        self: Arc<Self>,
        handler: AdmissionReviewHandler,
        request: ResolvedRequest<B>,
    ) -> Result<ServerResponse, Status>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let _permit = self.limits.acquire(true, request.labels.verb)?;
        let limit = time_limit(&request.query, self.request_timeout)?;
        let charge = MemoryCharge::of_address(request.remote_address);
        let read = request_body::read_body(request.http.into_body(), charge);
        let read = tokio::time::timeout(limit, read).await;
        let mut body = read.map_err(|_| {
            Status::timeout("the AdmissionReview was not received within the allotted timeout")
        })??;
        body.charge_review()?;
        admission_review::serve_admission_review(handler, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{metrics, resolved_request_with_body, respond};
    use http_body_util::Full;

    #[tokio::test]
    async fn reviews_are_served_without_the_inner_service() {
        let handler: AdmissionReviewHandler = |_| Ok(());
        let call = async |method: &str, path: &str, limit: usize| {
            let handlers = AdmissionReviewHandlers::from([("/review", handler)]);
            let limits = Arc::new(InFlightLimits::new(limit, limit, metrics()));
            let request_timeout = Duration::from_secs(60);
            let layer = AdmissionReviewsLayer::new(&handlers, &limits, request_timeout);
            let review = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}"#;
            let body: Full<Bytes> = Full::new(review.into());
            let service = layer.layer(respond(418));
            let request = resolved_request_with_body(method, path, body);
            let response = service.call(request).await;
            response.map_or_else(|s| s.code, |r| r.status().as_u16())
        };
        assert_eq!(call("POST", "/review", 1).await, 200);
        assert_eq!(call("POST", "/review", 0).await, 429);
        assert_eq!(call("GET", "/review", 0).await, 418);
        assert_eq!(call("POST", "/other", 0).await, 418);
    }
}
