//! The body of a request: encoded pieces, or a stream that is passed through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::write_body::EncodedObjectBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

enum RequestBodyKind {
    Encoded(EncodedBodyPieces),
    Streamed(UnsyncBoxBody<Bytes, BoxError>),
}

struct EncodedBodyPieces {
    rest: std::vec::IntoIter<Bytes>,
    /// Bytes of the pieces that are still to be sent.
    remaining_bytes: u64,
}

impl EncodedBodyPieces {
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.rest.next()?;
        self.remaining_bytes -= piece.len() as u64;
        Some(piece)
    }
}

/// The body of a request.
pub struct RequestBody(RequestBodyKind);

impl RequestBody {
    /// A body of one buffer.
    pub fn full(bytes: Bytes) -> Self {
        Self::encoded(bytes.into())
    }

    /// The pieces are sent as they are; nothing is copied.
    pub(super) fn encoded(body: EncodedObjectBody) -> Self {
        let pieces = body.into_pieces();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let rest = pieces.into_iter();
        Self(RequestBodyKind::Encoded(EncodedBodyPieces {
            rest,
            remaining_bytes: left,
        }))
    }

    /// A body that is streamed as it arrives.
    pub fn streamed<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(RequestBodyKind::Streamed(
            body.map_err(Into::into).boxed_unsync(),
        ))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            RequestBodyKind::Encoded(pieces) => {
                Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece))))
            }
            RequestBodyKind::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            RequestBodyKind::Encoded(pieces) => pieces.remaining_bytes == 0,
            RequestBodyKind::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            RequestBodyKind::Encoded(pieces) => SizeHint::with_exact(pieces.remaining_bytes),
            RequestBodyKind::Streamed(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use http_body::Body as _;

    #[test]
    fn pieces_are_sent_as_they_are_and_their_length_is_known() {
        let pieces = [Bytes::from("{\"a\":"), Bytes::from("1}")];
        let mut body = RequestBody::encoded(pieces.iter().cloned().collect());
        for (piece, left) in pieces.iter().zip([7, 2]) {
            assert_eq!(body.size_hint().exact(), Some(left));
            assert!(!body.is_end_stream());
            let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap().as_ptr(), piece.as_ptr());
        }
        assert!(body.is_end_stream());
        assert!(body.frame().now_or_never().unwrap().is_none());
        assert!(RequestBody::full(Bytes::new()).is_end_stream());
    }
}
