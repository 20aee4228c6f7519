//! `portforward` of hollow pods, in which nothing listens: each connection echoes what it gets.
//!
//! The protocol is that of kubelets over SPDY (`portforward.k8s.io`): two streams for each
//! connection, one for the data and one for an error, which belong together by their request id.

use std::collections::HashMap;
use std::io;

use client::{Api, ResourcePath};
use machinery::Status;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::controller::PODS;

use super::spdy::{SpdyFrame, SpdyReader, SpdyWriter};

/// The protocol of the streams.
pub const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";
/// The most streams that are open at once.
const MAX_STREAMS: usize = 256;

/// A stream that the client has opened.
struct PortForwardStream {
    is_data: bool,
    request: String,
}

/// Fails if the pod does not run.
pub async fn check_pod_running(api: &dyn Api, namespace: &str, pod: &str) -> Result<(), Status> {
    let stored = api.get(ResourcePath::object(&PODS, namespace, pod)).await;
    let stored = stored.map_err(|e| match e.status() {
        Some(status) => status.clone(),
        None => Status::internal(e),
    })?;
    let stored = stored.value().map_err(Status::internal)?;
    match stored["status"]["phase"].as_str() {
        Some("Running") => Ok(()),
        phase => {
            let phase = phase.unwrap_or("Pending");
            let text = format!("pod {pod} is not running: it is {phase}");
            Err(Status::bad_request(text))
        }
    }
}

/// Serves the connections that are forwarded, until the client closes the session.
pub async fn run_port_forward(stream: impl AsyncRead + AsyncWrite) -> io::Result<()> {
    let (from, to) = tokio::io::split(stream);
    let mut reader = SpdyReader::new(from)?;
    let mut session = PortForwardSession {
        writer: SpdyWriter::new(to),
        streams: HashMap::new(),
    };
    while let Some(frame) = reader.next().await? {
        match frame {
            SpdyFrame::Open { stream, headers } => session.open(stream, &headers).await?,
            SpdyFrame::Data { stream, data, last } => session.echo(stream, &data, last).await?,
            SpdyFrame::Ping(id) => session.writer.pong(id).await?,
            SpdyFrame::Reset(stream) => {
                session.streams.remove(&stream);
            }
            SpdyFrame::GoAway => break,
        }
    }
    session.writer.close().await
}

struct PortForwardSession<W> {
    writer: SpdyWriter<W>,
    streams: HashMap<u32, PortForwardStream>,
}

impl<W: AsyncWrite + Unpin> PortForwardSession<W> {
    async fn open(&mut self, stream: u32, headers: &HashMap<String, String>) -> io::Result<()> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(io::Error::other("too many streams"));
        }
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        let opened = PortForwardStream {
            is_data: header("streamtype") == "data",
            request: header("requestid"),
        };
        self.streams.insert(stream, opened);
        self.writer.accept(stream).await
    }

    async fn echo(&mut self, stream: u32, data: &[u8], last: bool) -> io::Result<()> {
        let Some(request) = self.streams.get(&stream).filter(|s| s.is_data) else {
            return Ok(());
        };
        if !last {
            return self.writer.data(stream, data, false).await;
        }
        // The end of the connection: both of its streams end, the one of errors empty.
        let request = request.request.clone();
        self.writer.data(stream, data, true).await?;
        let ended: Vec<u32> = self
            .streams
            .iter()
            .filter(|(_, s)| s.request == request)
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.streams.remove(&id);
            if id != stream {
                self.writer.data(id, &[], true).await?;
            }
        }
        Ok(())
    }
}
