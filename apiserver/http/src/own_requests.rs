//! Serves requests that a proxy passes on to the control plane: this server itself, as the user of
//! the request, or the API server in front of it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use http::uri::PathAndQuery;
use http::{Response, Uri};
use hyper::body::Incoming;
use hyper::service::Service;
use machinery::Status;

use crate::filters::{AssumedUser, HandlerChainConfig, ReceivedRequest, build_passed_on_chain};
use crate::handler::ApiServerHandler;
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;

/// Serves requests of a proxy that no member answers.
#[async_trait]
pub trait ControlPlaneBackend: Send + Sync {
    /// Serves the request of `connection` on another path, with the rights of its user.
    async fn serve(
        &self,
        connection: SubresourceConnectRequest,
        path: PathAndQuery,
    ) -> Result<Response<ServerResponseBody>, Status>;
}

/// The filters and handlers with which a server serves its requests.
pub(crate) struct RequestHandling {
    pub(crate) filters: HandlerChainConfig,
    pub(crate) handler: ApiServerHandler,
}

/// This server as the control plane behind its own proxies. It is set once the server exists.
#[derive(Default)]
pub struct OwnControlPlane {
    server: OnceLock<Weak<RequestHandling>>,
}

impl OwnControlPlane {
    pub(crate) fn set(&self, server: &Arc<RequestHandling>) {
        // A second server keeps the first: no caller makes one.
        drop(self.server.set(Arc::downgrade(server)));
    }
}

#[async_trait]
impl ControlPlaneBackend for OwnControlPlane {
    async fn serve(
        &self,
        connection: SubresourceConnectRequest,
        path: PathAndQuery,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let server = self.server.get().and_then(Weak::upgrade);
        let server = server.ok_or_else(|| Status::unavailable("the server is starting"))?;
        let mut request = connection.request;
        *request.uri_mut() = Uri::from(path);
        request.extensions_mut().insert(AssumedUser {
            user: connection.user,
            deadline: connection.deadline,
        });
        let received = ReceivedRequest::<Incoming>::passed_on(request);
        let chain = build_passed_on_chain(&server.filters, server.handler.clone());
        let served: Result<_, Infallible> = chain.call(received).await;
        let Ok(response) = served;
        Ok(response)
    }
}
