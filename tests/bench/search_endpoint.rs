//! Serves the search over a pipe in this process, so that a list is timed as its client
//! receives it.

use std::sync::Arc;

use anyhow::ensure;
use auth::rbac::RbacAuthorizer;
use bytes::Bytes;
use client::ShutdownToken;
use flotilla_http::{
    MemberResourceReader, MemberSearch, SubresourceConnectRequest, SubresourceConnector,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machinery::UserInfo;
use machinery::time::SystemClock;
use members::MemberResourceCache;
use registry::{Registry, RegistryOptions};
use storage::{EmbeddedStore, EmbeddedStoreOptions};
use watchcache::{WatchCacheConfig, WatchCaches};

/// About what the socket of a connection holds.
const PIPE_BYTES: usize = 256 * 1024;

/// A connection to the search.
pub(crate) struct SearchConnection(SendRequest<Empty<Bytes>>);

impl SearchConnection {
    /// Serves the objects of the cache to an administrator.
    pub(crate) async fn open(cache: Arc<dyn MemberResourceCache>) -> anyhow::Result<Self> {
        let search = MemberSearch::new(reader(cache)?, "api");
        let service = service_fn(move |request: Request<Incoming>| {
            let search = Arc::clone(&search);
            async move {
                let response = search.connect(search_request(request)).await;
                response.map_err(|status| std::io::Error::other(status.message))
            }
        });
        let (here, there) = tokio::io::duplex(PIPE_BYTES);
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(server.serve_connection(TokioIo::new(there), service));
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(here)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Requests all cached objects of a core resource; returns the bytes of the list.
    pub(crate) async fn list(&mut self, resource: &str) -> anyhow::Result<usize> {
        let request = Request::get(format!("/v1/{resource}")).body(Empty::new())?;
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        ensure!(response.status() == StatusCode::OK, "{response:?}");
        let (mut body, mut received) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            received += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(received)
    }
}

/// Reads the cache with the rights of a control plane that has no rules.
fn reader(cache: Arc<dyn MemberResourceCache>) -> anyhow::Result<Arc<MemberResourceReader>> {
    let store = Arc::new(EmbeddedStore::in_memory(EmbeddedStoreOptions::default())?);
    let caches = WatchCaches::new(store.clone(), WatchCacheConfig::default());
    let admission = admission::AdmissionChain::new(admission::AdmissionChainOptions::default());
    let options = RegistryOptions::new(Arc::new(admission));
    Ok(MemberResourceReader::new(
        cache,
        RbacAuthorizer::new(),
        Registry::new(store, caches, options),
        Arc::new(SystemClock),
    ))
}

fn search_request(request: Request<Incoming>) -> SubresourceConnectRequest {
    SubresourceConnectRequest {
        user: Arc::new(UserInfo::internal()),
        namespace: String::new(),
        name: "cache".to_owned(),
        subpath: request.uri().path().to_owned(),
        deadline: None,
        shutdown: ShutdownToken::new(),
        request,
    }
}
