//! The handler chain: the filters in their order.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use auth::{RequestAuthenticator, RequestAuthorizer};
use bytes::Bytes;
use http_body::Body;
use machinery::Status;
use registry::Registry;
use tower::ServiceBuilder;

use super::admission_reviews::AdmissionReviewsLayer;
use super::assumed_user::{AssumedUserCheck, AssumedUserLayer};
use super::audit::MakeAuditResponse;
use super::audit_id::MakeAuditId;
use super::authentication::AuthenticationLayer;
use super::authorization::AuthorizationLayer;
use super::deadline::DeadlineLayer;
use super::drain::DrainLayer;
use super::error_responses::ErrorResponsesLayer;
use super::impersonation::ImpersonationLayer;
use super::in_flight::InFlightLayer;
use super::inner_service::InnerService;
use super::map_result::MapResultLayer;
use super::max_in_flight::{InFlightLimits, MaxInFlightLayer};
use super::observation::ObservationLayer;
use super::panic_recovery::PanicRecoveryLayer;
use super::priority_and_fairness::{FlowControlLayer, MakeFlowHeaders};
use super::request::{AuthenticatedRequest, ReceivedRequest};
use super::request_body::RequestBodyLayer;
use super::request_info::RequestInfoLayer;
use super::response_headers::ResponseHeadersLayer;
use super::tracing::TracingLayer;
use crate::admission_review::AdmissionReviewHandlers;
use crate::audit::Auditor;
use crate::flowcontrol::FlowController;
use crate::health::HealthProbe;
use crate::metrics::ApiServerMetrics;
use crate::server_drain::ServerDrain;
use crate::subresources::SubresourceConnectors;

/// The dependencies and limits of the handler chain.
pub(crate) struct HandlerChainConfig {
    pub(crate) registry: Arc<Registry>,
    pub(crate) connectors: Arc<SubresourceConnectors>,
    pub(crate) authenticator: Arc<RequestAuthenticator>,
    pub(crate) authorizer: Arc<RequestAuthorizer>,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) drain: Arc<ServerDrain>,
    pub(crate) limits: Arc<InFlightLimits>,
    /// Served to other API servers.
    pub(crate) webhooks: AdmissionReviewHandlers,
    /// Fails while the server does not know every resource.
    pub(crate) resources_installed: Option<HealthProbe>,
    pub(crate) request_timeout: Duration,
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// Takes the place of the in-flight limits.
    pub(crate) flow_control: Option<Arc<FlowController>>,
}

/// Puts the filters around `handler`, from outermost to innermost.
///
/// The order is that of kube-apiserver's `DefaultBuildHandlerChain`
/// (`server/config.go`), whose names stand beside ours, except that
/// - panics are recovered inside of the headers, the request info and the metrics, so
///   that a 500 has an audit ID and is counted under its resource;
/// - the webhooks that other API servers call are served before authentication;
/// - the body of a write is read before the request takes part in any limit on requests: who sends
///   half of it occupies no seat, but memory of which he has a share;
/// - in-flight limits act before impersonation: who is exempt as `system:masters` is
///   the user who was authenticated, not the one he impersonates. Exempt are also
///   long-running requests and probes;
/// - requests count as in flight, and their deadline begins, once they are authorized:
///   what is refused does neither.
pub(crate) fn build_handler_chain<H, B>(
    config: &HandlerChainConfig,
    handler: H,
) -> impl InnerService<ReceivedRequest<B>, Infallible, Future: Send> + Send + Sync + use<H, B>
where
    H: InnerService<AuthenticatedRequest<B>, Status, Future: Send> + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Display + Send> + Send + Unpin + 'static,
{
    let HandlerChainConfig {
        registry,
        connectors,
        authenticator,
        authorizer,
        metrics,
        drain,
        limits,
        webhooks,
        resources_installed,
        request_timeout,
        auditor,
        flow_control,
    } = config;
    let timeout = *request_timeout;
    ServiceBuilder::new()
        .layer(MapResultLayer(MakeAuditId)) // WithAuditInit
        .layer(ResponseHeadersLayer::new(drain)) // WithCacheControl
        .layer(RequestInfoLayer::new(
            registry,
            connectors,
            metrics,
            auditor,
            flow_control.is_some(),
        )) // WithRequestInfo
        .layer(ObservationLayer::new(metrics)) // InstrumentHandlerFunc
        .layer(MapResultLayer(MakeFlowHeaders))
        .layer(ErrorResponsesLayer::new(resources_installed)) // WithMuxAndDiscoveryComplete
        .layer(PanicRecoveryLayer::new(metrics)) // WithPanicRecovery
        .layer(DrainLayer::new(drain, metrics)) // WithRetryAfter
        .layer(AdmissionReviewsLayer::new(webhooks, limits, timeout))
        .layer(AuthenticationLayer::with_metrics(authenticator, metrics)) // WithAuthentication
        .layer(TracingLayer) // WithTracing
        .layer(MapResultLayer(MakeAuditResponse)) // WithAudit
        .layer(RequestBodyLayer::new(timeout))
        .layer(MaxInFlightLayer::new(limits, flow_control.is_none())) // WithMaxInFlightLimit
        .layer(ImpersonationLayer::new(authorizer, authenticator)) // WithImpersonation
        .layer(FlowControlLayer::new(flow_control, registry, metrics)) // WithPriorityAndFairness
        .layer(AuthorizationLayer::with_metrics(authorizer, metrics)) // WithAuthorization
        .layer(InFlightLayer::new(drain, metrics)) // WithWaitGroup
        .layer(DeadlineLayer::new(timeout)) // WithRequestDeadline
        .service(handler)
}

