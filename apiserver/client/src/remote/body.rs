//! The body of a request: one buffer, or a stream that is passed through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

type Error = Box<dyn std::error::Error + Send + Sync>;

enum Inner {
    Whole(Full<Bytes>),
    Passed(UnsyncBoxBody<Bytes, Error>),
}

/// The body of a request.
pub struct Body(Inner);

impl Body {
    /// A body of one buffer.
    pub fn whole(bytes: Bytes) -> Self {
        Self(Inner::Whole(Full::new(bytes)))
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
            Inner::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Inner::Passed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(body) => body.is_end_stream(),
            Inner::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(body) => body.size_hint(),
            Inner::Passed(body) => body.size_hint(),
        }
    }
}
