//! Starts the span of a request, once its user is known (kube-apiserver's `WithTracing`).
//! The span ends with the body of the response.

use flotilla_tracing::{InSpan, InSpanExt, KeyValue, ServerSpanFields, Span, start_server_span};
use hyper::service::Service;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Status, UserInfo};
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MapResult, MapResultFuture};
use super::request::{AuthenticatedRequest, ResolvedRequest};
use crate::requestinfo::RequestedResource;

/// Beside `system:masters` the group whose members decide whether their requests are
/// sampled.
const MONITORING_GROUP: &str = "system:monitoring";

pub(super) struct TracingLayer;

impl<S> Layer<S> for TracingLayer {
    type Service = TracingService<S>;

    fn layer(&self, inner: S) -> TracingService<S> {
        TracingService { inner }
    }
}

pub(super) struct TracingService<S> {
    inner: S,
}

impl<S, B> Service<AuthenticatedRequest<B>> for TracingService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status>,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = MapResultFuture<InSpan<S::Future>, ServerSpanEnd>;

    fn call(&self, request: AuthenticatedRequest<B>) -> Self::Future {
        let resolved = &request.request;
        let span = start_server_span(
            resolved.http.headers(),
            may_decide_on_sampling(&request.user),
            resolved.received_at,
            || server_span_fields(resolved),
        );
        let future = self.inner.call(request).in_span(span.as_ref());
        MapResultFuture::new(future, ServerSpanEnd(span))
    }
}

/// Records the response in the span, and ends it with the body.
pub(super) struct ServerSpanEnd(Option<Span>);

impl MapResult<Result<ServerResponse, Status>> for ServerSpanEnd {
    type Error = Status;

    fn map_result(self, result: Result<ServerResponse, Status>) -> Result<ServerResponse, Status> {
        let Some(span) = self.0 else {
            return result;
        };
        match result {
            Ok(mut response) => {
                span.record_server_response(response.status().as_u16());
                if !response.body().is_full() {
                    response.body_mut().attach_guard(span);
                }
                Ok(response)
            }
            Err(status) => {
                span.record_server_response(status.code);
                Err(status)
            }
        }
    }
}

fn may_decide_on_sampling(user: &UserInfo) -> bool {
    let trusted = [SYSTEM_PRIVILEGED_GROUP, MONITORING_GROUP];
    user.groups.iter().any(|group| trusted.contains(&&**group))
}

fn server_span_fields<B>(request: &ResolvedRequest<B>) -> ServerSpanFields {
    let method = request.http.method().as_str();
    let resource = request.info.resource.as_ref();
    let name = match resource {
        Some(resource) => format!("{method} {}", route(resource)),
        None => method.to_owned(),
    };
    let uri = request.http.uri();
    // The query of a subresource belongs to a program behind it, and may have credentials.
    let target = match resource {
        Some(resource) if resource.subresource.is_empty() => {
            uri.path_and_query().map_or("", |target| target.as_str())
        }
        _ => uri.path(),
    };
    let audit_id = String::from_utf8_lossy(request.audit_id.as_bytes());
    ServerSpanFields {
        name: name.into(),
        attributes: vec![
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("url.scheme", "https"),
            KeyValue::new("url.path", uri.path().to_owned()),
            KeyValue::new("http.target", target.to_owned()),
            KeyValue::new("audit-id", audit_id.into_owned()),
        ],
    }
}

/// The path of a resource without the names in it.
fn route(resource: &RequestedResource) -> String {
    let mut route = match &*resource.group {
        "" => "/api".to_owned(),
        group => format!("/apis/{group}"),
    };
    route.push('/');
    route.push_str(&resource.version);
    if !resource.namespace.is_empty() {
        route.push_str("/namespaces/{:namespace}");
    }
    route.push('/');
    route.push_str(&resource.resource);
    if !resource.name.is_empty() {
        route.push_str("/{:name}");
    }
    if !resource.subresource.is_empty() {
        route.push('/');
        route.push_str(&resource.subresource);
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, resolved_request, respond};

    fn attribute(fields: &ServerSpanFields, key: &str) -> String {
        let attribute_found = fields.attributes.iter().find(|a| a.key.as_str() == key);
        attribute_found.unwrap().value.to_string()
    }

    #[test]
    fn spans_are_named_after_the_route_and_have_no_foreign_query() {
        for (url, name, target) in [
            ("/version?a=b", "GET", "/version"),
            (
                "/api/v1/pods?limit=1",
                "GET /api/v1/pods",
                "/api/v1/pods?limit=1",
            ),
            (
                "/api/v1/namespaces/n/pods/p",
                "GET /api/v1/namespaces/{:namespace}/pods/{:name}",
                "/api/v1/namespaces/n/pods/p",
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                "GET /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale",
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
            ),
            (
                "/api/v1/namespaces/n/pods/p/proxy/x?token=secret",
                "GET /api/v1/namespaces/{:namespace}/pods/{:name}/proxy",
                "/api/v1/namespaces/n/pods/p/proxy/x",
            ),
        ] {
            let fields = server_span_fields(&resolved_request("GET", url));
            assert_eq!(fields.name, name);
            assert_eq!(attribute(&fields, "http.target"), target);
        }
    }

    #[tokio::test]
    async fn privileged_and_monitoring_clients_are_trusted_and_no_span_changes_nothing() {
        let service = TracingLayer.layer(respond(404));
        for (groups, expected) in [
            (&["system:masters"][..], true),
            (&["a", "system:monitoring"], true),
            (&["system:authenticated"], false),
            (&[], false),
        ] {
            let request = as_user(resolved_request("GET", "/version"), "ann", groups);
            assert_eq!(may_decide_on_sampling(&request.user), expected);
            assert_eq!(service.call(request).await.unwrap().status(), 404);
        }
    }
}
