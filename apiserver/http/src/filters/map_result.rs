//! The layer of the filters that change what the inner service returns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::service::Service;
use pin_project_lite::pin_project;
use tower::Layer;

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

/// Makes the [`MapResult`] of each request.
pub(super) trait MakeMapResult<R> {
    type MapResult;

    fn make_map_result(&self, request: &R) -> Self::MapResult;
}

/// The layer of a filter that is a [`MakeMapResult`].
pub(super) struct MapResultLayer<M>(pub(super) M);

impl<S, M: Clone> Layer<S> for MapResultLayer<M> {
    type Service = MapResultService<S, M>;

    fn layer(&self, inner: S) -> MapResultService<S, M> {
        MapResultService {
            inner,
            make: self.0.clone(),
        }
    }
}

pub(super) struct MapResultService<S, M> {
    inner: S,
    make: M,
}

impl<S, M, R> Service<R> for MapResultService<S, M>
where
    S: Service<R, Response = ServerResponse>,
    M: MakeMapResult<R>,
    M::MapResult: MapResult<Result<ServerResponse, S::Error>>,
{
    type Response = ServerResponse;
    type Error = <M::MapResult as MapResult<Result<ServerResponse, S::Error>>>::Error;
    type Future = MapResultFuture<S::Future, M::MapResult>;

    fn call(&self, request: R) -> Self::Future {
        let map = self.make.make_map_result(&request);
        MapResultFuture::new(self.inner.call(request), map)
    }
}
