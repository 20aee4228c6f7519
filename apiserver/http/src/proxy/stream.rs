//! Streams a member's response body to the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use client::ShutdownToken;
use flotilla_metrics::Counter;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

use crate::response_body::ProxiedBodyError;

/// The events that end a streamed body early.
pub(super) struct BodyCutoff {
    /// Deadline of the request; `None` for a long-running request.
    pub(super) deadline: Option<Instant>,
    /// Triggered when the server stops.
    pub(super) shutdown: ShutdownToken,
}

#[derive(Clone, Copy)]
enum CutoffReason {
    ServerStopping,
    DeadlineExceeded,
}

impl BodyCutoff {
    async fn wait_for_cutoff(self) -> CutoffReason {
        let closed = async {
            self.shutdown.wait().await;
            CutoffReason::ServerStopping
        };
        match self.deadline {
            None => closed.await,
            Some(at) => timeout_at(at, closed)
                .await
                .unwrap_or(CutoffReason::DeadlineExceeded),
        }
    }
}

/// Forwards frames as they come and counts their bytes. When the server stops, a body
/// of unknown length, such as a watch, ends cleanly.
pub(super) struct ForwardedBody<B> {
    body: B,
    counter: Counter,
    cutoff: Pin<Box<dyn Future<Output = CutoffReason> + Send>>,
    cutoff_reason: Option<CutoffReason>,
}

impl<B> ForwardedBody<B> {
    pub(super) fn new(body: B, counter: Counter, end: BodyCutoff) -> Self {
        Self {
            body,
            counter,
            cutoff: Box::pin(end.wait_for_cutoff()),
            cutoff_reason: None,
        }
    }
}

impl<B> Body for ForwardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<ProxiedBodyError>,
{
    type Data = Bytes;
    type Error = ProxiedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxiedBodyError>>> {
        if self.cutoff_reason.is_none()
            && let Poll::Ready(end) = self.cutoff.as_mut().poll(cx)
        {
            self.cutoff_reason = Some(end);
        }
        match self.cutoff_reason {
            Some(CutoffReason::ServerStopping) if self.body.size_hint().exact().is_none() => {
                Poll::Ready(None)
            }
            Some(CutoffReason::DeadlineExceeded) => Poll::Ready(Some(Err(
                "request did not complete within the allotted timeout".into(),
            ))),
            _ => {
                let polled = Pin::new(&mut self.body).poll_frame(cx);
                if let Poll::Ready(Some(Ok(frame))) = &polled {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    self.counter.inc_by(length as u64);
                }
                polled.map_err(Into::into)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
