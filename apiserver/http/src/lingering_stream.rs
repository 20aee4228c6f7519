//! Closes a connection so that a client which is still sending reads its answer, as Go's `net/http` does: a
//! socket that is closed while data arrives resets the connection, and the client finds a broken pipe
//! instead of the answer. The answer ends first, then what still arrives is discarded for a while.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may be silent before the connection is closed.
const MAX_SILENCE: Duration = Duration::from_millis(500);
/// How long a client may go on sending.
const MAX_DURATION: Duration = Duration::from_secs(5);
/// How much a client may go on sending.
const MAX_DISCARDED_BYTES: usize = 32 << 20;

/// A stream whose shutdown waits for the client, if `lingers` is set by then.
pub(crate) struct LingeringStream<S> {
    stream: S,
    lingers: Arc<AtomicBool>,
    /// Set after the shutdown of the stream itself.
    linger: Option<Linger>,
}

struct Linger {
    /// When the connection is closed, unless more data arrives.
    silence: Pin<Box<Sleep>>,
    end: Instant,
    discarded: usize,
}

impl<S> LingeringStream<S> {
    pub(crate) fn new(stream: S, lingers: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            lingers,
            linger: None,
        }
    }
}

impl Linger {
    fn begin() -> Self {
        Self {
            silence: Box::pin(sleep(MAX_SILENCE)),
            end: Instant::now() + MAX_DURATION,
            discarded: 0,
        }
    }

    /// Discards data. Ready at the end of the stream, or when the client has had its time.
    fn poll_discard<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut buffer = [0; 8 << 10];
        loop {
            let mut data = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut *stream).poll_read(cx, &mut data);
            let length = match read {
                Poll::Pending => return self.silence.as_mut().poll(cx),
                Poll::Ready(Ok(())) => data.filled().len(),
                Poll::Ready(Err(_)) => 0,
            };
            let now = Instant::now();
            self.discarded += length;
            if length == 0 || self.discarded > MAX_DISCARDED_BYTES || now >= self.end {
                return Poll::Ready(());
            }
            self.silence.as_mut().reset(self.end.min(now + MAX_SILENCE));
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            stream,
            lingers,
            linger,
        } = self.get_mut();
        let linger = match linger {
            Some(linger) => linger,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
                if !lingers.load(Ordering::Relaxed) {
                    return Poll::Ready(Ok(()));
                }
                linger.insert(Linger::begin())
            }
        };
        linger.poll_discard(stream, cx).map(Ok)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    fn streams(lingers: bool) -> (LingeringStream<DuplexStream>, DuplexStream) {
        let (server, client) = tokio::io::duplex(1 << 10);
        let server = LingeringStream::new(server, Arc::new(lingers.into()));
        (server, client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_still_sends_reads_its_answer() {
        let (mut server, mut client) = streams(true);
        let answer = async {
            server.write_all(b"413").await.unwrap();
            server.shutdown().await.unwrap();
            drop(server);
        };
        let request = async {
            client.write_all(&vec![0; 1 << 20]).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            drop(client);
            answer
        };
        assert_eq!(tokio::join!(answer, request).1, "413");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_waited_for_within_bounds() {
        for (lingers, interval, expected) in [
            (false, None, Duration::ZERO),
            (true, None, MAX_SILENCE),
            (true, Some(MAX_SILENCE / 2), MAX_DURATION),
            (true, Some(2 * MAX_SILENCE), MAX_SILENCE),
        ] {
            let (mut server, mut client) = streams(lingers);
            let begun = Instant::now();
            let send = async {
                loop {
                    sleep(interval.unwrap_or(Duration::MAX)).await;
                    client.write_all(b"x").await.unwrap();
                }
            };
            tokio::select! {
                closed = server.shutdown() => closed.unwrap(),
                () = send => {}
            }
            let took = begun.elapsed();
            let tolerance = Duration::from_millis(5);
            assert!(took >= expected && took < expected + tolerance, "{took:?}");
        }
    }
}
