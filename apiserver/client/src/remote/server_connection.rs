//! How a client reaches its server: over connections of its own, or through the tunnel of an agent,
//! which adds the credentials.

use http::header::HeaderValue;
use http::{Request, Response};
use hyper::body::Incoming;

use super::body::RequestBody;
use super::config::{RestConfig, RestConfigError};
use super::pool::{ConnectionPool, ResponseBody, SendError};
use super::tls;
use super::tunnel::TunnelClient;
use crate::tasks::TaskGroup;

/// The way to one server.
pub(super) enum ServerConnection {
    Pool(ConnectionPool),
    Tunnel {
        client: TunnelClient,
        config: Box<RestConfig>,
    },
}

impl ServerConnection {
    /// `tasks` owns the connections. Nothing is dialed yet, but unusable TLS settings are an error.
    pub(super) fn new(config: RestConfig, tasks: &TaskGroup) -> Result<Self, RestConfigError> {
        tls::client_config(
            &config,
            config.auth.client_certificate.as_ref(),
            tls::ALPN_HTTP2_OR_HTTP1,
        )
        .map_err(RestConfigError)?;
        Ok(Self::Pool(ConnectionPool::new(config, tasks.child())))
    }

    /// The way to the member at the other end of a tunnel; `authority` names it.
    pub(super) fn through_tunnel(
        client: TunnelClient,
        authority: &str,
    ) -> Result<Self, RestConfigError> {
        let config = Box::new(RestConfig::new(&format!("http://{authority}"))?);
        Ok(Self::Tunnel { client, config })
    }

    pub(super) fn config(&self) -> &RestConfig {
        match self {
            Self::Pool(pool) => pool.config(),
            Self::Tunnel { config, .. } => config,
        }
    }

    /// Our own credentials.
    pub(super) async fn authorization_header(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Self::Pool(pool) => pool.credentials().authorization_header().await,
            Self::Tunnel { .. } => Ok(None),
        }
    }

    /// Drops credentials that the server has refused. Returns whether there may be others.
    pub(super) async fn refresh_credentials(&self) -> bool {
        match self {
            Self::Pool(pool) if pool.credentials().can_refresh() => {
                pool.credentials().invalidate().await;
                pool.drop_connections();
                true
            }
            _ => false,
        }
    }

    /// Sends a request on a shared connection.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        match self {
            Self::Pool(pool) => pool.send(request).await,
            Self::Tunnel { client, .. } => client.send(request).await,
        }
    }

    /// Sends an upgrade request on a connection or a stream of its own.
    pub(super) async fn upgrade(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        match self {
            Self::Pool(pool) => pool.send_on_own_connection(request).await,
            Self::Tunnel { client, .. } => client.upgrade(request).await,
        }
    }

    /// The connections of a client without a tunnel.
    #[cfg(test)]
    pub(super) fn pool(&self) -> &ConnectionPool {
        match self {
            Self::Pool(pool) => pool,
            Self::Tunnel { .. } => panic!("the client has a tunnel"),
        }
    }
}
