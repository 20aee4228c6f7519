//! The innermost service: passes a request that has been through the filters to the
//! handlers of its resource or non-resource path (kube-apiserver's `director`).

use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::Service;
use machinery::Status;

use crate::authorized_request::AuthorizedResourceRequest;
use crate::filters::{AuthenticatedRequest, ServerResponse};
use crate::non_resource_paths::NonResourcePathHandler;
use crate::resource_handlers::ResourceRequestDispatcher;

/// Serves authorized requests. Clones share the handlers.
#[derive(Clone)]
pub(crate) struct ApiServerHandler {
    pub(crate) resources: Arc<ResourceRequestDispatcher>,
    pub(crate) non_resource_paths: Arc<NonResourcePathHandler>,
}

impl Service<AuthenticatedRequest<Incoming>> for ApiServerHandler {
    type Response = ServerResponse;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ServerResponse, Status>>;

    fn call(&self, authenticated: AuthenticatedRequest<Incoming>) -> Self::Future {
        let request = authenticated.request;
        match request.info.resource {
            Some(resource) => {
                let call = AuthorizedResourceRequest {
                    user: authenticated.user,
                    verb: request.info.verb,
                    resource,
                    query: request.query,
                    deadline: authenticated.deadline,
                    audit: request.audit,
                    body: authenticated.body,
                };
                let resources = Arc::clone(&self.resources);
                Box::pin(async move { resources.serve(call, request.http).await })
            }
            None if matches!(request.info.verb, "get" | "head") => {
                let paths = Arc::clone(&self.non_resource_paths);
                let user = authenticated.user;
                Box::pin(async move {
                    let headers = request.http.headers();
                    paths
                        .serve(&user, &request.info.path, &request.query, headers)
                        .await
                })
            }
            None => Box::pin(ready(Err(Status::method_not_allowed()))),
        }
    }
}
