//! The servers of the etcd cluster, with two connections each: one for requests and one
//! for watches. It selects a server for each request and watch.
//!
//! Requests stay with one server until it fails; watches are spread over all. A server
//! that failed is avoided for a few seconds. A request that certainly was not applied is
//! retried on another server; one that may have been applied only if it is repeatable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, KvClient, LeaseClient, MaintenanceClient,
    TlsOptions, WatchClient,
};
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};

use super::error::{EtcdError, RetrySafety};
use crate::store::{Error, StoreResult};

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of a request that is not retried elsewhere.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a request that another server can answer as well.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request is retried: an election takes a second or two.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_BACKOFF: Duration = Duration::from_millis(100);
/// How long a server that failed is avoided, unless all have failed.
const FAILED_SERVER_BACKOFF: Duration = Duration::from_secs(3);
/// The largest message of a server, as in grpc-go.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;

/// The certificates for a cluster, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EtcdTls {
    /// The CA of the servers' certificates; `None`: the CAs of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EtcdTls")
    }
}

/// Returns the current certificates; called every few seconds. After an error the
/// certificates in use stay in use.
#[derive(Clone)]
pub struct CurrentEtcdTlsFn(pub Arc<dyn Fn() -> Result<EtcdTls, String> + Send + Sync>);

impl std::fmt::Debug for CurrentEtcdTlsFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CurrentEtcdTlsFn")
    }
}

/// Whether a request that may have been applied is retried (as clientv3's retryPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    Repeatable,
    NonRepeatable,
}

pub(super) struct EtcdEndpoint {
    pub(super) url: String,
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) maintenance: MaintenanceClient,
    pub(super) watch: WatchClient,
    /// Bytes of its database at the last status call.
    pub(super) db_size: AtomicU64,
    /// The server is avoided until then.
    avoided_until: Mutex<Option<Instant>>,
}

impl EtcdEndpoint {
    async fn new(url: &str, options: &ConnectOptions) -> Result<Self, String> {
        let connect = async || {
            let client = Client::connect([url], Some(options.clone())).await;
            client.map_err(|e| format!("{url}: {e}"))
        };
        // Two connections, so that a burst of events does not delay a response.
        let (requests, streams) = (connect().await?, connect().await?);
        Ok(Self {
            url: url.to_owned(),
            kv: requests
                .kv_client()
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            lease: requests.lease_client(),
            maintenance: requests.maintenance_client(),
            watch: streams
                .watch_client()
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            db_size: AtomicU64::new(0),
            avoided_until: Mutex::new(None),
        })
    }

    fn is_available(&self) -> bool {
        self.avoided_until
            .lock()
            .is_none_or(|until| until <= Instant::now())
    }

    pub(super) fn record_failure(&self) {
        *self.avoided_until.lock() = Some(Instant::now() + FAILED_SERVER_BACKOFF);
    }

    fn record_success(&self) {
        *self.avoided_until.lock() = None;
    }
}

type EndpointList = Arc<[Arc<EtcdEndpoint>]>;

pub(super) struct EtcdEndpoints {
    urls: Vec<String>,
    /// Replaced when the certificates are renewed.
    endpoints: RwLock<EndpointList>,
    /// The index of the server that gets requests.
    current: AtomicUsize,
    /// The index of the server that gets the next watch.
    next_watch: AtomicUsize,
}

impl EtcdEndpoints {
    /// Prepares the connections; they are opened with the first request.
    ///
    /// # Errors
    /// A text that says which URL or certificate cannot be used.
    pub(super) async fn new(urls: &[String], tls: Option<&EtcdTls>) -> Result<Self, String> {
        let urls = urls.iter().map(|url| url.trim().trim_end_matches('/'));
        let urls: Vec<String> = urls.map(str::to_owned).collect();
        let all = Self::connect(&urls, tls).await?;
        if all.is_empty() {
            return Err("no etcd server is specified".into());
        }
        // Replicas start with different servers.
        let first = usize::from(random_byte()) % all.len();
        Ok(Self {
            urls,
            endpoints: RwLock::new(all),
            current: AtomicUsize::new(first),
            next_watch: AtomicUsize::new(first),
        })
    }

    /// Uses these certificates for the requests and watches that start from now on; those
    /// in flight finish on their old connections.
    ///
    /// # Errors
    /// A text that says which certificate cannot be used; then nothing has changed.
    pub(super) async fn renew(&self, tls: &EtcdTls) -> Result<(), String> {
        let renewed = Self::connect(&self.urls, Some(tls)).await?;
        let mut all = self.endpoints.write();
        for (old, new) in all.iter().zip(&*renewed) {
            let size = old.db_size.load(Ordering::Relaxed);
            new.db_size.store(size, Ordering::Relaxed);
        }
        *all = renewed;
        Ok(())
    }

