//! The network's part of a write fence: checks right before each write of a connection whether
//! this process may still send.
//!
//! A request waits in its connection after the call was allowed, and the process may be suspended
//! meanwhile. The fence of leaders, `flotilla_runtime::LeaderFence`, has both checks and says what
//! each is for. A write that is refused ends the connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A predicate evaluated before every write to the network; must be quick. Clones are the
/// same fence.
#[derive(Clone)]
pub struct NetworkSendFence(Arc<dyn Fn() -> bool + Send + Sync>);

impl NetworkSendFence {
    pub fn new(open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl fmt::Debug for NetworkSendFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetworkSendFence")
            .field(&(self.0)())
            .finish()
    }
}

/// A stream behind a fence, or without one.
pub(super) struct FencedStream<S> {
    pub(super) stream: S,
    pub(super) fence: Option<NetworkSendFence>,
}

impl<S: AsyncRead + Unpin> AsyncRead for FencedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FencedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.fence.as_ref().is_some_and(|gate| !(gate.0)()) {
            let text = "the write fence is closed";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, text)));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_closed_fence_refuses_writes() {
        let (stream, mut peer) = tokio::io::duplex(64);
        let open = Arc::new(AtomicBool::new(true));
        let is_open = Arc::clone(&open);
        let mut gated = FencedStream {
            stream,
            fence: Some(NetworkSendFence::new(move || {
                is_open.load(Ordering::SeqCst)
            })),
        };
        gated.write_all(b"before").await.unwrap();
        open.store(false, Ordering::SeqCst);
        assert!(gated.write_all(b"after").await.is_err());
        drop(gated);
        let mut arrived = String::new();
        peer.read_to_string(&mut arrived).await.unwrap();
        assert_eq!(arrived, "before");
    }
}
