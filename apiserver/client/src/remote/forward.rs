//! Forwards the requests of others: headers as given, body and response streamed,
//! upgrades on connections of their own.
//!
//! The URI of a request is a path below the server's address. Our own credentials are
//! added; a request that the server may have seen is not repeated.

use flotilla_tracing::{Span, start_client_span};
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;

use super::body::RequestBody;
use super::config::{RestConfig, RestConfigError};
use super::pool::{ResponseBody, SendError};
use super::server_connection::ServerConnection;
use super::tunnel::TunnelClient;
use crate::tasks::TaskGroup;

/// The request got no response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ForwardError {
    pub message: String,
    /// The server did not process the request.
    pub unprocessed: bool,
}

impl From<SendError> for ForwardError {
    fn from(failure: SendError) -> Self {
        Self {
            unprocessed: failure.is_unprocessed(),
            message: failure.message,
        }
    }
}

/// Forwards requests to one server.
pub struct RequestForwarder {
    connection: ServerConnection,
}

impl RequestForwarder {
    /// `tasks` owns the connections; nothing is dialed yet.
    pub fn new(config: RestConfig, tasks: &TaskGroup) -> Result<Self, RestConfigError> {
        let connection = ServerConnection::new(config, tasks)?;
        Ok(Self { connection })
    }

    /// Forwards to the member at the other end of a tunnel; `authority` names it.
    pub fn through_tunnel(client: TunnelClient, authority: &str) -> Result<Self, RestConfigError> {
        let connection = ServerConnection::through_tunnel(client, authority)?;
        Ok(Self { connection })
    }

    fn server(&self) -> &Uri {
        &self.connection.config().server
    }

    /// The base path of the server, without a trailing slash.
    pub fn base_path(&self) -> &str {
        self.server().path().trim_end_matches('/')
    }

    /// `host:port` of the server.
    pub fn authority(&self) -> &str {
        let authority = self.server().authority();
        authority.map_or("", http::uri::Authority::as_str)
    }

    /// Sends a request on a shared connection.
    pub async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        self.complete_request(&mut request).await?;
        let span = start_client_span(&mut request);
        let sent = self.connection.send(request).await;
        record_outcome(span, &sent);
        sent.map_err(ForwardError::from)
    }

    /// Sends an upgrade request. The caller checks for status 101 and takes the upgrade
    /// from the response.
    pub async fn upgrade(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ForwardError> {
        self.complete_request(&mut request).await?;
        let span = start_client_span(&mut request);
        let sent = self.connection.upgrade(request).await;
        record_outcome(span, &sent);
        sent.map_err(ForwardError::from)
    }

    /// Completes the URI and adds our credentials.
    async fn complete_request(
        &self,
        request: &mut Request<RequestBody>,
    ) -> Result<(), ForwardError> {
        let below = request.uri().path_and_query();
        let below = below.map_or("/", PathAndQuery::as_str);
        let path_and_query: PathAndQuery = format!("{}{below}", self.base_path())
            .parse()
            .map_err(|_| invalid_request("path"))?;
        let mut parts = self.server().clone().into_parts();
        parts.path_and_query = Some(path_and_query);
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| invalid_request("address"))?;
        let authorization = self.connection.authorization_header().await;
        let authorization = authorization.map_err(|message| ForwardError {
            message,
            unprocessed: true,
        })?;
        match authorization {
            Some(authorization) => request.headers_mut().insert(AUTHORIZATION, authorization),
            None => request.headers_mut().remove(AUTHORIZATION),
        };
        Ok(())
    }
}

/// Records the response or the failure in the span of a request.
pub(super) fn record_outcome<B>(span: Option<Span>, sent: &Result<Response<B>, SendError>) {
    match (span, sent) {
        (Some(span), Ok(response)) => span.record_client_response(response.status().as_u16()),
        (Some(span), Err(failure)) => span.record_error(&failure.message),
        (None, _) => {}
    }
}

fn invalid_request(what: &str) -> ForwardError {
    ForwardError {
        message: format!("the {what} cannot be sent"),
        unprocessed: true,
    }
}
