//! Opens tunnels from the agent to the control plane.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::websocket::{WebSocketRole, is_accepted, request_websocket, websocket_byte_stream};
use super::{TUNNEL_PROTOCOL, TUNNEL_REPLICA_HEADER};
use crate::remote::body::RequestBody;
use crate::remote::config::{RestConfig, RestConfigError};
use crate::remote::forward::RequestForwarder;
use crate::remote::status_from_response;
use crate::tasks::TaskGroup;

const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Why no tunnel was opened.
#[derive(Debug, thiserror::Error)]
pub enum TunnelDialError {
    /// The replica that answered has a tunnel of this agent.
    #[error("the replica has a tunnel of this agent already")]
    AlreadyAttached,
    #[error("{0}")]
    Failed(String),
}

/// Opens tunnels to the replicas of one control plane.
pub struct TunnelDialer {
    control_plane: RequestForwarder,
    path: String,
}

/// How the bytes of a tunnel are carried after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelFraming {
    Plain,
    WebSocket,
}

/// Why the upgrade failed.
enum UpgradeError {
    /// The response has this code.
    Refused(StatusCode, String),
    Failed(String),
}

impl UpgradeError {
    fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    /// Whether a proxy may have refused the upgrade, or removed it from the request.
    fn may_be_of_proxy(&self) -> bool {
        let Self::Refused(code, _) = self else {
            return false;
        };
        !matches!(
            *code,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::CONFLICT
                | StatusCode::TOO_MANY_REQUESTS
        )
    }
}

impl From<UpgradeError> for TunnelDialError {
    fn from(error: UpgradeError) -> Self {
        match error {
            UpgradeError::Refused(StatusCode::CONFLICT, _) => Self::AlreadyAttached,
            UpgradeError::Refused(_, message) | UpgradeError::Failed(message) => {
                Self::Failed(message)
            }
        }
    }
}

/// The bytes of a tunnel, whatever its framing.
pub(super) trait TunnelBytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> TunnelBytes for T {}

/// An accepted connection, on which the agent serves HTTP/2.
pub struct TunnelStream {
    /// The replica of the control plane at the other end.
    pub replica: String,
    pub(super) stream: Box<dyn TunnelBytes>,
}

impl TunnelDialer {
    /// `path` is that of the endpoint for tunnels; `tasks` owns the connections.
    pub fn new(
        control_plane: RestConfig,
        path: &str,
        tasks: &TaskGroup,
    ) -> Result<Self, RestConfigError> {
        Ok(Self {
            control_plane: RequestForwarder::new(control_plane, tasks)?,
            path: path.to_owned(),
        })
    }

    /// Opens a tunnel to a replica that is not among `attached`.
    pub async fn dial(&self, attached: &[String]) -> Result<TunnelStream, TunnelDialError> {
        let opened = tokio::time::timeout(DIAL_TIMEOUT, self.open(attached)).await;
        opened.unwrap_or_else(|_| {
            let seconds = DIAL_TIMEOUT.as_secs();
            Err(TunnelDialError::Failed(format!(
                "no tunnel within {seconds} s"
            )))
        })
    }

    /// Tries a WebSocket if a proxy may have refused the plain upgrade. The error is that of
    /// the plain one.
    async fn open(&self, attached: &[String]) -> Result<TunnelStream, TunnelDialError> {
        let rejection = match self.upgrade(attached, TunnelFraming::Plain).await {
            Ok(tunnel) => return Ok(tunnel),
            Err(error) => error,
        };
        if !rejection.may_be_of_proxy() {
            return Err(rejection.into());
        }
        match self.upgrade(attached, TunnelFraming::WebSocket).await {
            Err(error @ UpgradeError::Refused(StatusCode::CONFLICT, _)) => Err(error.into()),
            other => other.map_err(|_| rejection.into()),
        }
    }

    async fn upgrade(
        &self,
        attached: &[String],
        framing: TunnelFraming,
    ) -> Result<TunnelStream, UpgradeError> {
        let request = self.upgrade_request(attached, framing)?;
        let requested = request.headers().clone();
        let sent = self.control_plane.upgrade(request).await;
        let mut response = sent.map_err(UpgradeError::failed)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = response.status();
            return Err(UpgradeError::Refused(code, refusal(response).await));
        }
        let replica = replica_of(response.headers());
        let accepted = response.headers().clone();
        let upgraded = hyper::upgrade::on(&mut response).await;
        let stream = TokioIo::new(upgraded.map_err(UpgradeError::failed)?);
        let stream: Box<dyn TunnelBytes> = match framing {
            TunnelFraming::Plain => Box::new(stream),
            TunnelFraming::WebSocket if is_accepted(&requested, &accepted) => {
                Box::new(websocket_byte_stream(stream, WebSocketRole::Client).await)
            }
            TunnelFraming::WebSocket => {
                return Err(UpgradeError::failed(
                    "the WebSocket handshake is not answered",
                ));
            }
        };
        Ok(TunnelStream { replica, stream })
    }

    fn upgrade_request(
        &self,
        attached: &[String],
        framing: TunnelFraming,
    ) -> Result<Request<RequestBody>, UpgradeError> {
        let mut request = Request::new(RequestBody::full(Bytes::new()));
        *request.uri_mut() = self.path.parse().map_err(UpgradeError::failed)?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        for replica in attached {
            let replica = HeaderValue::from_str(replica).map_err(UpgradeError::failed)?;
            headers.append(TUNNEL_REPLICA_HEADER, replica);
        }
        match framing {
            TunnelFraming::Plain => {
                headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_PROTOCOL));
                *request.method_mut() = Method::POST;
            }
            TunnelFraming::WebSocket => {
                request_websocket(&mut request).map_err(UpgradeError::Failed)?;
            }
        }
        Ok(request)
    }
}

fn replica_of(headers: &HeaderMap) -> String {
    let named = headers.get(TUNNEL_REPLICA_HEADER);
    let named = named.and_then(|v| v.to_str().ok());
    named.unwrap_or_default().to_owned()
}

async fn refusal(response: Response<Incoming>) -> String {
    let code = response.status();
    let body = Limited::new(response.into_body(), MAX_REFUSAL_BYTES);
    let body = body.collect().await.map(|body| body.to_bytes());
    status_from_response(code, &body.unwrap_or_default()).message
}
