//! Follows a resource in one namespace if the user may not list it in all of them, and as long as the
//! user may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use client::{Api, ApiCall, ApiReply, Error, ResourcePath, Result};
use machinery::Status;

/// The namespaces whose objects are followed.
pub(super) struct ListScope {
    /// Empty: there is none to which a list can be limited.
    namespace: Arc<str>,
    is_limited: AtomicBool,
}

impl ListScope {
    pub(super) fn new(namespace: &Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            namespace: Arc::clone(namespace),
            is_limited: AtomicBool::new(false),
        })
    }

    /// Says, if it is so, that the objects of other namespaces are missing.
    pub(super) fn remark(&self, resource: &str) -> Option<String> {
        let namespace = &self.namespace;
        self.is_limited.load(Ordering::Relaxed).then(|| {
            format!("only {resource} of the namespace {namespace} are shown, since those of all namespaces cannot be listed")
        })
    }
}

/// The client of a reflector that lists a resource in all namespaces.
pub(super) struct ScopedApi {
    pub(super) api: Arc<dyn Api>,
    pub(super) scope: Arc<ListScope>,
}

impl ScopedApi {
    fn limited<'p>(&'p self, at: ResourcePath<'p>) -> ResourcePath<'p> {
        ResourcePath {
            namespace: &self.scope.namespace,
            ..at
        }
    }
}

#[async_trait]
impl Api for ScopedApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let is_limited = &self.scope.is_limited;
        match call {
            ApiCall::List(at, options) => {
                let refusal = match self.api.list(at, options).await {
                    Err(error) if error.is_forbidden() => error,
                    result => {
                        is_limited.store(false, Ordering::Relaxed);
                        return result.map(ApiReply::from);
                    }
                };
                let list = match self.scope.namespace.is_empty() {
                    true => Err(refusal.clone()),
                    false => self.api.list(self.limited(at), options).await,
                };
                is_limited.store(list.is_ok(), Ordering::Relaxed);
                // Of a resource without namespaces too, the first refusal says what is missing.
                list.map(ApiReply::from).map_err(|_| refusal)
            }
            ApiCall::Watch(at, options) => {
                let at = match is_limited.load(Ordering::Relaxed) {
                    true => self.limited(at),
                    false => at,
                };
                let watch = self.api.watch(at, options).await;
                watch.map(ApiReply::from).map_err(list_again)
            }
            call => self.api.call(call).await,
        }
    }
}

/// After a refused watch, the list decides what the user may still see.
fn list_again(error: Error) -> Error {
    match error.is_forbidden() {
        true => Status::expired(error.to_string()).into(),
        false => error,
    }
}
