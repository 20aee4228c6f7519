//! The future of the filters that change what the inner service returns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::inner_service::ServerResponse;

/// Changes the output `T` of the inner service's future.
pub(super) trait MapResult<T> {
    type Error;

    fn map_result(self, result: T) -> Result<ServerResponse, Self::Error>;
}

pin_project! {
    /// Passes the output of a future to a [`MapResult`].
    pub(super) struct MapResultFuture<F, M> {
        #[pin]
        future: F,
        map: Option<M>,
    }
}

impl<F, M> MapResultFuture<F, M> {
    pub(super) fn new(future: F, map: M) -> Self {
        Self {
            future,
            map: Some(map),
        }
    }
}

impl<F: Future, M: MapResult<F::Output>> Future for MapResultFuture<F, M> {
    type Output = Result<ServerResponse, M::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        match this.map.take() {
            Some(map) => Poll::Ready(map.map_result(result)),
            None => unreachable!("polled after completion"),
        }
    }
}
