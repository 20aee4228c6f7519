//! The layer of the filters that decide asynchronously whether a request passes.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};

/// Passes on a request, with what it found out, or refuses it (tower's `AsyncPredicate`).
pub(super) trait AsyncCheck<R>: Send + Sync {
    type Checked: Send;

    fn check(&self, request: R) -> impl Future<Output = Result<Self::Checked, Status>> + Send;
}

/// The layer of a filter that is an [`AsyncCheck`].
pub(super) struct AsyncCheckLayer<C>(Arc<C>);

impl<C> AsyncCheckLayer<C> {
    pub(super) fn new(check: C) -> Self {
        Self(Arc::new(check))
    }
}

impl<S, C> Layer<S> for AsyncCheckLayer<C> {
    type Service = AsyncCheckService<S, C>;

    fn layer(&self, inner: S) -> AsyncCheckService<S, C> {
        AsyncCheckService {
            inner: Arc::new(inner),
            check: Arc::clone(&self.0),
        }
    }
}

pub(super) struct AsyncCheckService<S, C> {
    inner: Arc<S>,
    check: Arc<C>,
}

impl<S, C, R> Service<R> for AsyncCheckService<S, C>
where
    C: AsyncCheck<R> + 'static,
    S: InnerService<C::Checked, Status, Future: Send> + Send + Sync + 'static,
    R: Send + 'static,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ServerResponse, Status>>;

    fn call(&self, request: R) -> Self::Future {
        let check = Arc::clone(&self.check);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let checked = check.check(request).await?;
            inner.call(checked).await
        })
    }
}
