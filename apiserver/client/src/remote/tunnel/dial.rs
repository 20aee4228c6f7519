//! Opens tunnels from the agent to the control plane.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;

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

/// An accepted connection, on which the agent serves HTTP/2.
pub struct TunnelStream {
    /// The replica of the control plane at the other end.
    pub replica: String,
    pub(super) stream: Upgraded,
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

    async fn open(&self, attached: &[String]) -> Result<TunnelStream, TunnelDialError> {
        let fail = |why: &dyn std::fmt::Display| TunnelDialError::Failed(why.to_string());
        let mut request = Request::new(RequestBody::full(Bytes::new()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.parse().map_err(|e| fail(&e))?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_PROTOCOL));
        for replica in attached {
            let replica = HeaderValue::from_str(replica).map_err(|e| fail(&e))?;
            headers.append(TUNNEL_REPLICA_HEADER, replica);
        }
        let sent = self.control_plane.upgrade(request).await;
        let mut response = sent.map_err(|e| fail(&e))?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let replica = replica_of(response.headers());
                let upgraded = hyper::upgrade::on(&mut response).await;
                Ok(TunnelStream {
                    replica,
                    stream: upgraded.map_err(|e| fail(&e))?,
                })
            }
            StatusCode::CONFLICT => Err(TunnelDialError::AlreadyAttached),
            _ => Err(TunnelDialError::Failed(refusal(response).await)),
        }
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
