//! Forwards the requests of others: headers as given, body and response streamed,
//! upgrades on connections of their own.
//!
//! The URI of a request is a path below the server's address. Our own credentials are
//! added; a request that the server may have seen is not repeated.

use http::header::{AUTHORIZATION, HOST};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;

use super::body::Body;
use super::config::{Config, ConfigError};
use super::pool::{Failure, Pool, Reply};
use super::tls;
use crate::tasks::Tasks;

/// The request got no response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Unreachable {
    pub message: String,
    /// The server did not process the request.
    pub unsent: bool,
}

impl From<Failure> for Unreachable {
    fn from(failure: Failure) -> Self {
        Self {
            unsent: failure.not_begun(),
            message: failure.message,
        }
    }
}

/// Forwards requests to one server.
pub struct Forwarder {
    pool: Pool,
}

impl Forwarder {
    /// `tasks` owns the connections; nothing is dialed yet.
    pub fn new(config: Config, tasks: &Tasks) -> Result<Self, ConfigError> {
        tls::client(&config, config.auth.identity.as_ref(), tls::ANY).map_err(ConfigError)?;
        Ok(Self {
            pool: Pool::new(config, tasks.child()),
        })
    }

    /// The base path of the server, without a trailing slash.
    pub fn base(&self) -> &str {
        self.pool.config().server.path().trim_end_matches('/')
    }

    /// `host:port` of the server.
    pub fn authority(&self) -> &str {
        let authority = self.pool.config().server.authority();
        authority.map_or("", http::uri::Authority::as_str)
    }

    /// Sends a request on a shared connection.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Reply>, Unreachable> {
        self.address(&mut request).await?;
        let sent = self.pool.send(request).await;
        sent.map_err(Unreachable::from)
    }

    /// Sends an upgrade request. The caller checks for status 101 and takes the upgrade
    /// from the response.
    pub async fn upgrade(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Unreachable> {
        self.address(&mut request).await?;
        // HTTP/1.1 has the host in a header and only the path in the request line.
        let host = HeaderValue::from_str(self.authority()).map_err(|_| unusable("host"))?;
        request.headers_mut().insert(HOST, host);
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        let sent = self.pool.send_alone(request).await;
        sent.map_err(Unreachable::from)
    }

    /// Completes the URI and adds our credentials.
    async fn address(&self, request: &mut Request<Body>) -> Result<(), Unreachable> {
        let server = &self.pool.config().server;
        let below = request.uri().path_and_query();
        let below = below.map_or("/", PathAndQuery::as_str);
        let whole: PathAndQuery = format!("{}{below}", self.base())
            .parse()
            .map_err(|_| unusable("path"))?;
        let mut parts = server.clone().into_parts();
        parts.path_and_query = Some(whole);
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| unusable("address"))?;
        let ours = self.pool.credentials().header().await;
        let ours = ours.map_err(|message| Unreachable {
            message,
            unsent: true,
        })?;
        match ours {
            Some(ours) => request.headers_mut().insert(AUTHORIZATION, ours),
            None => request.headers_mut().remove(AUTHORIZATION),
        };
        Ok(())
    }
}

fn unusable(what: &str) -> Unreachable {
    Unreachable {
        message: format!("the {what} cannot be sent"),
        unsent: true,
    }
}
