//! Takes seats for every request before it is authorized, in a queue of its flow if
//! there are none; fails with 429 when it is not its turn in time (kube-apiserver's
//! `WithPriorityAndFairness`). Probes are exempt, and long-running requests but watches,
//! which occupy their seats until they begin. Seats are held until the response's body
//! ends.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, ready};
use hyper::service::Service;
use machinery::Status;
use registry::Registry;
use tower::Layer;

use super::attach_guard::BodyGuardAttacher;
use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MakeMapResult, MapResult, MapResultFuture};
use super::request::{AuthenticatedRequest, ResolvedRequest};
use crate::flowcontrol::{
    ConcurrencyPermit, Flow, FlowController, FlowGaugeGuard, FlowRequest, SharedFlow,
};
use crate::metrics::ApiServerMetrics;

const FLOW_SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const PRIORITY_LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";

pub(super) struct FlowControlLayer {
    dispatcher: Arc<FlowDispatcher>,
}

/// The flow control of requests; without a controller all pass.
struct FlowDispatcher {
    controller: Option<Arc<FlowController>>,
    registry: Arc<Registry>,
    metrics: Arc<ApiServerMetrics>,
}

impl FlowControlLayer {
    pub(super) fn new(
        controller: &Option<Arc<FlowController>>,
        registry: &Arc<Registry>,
        metrics: &Arc<ApiServerMetrics>,
    ) -> Self {
        Self {
            dispatcher: Arc::new(FlowDispatcher {
                controller: controller.clone(),
                registry: Arc::clone(registry),
                metrics: Arc::clone(metrics),
            }),
        }
    }
}

impl<S> Layer<S> for FlowControlLayer {
    type Service = FlowControlService<S>;

    fn layer(&self, inner: S) -> FlowControlService<S> {
        FlowControlService {
            inner: Arc::new(inner),
            dispatcher: Arc::clone(&self.dispatcher),
        }
    }
}

pub(super) struct FlowControlService<S> {
    inner: Arc<S>,
    dispatcher: Arc<FlowDispatcher>,
}

impl<S, B> Service<AuthenticatedRequest<B>> for FlowControlService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status> + Send + Sync + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = ServerResponse;
    type Error = Status;
    /// Only a request that waits is worth an allocation.
    type Future = Either<
        BoxFuture<'static, Result<ServerResponse, Status>>,
        MapResultFuture<S::Future, ConcurrencyPermitAttacher>,
    >;

    fn call(&self, request: AuthenticatedRequest<B>) -> Self::Future {
        let controller = self.dispatcher.controller.as_ref();
        let Some(controller) = controller.filter(|_| !is_exempt(&request.request)) else {
            let response = self.inner.call(request);
            return Either::Right(MapResultFuture::new(
                response,
                ConcurrencyPermitAttacher(None),
            ));
        };
        let flow_request = FlowRequest {
            user: &request.user,
            info: &request.request.info,
            query: &request.request.query,
        };
        let Some(flow) = controller.classify(&flow_request) else {
            let response = self.inner.call(request);
            return Either::Right(MapResultFuture::new(
                response,
                ConcurrencyPermitAttacher(None),
            ));
        };
        if let Some(shared) = &request.request.flow {
            shared.set(&flow);
        }
        let verb = request.request.labels.verb;
        let long_running = request.request.long_running;
        match controller.acquire(&flow, &flow_request, &self.dispatcher.registry) {
            Err(_) => Either::Left(Box::pin(ready(Err(self.dispatcher.refuse(verb))))),
            Ok(Ok(permit)) => {
                let seats = ConcurrencyPermitAttacher::new(permit, &flow, long_running);
                let response = self.inner.call(request);
                Either::Right(MapResultFuture::new(response, seats))
            }
            Ok(Err(waiting)) => {
                let inner = Arc::clone(&self.inner);
                let dispatcher = Arc::clone(&self.dispatcher);
                Either::Left(Box::pin(async move {
                    let permit = waiting.await.map_err(|_| dispatcher.refuse(verb))?;
                    let seats = ConcurrencyPermitAttacher::new(permit, &flow, long_running);
                    let result = inner.call(request).await;
                    seats.map_result(result)
                }))
            }
        }
    }
}

fn is_exempt<B>(request: &ResolvedRequest<B>) -> bool {
    request.info.is_probe() || (request.long_running && request.info.verb != "watch")
}

impl FlowDispatcher {
    fn refuse(&self, verb: &'static str) -> Status {
        self.metrics.count_termination(verb, "429");
        Status::too_many_requests("too many requests, please try again later.", 1)
    }
}

/// Holds the seats of a request until the body of its response ends, or until a watch
/// begins.
pub(super) struct ConcurrencyPermitAttacher(Option<PermitOfRequest>);

struct PermitOfRequest {
    guard: (ConcurrencyPermit, FlowGaugeGuard),
    long_running: bool,
}

impl ConcurrencyPermitAttacher {
    fn new(permit: ConcurrencyPermit, flow: &Flow, long_running: bool) -> Self {
        Self(Some(PermitOfRequest {
            guard: (permit, flow.start_executing()),
            long_running,
        }))
    }
}

impl MapResult<Result<ServerResponse, Status>> for ConcurrencyPermitAttacher {
    type Error = Status;

    fn map_result(self, result: Result<ServerResponse, Status>) -> Result<ServerResponse, Status> {
        let short_running = self.0.filter(|short_running| !short_running.long_running);
        BodyGuardAttacher(short_running.map(|short_running| short_running.guard)).map_result(result)
    }
}

/// Names the FlowSchema and the level of a request in the headers of its response,
/// errors included.
#[derive(Clone)]
pub(super) struct MakeFlowHeaders;

impl<B> MakeMapResult<ResolvedRequest<B>> for MakeFlowHeaders {
    type MapResult = AddFlowHeaders;

    fn make_map_result(&self, request: &ResolvedRequest<B>) -> AddFlowHeaders {
        AddFlowHeaders(request.flow.clone())
    }
}

pub(super) struct AddFlowHeaders(Option<SharedFlow>);

impl MapResult<Result<ServerResponse, Infallible>> for AddFlowHeaders {
    type Error = Infallible;

    fn map_result(
        self,
        result: Result<ServerResponse, Infallible>,
    ) -> Result<ServerResponse, Infallible> {
        let mut response = result?;
        if let Some(flow) = self.0.as_ref().and_then(SharedFlow::get) {
            let headers = response.headers_mut();
            headers.insert(FLOW_SCHEMA_UID, flow.schema_uid.clone());
            headers.insert(PRIORITY_LEVEL_UID, flow.level_uid.clone());
        }
        Ok(response)
    }
}
