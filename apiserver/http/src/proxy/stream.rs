//! Streams a member's response body to the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use client::Shutdown;
use http_body::{Body, Frame, SizeHint};
use flotilla_metrics::Counter;
use tokio::time::{Instant, timeout_at};

use crate::body::Error;

/// What ends a streamed body early.
pub(super) struct End {
    /// Deadline of the request; `None` for a long-running request.
    pub(super) deadline: Option<Instant>,
    /// Triggered when the server stops.
    pub(super) closing: Shutdown,
}

#[derive(Clone, Copy)]
enum Ended {
    Closing,
    Late,
}

impl End {
    async fn wait(self) -> Ended {
        let closed = async {
            self.closing.wait().await;
            Ended::Closing
        };
        match self.deadline {
            None => closed.await,
            Some(at) => timeout_at(at, closed).await.unwrap_or(Ended::Late),
        }
    }
}

/// Forwards frames as they come and counts their bytes. When the server stops, a body
/// of unknown length, such as a watch, ends cleanly.
pub(super) struct Passing<B> {
    body: B,
    counter: Counter,
    end: Pin<Box<dyn Future<Output = Ended> + Send>>,
    ended: Option<Ended>,
}

impl<B> Passing<B> {
    pub(super) fn new(body: B, counter: Counter, end: End) -> Self {
        Self {
            body,
            counter,
            end: Box::pin(end.wait()),
            ended: None,
        }
    }
}

impl<B> Body for Passing<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ended.is_none()
            && let Poll::Ready(end) = self.end.as_mut().poll(cx)
        {
            self.ended = Some(end);
        }
        match self.ended {
            Some(Ended::Closing) if self.body.size_hint().exact().is_none() => Poll::Ready(None),
            Some(Ended::Late) => Poll::Ready(Some(Err(
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
