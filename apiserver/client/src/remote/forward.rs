//! Forwards the requests of others: headers as given, body and response streamed,
//! upgrades on connections of their own.
//!
//! The URI of a request is a path below the server's address. Our own credentials are
//! added; a request that the server may have seen is not repeated.

use bytes::Bytes;
use flotilla_tracing::{Span, start_client_span};
use http::header::{ACCEPT, AUTHORIZATION};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use machinery::Status;

use super::body::RequestBody;
use super::config::{RestConfig, RestConfigError};
use super::pool::{ConnectionPool, ResponseBody, SendError};
use super::request::IMPERSONATE_USER;
use super::tls;
use super::tunnel::TunnelClient;
use crate::api::{self, Error};
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

/// How a server is reached.
enum ForwardTransport {
    Pool(ConnectionPool),
    /// Through the tunnel of an agent, which adds the credentials.
    Tunnel {
        client: TunnelClient,
        server: Uri,
    },
}

/// Forwards requests to one server.
pub struct RequestForwarder {
    transport: ForwardTransport,
}

impl RequestForwarder {
    /// `tasks` owns the connections; nothing is dialed yet.
    pub fn new(config: RestConfig, tasks: &TaskGroup) -> Result<Self, RestConfigError> {
        tls::client_config(
            &config,
            config.auth.client_certificate.as_ref(),
            tls::ALPN_HTTP2_OR_HTTP1,
        )
        .map_err(RestConfigError)?;
        Ok(Self {
            transport: ForwardTransport::Pool(ConnectionPool::new(config, tasks.child())),
        })
    }

    /// Forwards to the member at the other end of a tunnel; `authority` names it.
    pub fn through_tunnel(client: TunnelClient, authority: &str) -> Result<Self, RestConfigError> {
        let server = Uri::builder()
            .scheme("http")
            .authority(authority)
            .path_and_query("/");
        let server = server.build().map_err(|e| RestConfigError(e.to_string()))?;
        Ok(Self {
            transport: ForwardTransport::Tunnel { client, server },
        })
    }

    fn server(&self) -> &Uri {
        match &self.transport {
            ForwardTransport::Pool(pool) => &pool.config().server,
            ForwardTransport::Tunnel { server, .. } => server,
        }
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
        let sent = match &self.transport {
            ForwardTransport::Pool(pool) => pool.send(request).await,
            ForwardTransport::Tunnel { client, .. } => client.send(request).await,
        };
        record_outcome(span, &sent);
        sent.map_err(ForwardError::from)
    }

    /// GET of a path below the server's address, as a user whom the server lets us be. Fails as soon
    /// as the body has more than `most` bytes. The body of a failure is not read.
    pub async fn get_as(&self, user: &str, path: &str, most: usize) -> api::Result<Bytes> {
        let request = Request::get(path)
            .header(IMPERSONATE_USER, user)
            .header(ACCEPT, "application/json")
            .body(RequestBody::full(Bytes::new()))
            .map_err(|error| Error::Protocol(error.to_string()))?;
        let sent = self.send(request).await;
        let response = sent.map_err(|error| Error::Transport {
            host: self.authority().to_owned(),
            message: error.message,
        })?;
        let code = response.status();
        if code != StatusCode::OK {
            let text = format!("the server answered with {code}");
            return Err(Status::failure(code.as_u16(), "", text).into());
        }
        let body = Limited::new(response.into_body(), most).collect().await;
        let body = body.map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(body.to_bytes())
    }

    /// Sends an upgrade request. The caller checks for status 101 and takes the upgrade
    /// from the response.
    pub async fn upgrade(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ForwardError> {
        self.complete_request(&mut request).await?;
        let span = start_client_span(&mut request);
        let sent = match &self.transport {
            ForwardTransport::Pool(pool) => pool.send_on_own_connection(request).await,
            ForwardTransport::Tunnel { client, .. } => client.upgrade(request).await,
        };
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
        let authorization = match &self.transport {
            ForwardTransport::Pool(pool) => pool.credentials().authorization_header().await,
            ForwardTransport::Tunnel { .. } => Ok(None),
        };
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
