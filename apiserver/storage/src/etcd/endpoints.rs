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

use super::failure::{Again, Failure};
use crate::store::{Error, Result};

const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);
/// The timeout of a request that is not retried elsewhere.
const ANSWER: Duration = Duration::from_secs(10);
/// The timeout of a request that another server can answer as well.
const OTHERS: Duration = Duration::from_secs(4);
/// How long a request is retried: an election takes a second or two.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server that failed is avoided, unless all have failed.
const REST: Duration = Duration::from_secs(3);
/// The largest message of a server, as in grpc-go.
const MESSAGE: usize = i32::MAX as usize;

/// The certificates for a cluster, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA of the servers' certificates; `None`: the CAs of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Returns the current certificates; called every few seconds. After an error the
/// certificates in use stay in use.
#[derive(Clone)]
pub struct TlsSource(pub Arc<dyn Fn() -> std::result::Result<Tls, String> + Send + Sync>);

impl std::fmt::Debug for TlsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSource")
    }
}

/// Whether a request that may have been applied is retried (as clientv3's retryPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Freely,
    Never,
}

pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) maintenance: MaintenanceClient,
    pub(super) watch: WatchClient,
    /// Bytes of its database at the last status call.
    pub(super) size: AtomicU64,
    /// It is avoided until then.
    rests: Mutex<Option<Instant>>,
}

impl Endpoint {
    async fn new(url: &str, options: &ConnectOptions) -> std::result::Result<Self, String> {
        let connect = async || {
            let client = Client::connect([url], Some(options.clone())).await;
            client.map_err(|e| format!("{url}: {e}"))
        };
        // Two connections, so that a burst of events does not delay a response.
        let (requests, streams) = (connect().await?, connect().await?);
        Ok(Self {
            url: url.to_owned(),
            kv: requests.kv_client().max_decoding_message_size(MESSAGE),
            lease: requests.lease_client(),
            maintenance: requests.maintenance_client(),
            watch: streams.watch_client().max_decoding_message_size(MESSAGE),
            size: AtomicU64::new(0),
            rests: Mutex::new(None),
        })
    }

    fn rested(&self) -> bool {
        self.rests
            .lock()
            .is_none_or(|until| until <= Instant::now())
    }

    pub(super) fn failed(&self) {
        *self.rests.lock() = Some(Instant::now() + REST);
    }

    fn answered(&self) {
        *self.rests.lock() = None;
    }
}

type All = Arc<[Arc<Endpoint>]>;

pub(super) struct Endpoints {
    urls: Vec<String>,
    /// Replaced when the certificates are renewed.
    all: RwLock<All>,
    /// The index of the server that gets requests.
    current: AtomicUsize,
    /// The index of the server that gets the next watch.
    next: AtomicUsize,
}

impl Endpoints {
    /// Prepares the connections; they are opened with the first request.
    ///
    /// # Errors
    /// A text that says which URL or certificate cannot be used.
    pub(super) async fn new(
        urls: &[String],
        tls: Option<&Tls>,
    ) -> std::result::Result<Self, String> {
        let urls = urls.iter().map(|url| url.trim().trim_end_matches('/'));
        let urls: Vec<String> = urls.map(str::to_owned).collect();
        let all = Self::connect(&urls, tls).await?;
        if all.is_empty() {
            return Err("no etcd server is specified".into());
        }
        // Replicas start with different servers.
        let first = usize::from(chance()) % all.len();
        Ok(Self {
            urls,
            all: RwLock::new(all),
            current: AtomicUsize::new(first),
            next: AtomicUsize::new(first),
        })
    }

    /// Uses these certificates for the requests and watches that start from now on; those
    /// in flight finish on their old connections.
    ///
    /// # Errors
    /// A text that says which certificate cannot be used; then nothing has changed.
    pub(super) async fn renew(&self, tls: &Tls) -> std::result::Result<(), String> {
        let renewed = Self::connect(&self.urls, Some(tls)).await?;
        let mut all = self.all.write();
        for (old, new) in all.iter().zip(&*renewed) {
            let size = old.size.load(Ordering::Relaxed);
            new.size.store(size, Ordering::Relaxed);
        }
        *all = renewed;
        Ok(())
    }

