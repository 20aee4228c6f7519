//! An HTTP/2 connection with many concurrent requests.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::Kubeconfig;

/// A connection; its clones share it.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Empty<Bytes>>,
    address: String,
    /// The value of `authorization`.
    authorization: Option<String>,
}

impl Http2Connection {
    /// Connects; a task in `tasks` drives the connection.
    pub(crate) async fn open(
        kubeconfig: &Kubeconfig,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(&kubeconfig.address).await?;
        socket.set_nodelay(true)?;
        let host = kubeconfig.address.rsplit_once(':').context("no port")?.0;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(kubeconfig.tls_config("h2"))
            .connect(name, socket)
            .await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(stream))
            .await?;
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            address: kubeconfig.address.clone(),
            authorization: kubeconfig
                .token
                .as_ref()
                .map(|token| format!("Bearer {token}")),
        })
    }

    /// GET; returns as soon as the head of the response has arrived.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let mut request = Request::get(format!("https://{}{path}", self.address));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Empty::new())?;
        Ok(self.sender.send_request(request).await?)
    }
}
