//! The control plane's end of a tunnel.

use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::{MAX_TUNNEL_STREAMS, UPGRADE_METHOD_HEADER};
use crate::remote::body::RequestBody;
use crate::remote::config::Http2FlowControl;
use crate::remote::dial::{ClientConnection, handshake_http2, settings_received};
use crate::remote::pool::{ResponseBody, SendError, classify_send_error};
use crate::tasks::TaskGroup;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A reader that stops reading holds back its own stream only: the connection's window holds
/// those of all streams.
const FLOW_CONTROL: Http2FlowControl = Http2FlowControl {
    stream_window_bytes: 256 << 10,
    connection_window_bytes: (256 << 10) * MAX_TUNNEL_STREAMS,
    max_streams: MAX_TUNNEL_STREAMS as usize,
};

/// Sends requests to the agent at the other end of a tunnel. Clones are the same.
#[derive(Clone)]
pub struct TunnelClient {
    sender: http2::SendRequest<RequestBody>,
    limit: watch::Receiver<usize>,
}

impl TunnelClient {
    /// Speaks HTTP/2 on an upgraded connection, which belongs to `tasks`.
    pub async fn handshake<S>(stream: S, tasks: &TaskGroup) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = async {
            match handshake_http2(stream, FLOW_CONTROL, tasks).await? {
                ClientConnection::Http2 { sender, mut limit } => {
                    // Until then nothing says that an agent is there.
                    if !settings_received(&mut limit).await {
                        return Err("the tunnel closed before the agent's settings came".to_owned());
                    }
                    Ok(Self { sender, limit })
                }
                ClientConnection::Http1(_) => Err("the tunnel is not HTTP/2".to_owned()),
            }
        };
        let timeout = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
        timeout.map_err(|_| "the agent does not speak HTTP/2 in its tunnel".to_owned())?
    }

    /// Resolves when the connection has ended.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut limit = self.limit.clone();
        async move { while limit.changed().await.is_ok() {} }
    }

    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let response = self.send_on_stream(request).await?;
        Ok(response.map(ResponseBody::without_permit))
    }

    /// Sends an upgrade request as an extended CONNECT. The response is that of HTTP/1.1.
    pub(crate) async fn upgrade(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let protocol = request.headers_mut().remove(UPGRADE);
        let protocol = protocol.unwrap_or_else(|| HeaderValue::from_static(""));
        let name = protocol.to_str().unwrap_or_default();
        request.extensions_mut().insert(Protocol::from(name));
        let method = HeaderValue::from_str(request.method().as_str());
        let headers = request.headers_mut();
        headers.remove(CONNECTION);
        if let Ok(method) = method {
            headers.insert(UPGRADE_METHOD_HEADER, method);
        }
        *request.method_mut() = Method::CONNECT;
        let mut response = self.send_on_stream(request).await?;
        if response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        Ok(response)
    }

    async fn send_on_stream(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        request.headers_mut().remove(HOST);
        let sent = self.sender.clone().try_send_request(request).await;
        sent.map_err(|failed| classify_send_error(failed).0)
    }
}