    async fn connect(urls: &[String], tls: Option<&Tls>) -> std::result::Result<All, String> {
        let mut all = Vec::new();
        for url in urls {
            let secure = url.starts_with("https://");
            if !secure && !url.starts_with("http://") {
                return Err(format!(
                    "{url:?} is not a URL of an etcd server (https://HOST:PORT)"
                ));
            }
            let mut options = ConnectOptions::new()
                .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_TIMEOUT)
                .with_connect_timeout(CONNECT)
                .with_tcp_keepalive(KEEP_ALIVE)
                .with_require_leader(true);
            if secure {
                options = options.with_tls(tls_options(tls));
            }
            all.push(Arc::new(Endpoint::new(url, &options).await?));
        }
        Ok(all.into())
    }

    pub(super) fn all(&self) -> All {
        Arc::clone(&self.all.read())
    }

    pub(super) fn urls(&self) -> String {
        self.urls.join(",")
    }

    /// The first server from `start` on that did not fail recently.
    fn from(&self, start: usize) -> (usize, Arc<Endpoint>) {
        let all = self.all();
        let count = all.len();
        let index = (0..count)
            .map(|step| (start + step) % count)
            .find(|index| all[*index].rested())
            .unwrap_or(start % count);
        (index, Arc::clone(&all[index]))
    }

    /// The server for a new watch.
    pub(super) fn spread(&self) -> Arc<Endpoint> {
        self.from(self.next.fetch_add(1, Ordering::Relaxed)).1
    }

    fn pick(&self) -> Arc<Endpoint> {
        let (index, endpoint) = self.from(self.current.load(Ordering::Relaxed));
        self.current.store(index, Ordering::Relaxed);
        endpoint
    }

    /// Sends one request. `at` is the requested revision, which errors repeat.
    pub(super) async fn call<T, F>(
        &self,
        repeat: Repeat,
        at: u64,
        request: impl Fn(Arc<Endpoint>) -> F + Send + Sync,
    ) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        self.attempt(repeat, at, request)
            .await
            .map_err(|failure| failure.error)
    }

    pub(super) async fn attempt<T, F>(
        &self,
        repeat: Repeat,
        at: u64,
        request: impl Fn(Arc<Endpoint>) -> F + Send + Sync,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>> + Send,
        T: Send,
    {
        let until = Instant::now() + PATIENCE;
        let wait = if repeat == Repeat::Freely && self.urls.len() > 1 {
            OTHERS
        } else {
            ANSWER
        };
        loop {
            let endpoint = self.pick();
            let failure = match timeout(wait, request(Arc::clone(&endpoint))).await {
                Ok(Ok(answer)) => {
                    endpoint.answered();
                    return Ok(answer);
                }
                Ok(Err(error)) => Failure::new(&error, at),
                Err(_) => {
                    let why = format!("no response within {} s", wait.as_secs());
                    Failure::unavailable(why, Again::Perhaps)
                }
            };
            if failure.again == Again::Never || failure.lease_gone {
                endpoint.answered();
                return Err(failure);
            }
            endpoint.failed();
            tracing::debug!(url = endpoint.url, why = %failure.error, "etcd did not answer");
            let again = failure.again == Again::Unsent || repeat == Repeat::Freely;
            if !again || failure.hopeless || Instant::now() + PAUSE >= until {
                return Err(named(&endpoint.url, failure));
            }
            if !self.all().iter().any(|e| e.rested()) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Adds the server's URL to the error.
fn named(url: &str, failure: Failure) -> Failure {
    let error = match failure.error {
        Error::Unavailable(why) => Error::Unavailable(format!("etcd at {url}: {why}")),
        other => other,
    };
    Failure { error, ..failure }
}

fn tls_options(tls: Option<&Tls>) -> TlsOptions {
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
fn chance() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0).to_le_bytes()[0]
}
