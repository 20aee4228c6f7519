//! Turns a panic of an inner filter or handler into 500 (kube-apiserver's
//! `WithPanicRecovery`).

use std::any::Any;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{CatchUnwind, Either};
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MapResult, MapResultFuture};
use super::request::ResolvedRequest;
use crate::audit::RequestAudit;
use crate::metrics::ApiServerMetrics;

/// The result of a caught call, or the message of its panic.
type CaughtResult = Result<Result<ServerResponse, Status>, Box<dyn Any + Send>>;

pub(super) struct PanicRecoveryLayer {
    metrics: Arc<ApiServerMetrics>,
}

impl PanicRecoveryLayer {
    pub(super) fn new(metrics: &Arc<ApiServerMetrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
        }
    }
}

impl<S> Layer<S> for PanicRecoveryLayer {
    type Service = PanicRecoveryService<S>;

    fn layer(&self, inner: S) -> PanicRecoveryService<S> {
        PanicRecoveryService {
            inner,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

pub(super) struct PanicRecoveryService<S> {
    inner: S,
    metrics: Arc<ApiServerMetrics>,
}

impl<S, B> Service<ResolvedRequest<B>> for PanicRecoveryService<S>
where
    S: InnerService<ResolvedRequest<B>, Status>,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = MapResultFuture<
        Either<Ready<CaughtResult>, CatchUnwind<AssertUnwindSafe<S::Future>>>,
        RecoverPanic,
    >;

    fn call(&self, request: ResolvedRequest<B>) -> Self::Future {
        let audit = request.audit.clone();
        // Inner filters that decide at once run in `call`, the others when polled.
        let caught = match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(called) => Either::Right(AssertUnwindSafe(called).catch_unwind()),
            Err(panic) => Either::Left(ready(Err(panic))),
        };
        let metrics = Arc::clone(&self.metrics);
        MapResultFuture::new(caught, RecoverPanic { metrics, audit })
    }
}

pub(super) struct RecoverPanic {
    metrics: Arc<ApiServerMetrics>,
    audit: Option<Arc<RequestAudit>>,
}

impl MapResult<CaughtResult> for RecoverPanic {
    type Error = Status;

    fn map_result(self, result: CaughtResult) -> Result<ServerResponse, Status> {
        result.unwrap_or_else(|panic| {
            self.metrics.aborts.inc();
            if let Some(audit) = &self.audit {
                audit.record_panic(panic_message(&*panic));
            }
            let text = "This request caused apiserver to panic. Look in the logs for details.";
            Err(Status::internal(text))
        })
    }
}

/// The text of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{handler_fn, metrics, resolved_request};

    #[tokio::test]
    async fn panics_become_500() {
        let layer = PanicRecoveryLayer::new(&metrics());
        let in_call = handler_fn(|_: ResolvedRequest<()>| -> Ready<_> { panic!("call") });
        let response = layer.layer(in_call).call(resolved_request("GET", "/x"));
        assert_eq!(response.await.err().map(|s| s.code), Some(500));
        let in_poll = handler_fn(async |_: ResolvedRequest<()>| panic!("poll"));
        let response = layer.layer(in_poll).call(resolved_request("GET", "/x"));
        assert_eq!(response.await.err().map(|s| s.code), Some(500));
        let text = String::from_utf8(layer.metrics.text()).unwrap();
        assert!(text.contains("apiserver_request_aborts_total 2"), "{text}");
    }
}
