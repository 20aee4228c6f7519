//! Derives what a request asks for, and whether its path has the scope of the resource, for all
//! later filters (kube-apiserver's `WithRequestInfo`). A request that cannot be parsed ends here.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::Either;
use http::Method;
use hyper::service::Service;
use machinery::Status;
use registry::Registry;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::request::{ReceivedRequest, ResolvedRequest};
use crate::audit::{Auditor, RequestAudit, SourceRequest};
use crate::backup::BACKUP_PATH;
use crate::flowcontrol::SharedFlow;
use crate::metrics::{ApiServerMetrics, RequestLabels, verb_label};
use crate::negotiation::{self, ProtobufOffer, ResponseFormat, ResponseOffer};
use crate::profiling;
use crate::requestinfo::{self, QueryParams, RequestInfo};
use crate::response_writers;
use crate::scope::check_request_scope;
use crate::subresources::{SubresourceConnectors, find_connector};

/// Errors are sent in every serialization.
const STATUS_OFFER: ResponseOffer = ResponseOffer {
    tables: false,
    partial_metadata: false,
    protobuf: ProtobufOffer::Objects,
};
/// Subresources whose proxied requests are long-running (kube-apiserver's
/// `--long-running-request-regexp` as Karmada sets it).
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

pub(super) struct RequestInfoLayer {
    resolver: Arc<RequestInfoResolver>,
}

impl RequestInfoLayer {
    pub(super) fn new(
        registry: &Arc<Registry>,
        connectors: &Arc<SubresourceConnectors>,
        metrics: &Arc<ApiServerMetrics>,
        auditor: &Option<Arc<Auditor>>,
        has_flow_control: bool,
    ) -> Self {
        Self {
            resolver: Arc::new(RequestInfoResolver {
                registry: Arc::clone(registry),
                connectors: Arc::clone(connectors),
                metrics: Arc::clone(metrics),
                auditor: auditor.clone(),
                has_flow_control,
            }),
        }
    }
}

impl<S> Layer<S> for RequestInfoLayer {
    type Service = RequestInfoService<S>;

    fn layer(&self, inner: S) -> RequestInfoService<S> {
        RequestInfoService {
            inner,
            resolver: Arc::clone(&self.resolver),
        }
    }
}

pub(super) struct RequestInfoService<S> {
    inner: S,
    resolver: Arc<RequestInfoResolver>,
}

impl<S, B> Service<ReceivedRequest<B>> for RequestInfoService<S>
where
    S: InnerService<ResolvedRequest<B>, Infallible>,
{
    type Response = ServerResponse;
    type Error = Infallible;
    type Future = Either<Ready<Result<ServerResponse, Infallible>>, S::Future>;

    fn call(&self, request: ReceivedRequest<B>) -> Self::Future {
        let received_at = Instant::now();
        let ReceivedRequest {
            peer,
            remote_address,
            audit_id,
            http,
        } = request;
        let query = QueryParams::parse(http.uri().query());
        let format = negotiation::negotiate(http.headers(), &query, STATUS_OFFER)
            .unwrap_or(ResponseFormat::PLAIN_JSON);
        let info = match requestinfo::parse_request(http.method(), http.uri().path(), &query) {
            Ok(info) => info,
            Err(status) => {
                let response = self.resolver.refuse(&status, format, received_at);
                return Either::Left(ready(Ok(response)));
            }
        };
        let long_running = self.resolver.is_long_running(http.method(), &info, &query);
        let needs_body = self.resolver.needs_body(&info);
        let scope = self.resolver.check_scope(&info);
        let labels = self.resolver.request_labels(&info, &query, long_running);
        let audit = self.resolver.auditor.as_ref().map(|auditor| {
            let source = SourceRequest::new(&audit_id, remote_address, &http, info.verb);
            Arc::new(RequestAudit::new(auditor, source, &info))
        });
        Either::Right(self.inner.call(ResolvedRequest {
            peer,
            remote_address,
            audit_id,
            http,
            received_at,
            info,
            query,
            scope,
            labels: Arc::new(labels),
            format,
            long_running,
            needs_body,
            audit,
            flow: self.resolver.has_flow_control.then(SharedFlow::default),
        }))
    }
}