    async fn connect(urls: &[String], tls: Option<&EtcdTls>) -> Result<EndpointList, String> {
        let mut all = Vec::new();
        for url in urls {
            let secure = url.starts_with("https://");
            if !secure && !url.starts_with("http://") {
                return Err(format!(
                    "{url:?} is not a URL of an etcd server (https://HOST:PORT)"
                ));
            }
            let mut options = ConnectOptions::new()
                .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
                .with_connect_timeout(CONNECT_TIMEOUT)
                .with_tcp_keepalive(KEEP_ALIVE_INTERVAL)
                .with_require_leader(true);
            if secure {
                options = options.with_tls(tls_options(tls));
            }
            all.push(Arc::new(EtcdEndpoint::new(url, &options).await?));
        }
        Ok(all.into())
    }

    pub(super) fn all(&self) -> EndpointList {
        Arc::clone(&self.endpoints.read())
    }

    pub(super) fn urls(&self) -> String {
        self.urls.join(",")
    }

    /// The first server from `start` on that did not fail recently.
    fn available_from(&self, start: usize) -> (usize, Arc<EtcdEndpoint>) {
        let all = self.all();
        let count = all.len();
        let index = (0..count)
            .map(|step| (start + step) % count)
            .find(|index| all[*index].is_available())
            .unwrap_or(start % count);
        (index, Arc::clone(&all[index]))
    }

    /// The server for a new watch.
    pub(super) fn next_watch_endpoint(&self) -> Arc<EtcdEndpoint> {
        self.available_from(self.next_watch.fetch_add(1, Ordering::Relaxed))
            .1
    }

    fn request_endpoint(&self) -> Arc<EtcdEndpoint> {
        let (index, endpoint) = self.available_from(self.current.load(Ordering::Relaxed));
        self.current.store(index, Ordering::Relaxed);
        endpoint
    }

    /// Sends one request. `revision` is the requested revision, which errors repeat.
    pub(super) async fn call<T, F>(
        &self,
        repeat: RetryPolicy,
        revision: u64,
        request: impl Fn(Arc<EtcdEndpoint>) -> F + Send + Sync,
    ) -> StoreResult<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        self.call_with_failure(repeat, revision, request)
            .await
            .map_err(|failure| failure.error)
    }

    pub(super) async fn call_with_failure<T, F>(
        &self,
        repeat: RetryPolicy,
        revision: u64,
        request: impl Fn(Arc<EtcdEndpoint>) -> F + Send + Sync,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        let retry_deadline = Instant::now() + RETRY_TIMEOUT;
        let wait = if repeat == RetryPolicy::Repeatable && self.urls.len() > 1 {
            FAILOVER_TIMEOUT
        } else {
            REQUEST_TIMEOUT
        };
        loop {
            let endpoint = self.request_endpoint();
            let failure = match timeout(wait, request(Arc::clone(&endpoint))).await {
                Ok(Ok(response)) => {
                    endpoint.record_success();
                    return Ok(response);
                }
                Ok(Err(error)) => EtcdError::new(&error, revision),
                Err(_) => {
                    let message = format!("no response within {} s", wait.as_secs());
                    EtcdError::unavailable(message, RetrySafety::MaybeApplied)
                }
            };
            if failure.retry_safety == RetrySafety::NotRetryable || failure.lease_not_found {
                endpoint.record_success();
                return Err(failure);
            }
            endpoint.record_failure();
            tracing::debug!(url = endpoint.url, message = %failure.error, "etcd did not answer");
            let is_retryable = failure.retry_safety == RetrySafety::NotApplied
                || repeat == RetryPolicy::Repeatable;
            if !is_retryable
                || failure.permanent
                || Instant::now() + RETRY_BACKOFF >= retry_deadline
            {
                return Err(with_url(&endpoint.url, failure));
            }
            if !self.all().iter().any(|e| e.is_available()) {
                tokio::time::sleep(RETRY_BACKOFF).await;
            }
        }
    }
}

/// Adds the server's URL to the error.
fn with_url(url: &str, failure: EtcdError) -> EtcdError {
    let error = match failure.error {
        Error::Unavailable(message) => Error::Unavailable(format!("etcd at {url}: {message}")),
        other => other,
    };
    EtcdError { error, ..failure }
}

fn tls_options(tls: Option<&EtcdTls>) -> TlsOptions {
    let mut options = TlsOptions::new();
    options = match tls.and_then(|t| t.ca.as_ref()) {
        Some(ca) => options.ca_certificate(Certificate::from_pem(ca)),
        None => options.with_native_roots(),
    };
    if let Some((certificate, key)) = tls.and_then(|t| t.identity.as_ref()) {
        options = options.identity(Identity::from_pem(certificate, key));
    }
    options
}

/// A random number.
fn random_byte() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0).to_le_bytes()[0]
}
