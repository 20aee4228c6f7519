//! The body of a request: encoded pieces, or a stream that is passed through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::encoded::EncodedBody;

type Error = Box<dyn std::error::Error + Send + Sync>;

enum Inner {
    Encoded(Pieces),
    Passed(UnsyncBoxBody<Bytes, Error>),
}

struct Pieces {
    rest: std::vec::IntoIter<Bytes>,
    /// Bytes of the pieces that are still to be sent.
    left: u64,
}

impl Pieces {
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.rest.next()?;
        self.left -= piece.len() as u64;
        Some(piece)
    }
}

/// The body of a request.
pub struct Body(Inner);

impl Body {
    /// A body of one buffer.
    pub fn whole(bytes: Bytes) -> Self {
        Self::encoded(bytes.into())
    }

    /// The pieces are sent as they are; nothing is copied.
    pub(super) fn encoded(body: EncodedBody) -> Self {
        let pieces = body.into_pieces();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let rest = pieces.into_iter();
        Self(Inner::Encoded(Pieces { rest, left }))
    }

    /// A body that is streamed as it arrives.
    pub fn passed<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Error>,
    {
        Self(Inner::Passed(body.map_err(Into::into).boxed_unsync()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.0 {
            Inner::Encoded(pieces) => {
                Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece))))
            }
            Inner::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Encoded(pieces) => pieces.left == 0,
            Inner::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Encoded(pieces) => SizeHint::with_exact(pieces.left),
            Inner::Passed(body) => body.size_hint(),
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
        let mut body = Body::encoded(pieces.iter().cloned().collect());
        for (piece, left) in pieces.iter().zip([7, 2]) {
            assert_eq!(body.size_hint().exact(), Some(left));
            assert!(!body.is_end_stream());
            let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap().as_ptr(), piece.as_ptr());
        }
        assert!(body.is_end_stream());
        assert!(body.frame().now_or_never().unwrap().is_none());
        assert!(Body::whole(Bytes::new()).is_end_stream());
    }
}