struct RequestInfoResolver {
    registry: Arc<Registry>,
    connectors: Arc<SubresourceConnectors>,
    metrics: Arc<ApiServerMetrics>,
    auditor: Option<Arc<Auditor>>,
    has_flow_control: bool,
}

impl RequestInfoResolver {
    /// Writes the error of a request that cannot be parsed, and records it: the metrics
    /// of other requests are recorded by an inner filter.
    fn refuse(
        &self,
        status: &Status,
        format: ResponseFormat,
        received_at: Instant,
    ) -> ServerResponse {
        let response = response_writers::write_status(status, format);
        self.metrics.observe_response(
            &RequestLabels::default(),
            response.status().as_u16(),
            Some(received_at.elapsed()),
            http_body::Body::size_hint(response.body()).exact(),
        );
        response
    }

    /// Whether the path has the scope of the resource that it names. This is decided before the
    /// request is authorized by its path.
    fn check_scope(&self, info: &RequestInfo) -> Result<(), Status> {
        match &info.resource {
            Some(resource) => check_request_scope(&self.registry.table(), resource, info.verb),
            None => Ok(()),
        }
    }

    /// Whether a request is long-running. A proxied request is classified by the path
    /// that the proxy forwards to.
    fn is_long_running(&self, method: &Method, info: &RequestInfo, query: &QueryParams) -> bool {
        let Some(r) = &info.resource else {
            return profiling::is_profile(&info.path) || info.path == BACKUP_PATH;
        };
        if info.verb == "watch" {
            return true;
        }
        match (find_connector(&self.connectors, r), r.subresource.as_str()) {
            (None, _) => false,
            (_, "log") => query.flag("follow"),
            (_, "proxy") => {
                requestinfo::parse_request(method, &r.subpath, query).is_ok_and(|forwarded| {
                    let subresource = forwarded.resource.as_ref().map(|r| r.subresource.as_str());
                    forwarded.verb == "watch"
                        || subresource.is_some_and(|s| LONG_RUNNING_SUBRESOURCES.contains(&s))
                })
            }
            (Some(connector), _) => connector.is_long_running(),
        }
    }

    /// Whether a request is a write; a connection reads its body itself.
    fn needs_body(&self, info: &RequestInfo) -> bool {
        let resource = info.resource.as_ref().filter(|_| info.is_mutating());
        resource.is_some_and(|r| find_connector(&self.connectors, r).is_none())
    }

    fn request_labels(
        &self,
        info: &RequestInfo,
        query: &QueryParams,
        long_running: bool,
    ) -> RequestLabels {
        let mut labels = RequestLabels {
            verb: verb_label(info.verb),
            dry_run: query.get("dryRun") == Some("All"),
            ..RequestLabels::default()
        };
        let Some(r) = &info.resource else {
            return labels;
        };
        let table = self.registry.table();
        let Some(resource_info) = table.find_by_name(&r.group, &r.version, &r.resource) else {
            return labels;
        };
        let is_known_subresource = resource_info.subresource(&r.subresource).is_some()
            || find_connector(&self.connectors, r).is_some();
        if long_running && info.verb != "watch" {
            labels.verb = "CONNECT";
        }
        if is_known_subresource {
            labels.subresource.clone_from(&r.subresource);
        }
        labels.scope = match (r.has_name, r.namespace.is_empty()) {
            (true, _) => "resource",
            (false, false) => "namespace",
            (false, true) => "cluster",
        };
        labels.group.clone_from(&r.group);
        labels.version.clone_from(&r.version);
        labels.resource.clone_from(&r.resource);
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{handler_fn, metrics, received, registry, respond};
    use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};
    use http::Request;
    use serde_json::Value;

