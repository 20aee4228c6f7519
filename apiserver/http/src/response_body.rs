//! The response body that hyper sends: full bytes, an iterator of chunks, a stream of
//! watch events, or a proxied body.
//!
//! A chunk is built when the connection can take it, so a long list costs one chunk of
//! memory beside the shared objects.

use std::any::Any;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

/// Items rendered before the task yields.
pub(crate) const ITEMS_PER_YIELD: usize = 64;

/// Why a proxied body failed.
pub(crate) type ProxiedBodyError = Box<dyn std::error::Error + Send + Sync>;
/// Chunks that are built one at a time.
pub(crate) type BodyChunkIterator = Box<dyn Iterator<Item = Bytes> + Send>;
/// Chunks that become available as events arrive.
pub(crate) type BodyChunkStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

enum BodySource {
    Full(Bytes),
    Chunks {
        chunks: BodyChunkIterator,
        left: Option<u64>,
    },
    Events(BodyChunkStream),
    Proxied(UnsyncBoxBody<Bytes, ProxiedBodyError>),
}

/// The body of a response.
pub struct ServerResponseBody {
    source: BodySource,
    /// Permits and counters that are dropped when the body ends.
    guards: Vec<Box<dyn Any + Send>>,
}

impl ServerResponseBody {
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::from_source(BodySource::Full(bytes.into()))
    }

    /// `length` is the total size, when known; the chunks must sum up to it.
    pub(crate) fn chunks(chunks: BodyChunkIterator, length: Option<u64>) -> Self {
        Self::from_source(BodySource::Chunks {
            chunks,
            left: length,
        })
    }

    /// Like [`ServerResponseBody::chunks`], compressed with gzip.
    pub(crate) fn gzip(chunks: BodyChunkIterator) -> Self {
        Self::chunks(Box::new(GzipChunks::new(chunks)), None)
    }

    pub(crate) fn events(events: BodyChunkStream) -> Self {
        Self::from_source(BodySource::Events(events))
    }

    /// Passes on the body of a proxied response.
    pub fn proxied<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<ProxiedBodyError>,
    {
        use http_body_util::BodyExt;
        Self::from_source(BodySource::Proxied(body.map_err(Into::into).boxed_unsync()))
    }

    fn from_source(source: BodySource) -> Self {
        Self {
            source,
            guards: Vec::new(),
        }
    }

    /// Holds `guard` until the body ends.
    pub(crate) fn attach_guard(&mut self, guard: impl Any + Send) {
        self.guards.push(Box::new(guard));
    }

    /// Whether the whole body is in memory already.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.source, BodySource::Full(_))
    }
}

impl http_body::Body for ServerResponseBody {
    type Data = Bytes;
    type Error = ProxiedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxiedBodyError>>> {
        let next = match &mut self.source {
            BodySource::Full(bytes) if bytes.is_empty() => None,
            BodySource::Full(bytes) => Some(std::mem::take(bytes)),
            BodySource::Chunks { chunks, left } => {
                let chunk = chunks.next();
                if let (Some(left), Some(chunk)) = (left, &chunk) {
                    *left = left.saturating_sub(chunk.len() as u64);
                }
                chunk
            }
            BodySource::Events(events) => match events.as_mut().poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            BodySource::Proxied(body) => return Pin::new(body).poll_frame(cx),
        };
        if next.is_none() {
            self.guards.clear();
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Full(bytes) => bytes.is_empty(),
            BodySource::Chunks { left, .. } => *left == Some(0),
            BodySource::Events(_) => false,
            BodySource::Proxied(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodySource::Chunks {
                left: Some(left), ..
            } => SizeHint::with_exact(*left),
            BodySource::Proxied(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Compresses chunks as they are pulled.
struct GzipChunks {
    chunks: BodyChunkIterator,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipChunks {
    fn new(chunks: BodyChunkIterator) -> Self {
        // The fastest level: each response is compressed for one reader.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self {
            chunks,
            encoder: Some(encoder),
        }
    }
}

impl Iterator for GzipChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut encoder = self.encoder.take()?;
        // Writing to a vector cannot fail.
        for chunk in self.chunks.by_ref() {
            encoder.write_all(&chunk).ok()?;
            if !encoder.get_ref().is_empty() {
                let out = std::mem::take(encoder.get_mut());
                self.encoder = Some(encoder);
                return Some(out.into());
            }
        }
        encoder.finish().ok().map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::Read as _;

    #[tokio::test]
    async fn chunks_and_gzip_preserve_content() {
        let parts: Vec<Bytes> = (0..50u8).map(|n| Bytes::from(vec![n; 1000])).collect();
        let expected: Vec<u8> = parts.concat();
        let uncompressed =
            ServerResponseBody::chunks(Box::new(parts.clone().into_iter()), Some(50_000));
        assert_eq!(
            http_body::Body::size_hint(&uncompressed).exact(),
            Some(50_000)
        );
        assert_eq!(uncompressed.collect().await.unwrap().to_bytes(), expected);
        let packed = ServerResponseBody::gzip(Box::new(parts.into_iter()));
        let packed = packed.collect().await.unwrap().to_bytes();
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut out)
            .unwrap();
        assert_eq!(out, expected);
        assert!(packed.len() < 5_000);
    }
}
