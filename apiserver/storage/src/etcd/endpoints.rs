//! The servers: one connection each for requests and one for watches, and the choice
//! among them. Enters: requests. Leaves: answers, from whichever server gives one.
//!
//! Requests stay with one server until it fails, watches are spread. A server that
//! failed is left alone for a moment. What certainly did not happen is sent again
//! elsewhere; what may have happened only where it does no harm.

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
/// The longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest wait for an answer that another server can give as well.
const OTHERS: Duration = Duration::from_secs(4);
/// How long a request is sent again: an election takes a second or two.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server that failed is left alone, unless all have.
const REST: Duration = Duration::from_secs(3);
/// As grpc-go's: the largest answer of a server.
const MESSAGE: usize = i32::MAX as usize;

/// The keys to a cluster, PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who may have signed the servers' certificates; `None`: whom the system trusts.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Where renewed keys come from; asked every few seconds. An error leaves those in use
/// that are.
#[derive(Clone)]
pub struct TlsSource(pub Arc<dyn Fn() -> std::result::Result<Tls, String> + Send + Sync>);

impl std::fmt::Debug for TlsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSource")
    }
}

/// Whether a request that may have happened is sent again.
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
    /// Bytes of its database, as it last told.
    pub(super) size: AtomicU64,
    /// Not asked before then.
    rests: Mutex<Option<Instant>>,
}

impl Endpoint {
    async fn new(url: &str, options: &ConnectOptions) -> std::result::Result<Self, String> {
        let connect = async || {
            let client = Client::connect([url], Some(options.clone())).await;
            client.map_err(|e| format!("{url}: {e}"))
        };
        // Two connections, so that a burst of events does not hold up an answer.
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
    /// Replaced as a whole when the keys are renewed.
    all: RwLock<All>,
    /// Where requests go.
    current: AtomicUsize,
    /// Where the next watch goes.
    next: AtomicUsize,
}

impl Endpoints {
    /// Connects nowhere yet.
    ///
    /// # Errors
    /// A text that says which URL or key cannot be used.
    pub(super) async fn new(
        urls: &[String],
        tls: Option<&Tls>,
    ) -> std::result::Result<Self, String> {
        let urls = urls.iter().map(|url| url.trim().trim_end_matches('/'));
        let urls: Vec<String> = urls.map(str::to_owned).collect();
        let all = Self::connect(&urls, tls).await?;
        if all.is_empty() {
            return Err("no etcd server is named".into());
        }
        // Replicas do not all begin with the same server.
        let first = usize::from(chance()) % all.len();
        Ok(Self {
            urls,
            all: RwLock::new(all),
            current: AtomicUsize::new(first),
            next: AtomicUsize::new(first),
        })
    }

    /// Requests and watches that begin from now on use connections with these keys;
    /// what is under way ends on the connections that it has.
    ///
    /// # Errors
    /// A text that says which key cannot be used; then nothing has changed.
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
                    "{url:?} is no URL of an etcd server (https://HOST:PORT)"
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

    /// The first one from `start` that did not fail lately.
    fn from(&self, start: usize) -> (usize, Arc<Endpoint>) {
        let all = self.all();
        let count = all.len();
        let index = (0..count)
            .map(|step| (start + step) % count)
            .find(|index| all[*index].rested())
            .unwrap_or(start % count);
        (index, Arc::clone(&all[index]))
    }

    /// Where a new watch goes.
    pub(super) fn spread(&self) -> Arc<Endpoint> {
        self.from(self.next.fetch_add(1, Ordering::Relaxed)).1
    }

    fn pick(&self) -> Arc<Endpoint> {
        let (index, endpoint) = self.from(self.current.load(Ordering::Relaxed));
        self.current.store(index, Ordering::Relaxed);
        endpoint
    }

    /// One request. `at` is the revision asked for, for the error.
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
                    let why = format!("no answer within {} s", wait.as_secs());
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

/// Says which server it was.
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

/// Something that differs from process to process.
fn chance() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0).to_le_bytes()[0]
}