/// Puts the filters around `handler` for a request that a proxy of this server passes on to it. The
/// request is authorized and audited by itself; limits, deadline and metrics belong to the request
/// to the proxy.
pub(crate) fn build_passed_on_chain<H, B>(
    config: &HandlerChainConfig,
    handler: H,
) -> impl InnerService<ReceivedRequest<B>, Infallible, Future: Send> + Send + Sync + use<H, B>
where
    H: InnerService<AuthenticatedRequest<B>, Status, Future: Send> + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Display + Send> + Send + Unpin + 'static,
{
    ServiceBuilder::new()
        .layer(RequestInfoLayer::new(
            &config.registry,
            &config.connectors,
            &config.metrics,
            &config.auditor,
            false,
        ))
        .layer(ErrorResponsesLayer::new(&config.resources_installed))
        .layer(AssumedUserLayer::new(AssumedUserCheck))
        .layer(MapResultLayer(MakeAuditResponse))
        .layer(RequestBodyLayer::new(config.request_timeout))
        .layer(AuthorizationLayer::with_metrics(
            &config.authorizer,
            &config.metrics,
        ))
        .service(handler)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission_review::AdmissionReviewHandler;
    use crate::filters::testing;
    use http::Request;
    use http::header::AUTHORIZATION;
    use http_body_util::Full;
    use hyper::service::Service;

    async fn config() -> HandlerChainConfig {
        let metrics = testing::metrics();
        let review: AdmissionReviewHandler = |_| Ok(());
        HandlerChainConfig {
            registry: testing::registry().await,
            connectors: Arc::default(),
            authenticator: testing::authenticator(),
            authorizer: testing::authorizer(),
            drain: Arc::default(),
            limits: Arc::new(InFlightLimits::new(0, 0, Arc::clone(&metrics))),
            metrics,
            request_timeout: Duration::from_secs(60),
            webhooks: AdmissionReviewHandlers::from([("/review", review)]),
            resources_installed: None,
            auditor: None,
            flow_control: None,
        }
    }

    #[tokio::test]
    async fn filters_act_in_their_order() {
        let config = config().await;
        let handler = async |request: AuthenticatedRequest<Full<Bytes>>| {
            assert_ne!(request.request.info.path, "/livez/panic");
            testing::respond(200).call(request).await
        };
        let chain = build_handler_chain(&config, testing::handler_fn(handler));
        let call = async |method: &str, path: &str, authorization: &str| {
            let request = Request::builder().method(method).uri(path);
            let request = request.header(AUTHORIZATION, authorization);
            let request = request.body(Full::default()).unwrap();
            let Ok(response) = chain.call(testing::received(request)).await;
            assert!(response.headers().contains_key("audit-id"));
            assert!(response.headers().contains_key("cache-control"));
            response.status().as_u16()
        };
        let (anonymous, invalid) = ("", "Bearer x");
        // There are no permits: what is refused with 429 was authenticated and is not
        // authorized.
        assert_eq!(call("POST", "/review", invalid).await, 429);
        assert_eq!(call("GET", "/version", invalid).await, 401);
        assert_eq!(call("GET", "/version", anonymous).await, 429);
        assert_eq!(call("GET", "/api/v1/pods?watch=1", anonymous).await, 403);
        assert_eq!(call("GET", "/livez", anonymous).await, 200);
        assert_eq!(call("GET", "/livez/panic", anonymous).await, 500);
        let text = String::from_utf8(config.metrics.text()).unwrap();
        assert!(
            text.contains("apiserver_request_total{code=\"500\""),
            "{text}"
        );
        config.drain.start(Duration::ZERO);
        assert_eq!(call("GET", "/version", invalid).await, 429);
        assert_eq!(call("GET", "/livez", invalid).await, 401);
    }
}