    struct FakeSubresourceConnector;

    #[async_trait::async_trait]
    impl SubresourceConnector for FakeSubresourceConnector {
        fn connect_options(&self, _: &SubresourceConnectRequest) -> Option<Value> {
            None
        }

        async fn connect(&self, _: SubresourceConnectRequest) -> Result<ServerResponse, Status> {
            Err(Status::path_not_found())
        }
    }

    async fn layer() -> RequestInfoLayer {
        let of = |group: &str, resource: &str, subresource: &str| {
            let key = (group.into(), resource.into(), subresource.into());
            (
                key,
                Arc::new(FakeSubresourceConnector) as Arc<dyn SubresourceConnector>,
            )
        };
        let connectors = SubresourceConnectors::from([
            of("", "pods", "log"),
            of("", "pods", "exec"),
            of("cluster.karmada.io", "clusters", "proxy"),
        ]);
        RequestInfoLayer::new(
            &registry().await,
            &Arc::new(connectors),
            &metrics(),
            &None,
            false,
        )
    }

    #[tokio::test]
    async fn watches_followed_logs_and_tunnels_are_long_running() {
        const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy";
        let resolver = layer().await.resolver;
        for (url, is_long_running) in [
            ("/version", false),
            ("/debug/pprof/profile?seconds=90", true),
            ("/flotilla/backup", true),
            ("/api/v1/pods", false),
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/namespaces/a/pods/p/log", false),
            ("/api/v1/namespaces/a/pods/p/log?follow=1", true),
            ("/api/v1/namespaces/a/pods/p/exec", true),
            ("/api/v1/namespaces/a/pods/p/status", false),
            (&format!("{PROXY}/api/v1/pods"), false),
            (&format!("{PROXY}/api/v1/pods?watch=1"), true),
            (&format!("{PROXY}/api/v1/namespaces/a/pods/p/exec"), true),
        ] {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let query = QueryParams::parse(Some(query));
            let info = requestinfo::parse_request(&Method::GET, path, &query).unwrap();
            let actual = resolver.is_long_running(&Method::GET, &info, &query);
            assert_eq!(actual, is_long_running, "{url}");
        }
    }

    #[tokio::test]
    async fn paths_with_another_scope_are_marked() {
        let layer = layer().await;
        let service = layer.layer(handler_fn(async |request: ResolvedRequest<()>| {
            let code = request
                .scope
                .as_ref()
                .map_or_else(|status| status.code, |()| 200);
            respond(code).call(request).await
        }));
        const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
        for (path, code) in [
            ("/version", 200),
            (&format!("{ROLES}/clusterroles/a"), 200),
            (&format!("{ROLES}/namespaces/a/clusterroles/a"), 404),
            (&format!("{ROLES}/namespaces/a/roles/a"), 200),
            (&format!("{ROLES}/roles/a"), 404),
        ] {
            let request = Request::builder().uri(path).body(()).unwrap();
            let Ok(response) = service.call(received(request)).await;
            assert_eq!(response.status(), code, "{path}");
        }
    }

    #[tokio::test]
    async fn requests_get_their_info_or_400() {
        let layer = layer().await;
        let service = layer.layer(handler_fn(async |request: ResolvedRequest<()>| {
            assert_eq!(request.info.verb, "list");
            let labels = &request.labels;
            assert_eq!((labels.verb, &*labels.resource), ("LIST", "pods"));
            respond(200).call(request).await
        }));
        for (path, code) in [("/api/v1/pods", 200), ("/api/v1/namespaces/%zz/pods", 400)] {
            let request = Request::builder().uri(path).body(()).unwrap();
            let Ok(response) = service.call(received(request)).await;
            assert_eq!(response.status(), code);
        }
        let text = String::from_utf8(layer.resolver.metrics.text()).unwrap();
        assert!(
            text.contains("apiserver_request_total{code=\"400\""),
            "{text}"
        );
    }
}
