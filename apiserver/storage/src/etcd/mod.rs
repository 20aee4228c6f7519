//! The etcd engine, for etcd 3.4 and newer and servers with the same API.
//!
//! commit ──one transaction──► etcd ──one etcd watch per watch──► [`watcher`] ──► responses
//!
//! etcd provides durability, order, revisions and history. This engine sends requests to
//! a server that responds ([`endpoints`]), reopens broken watches at their revision
//! ([`watcher`]), lets keys with a time to live share leases ([`lease`]), and compacts in
//! one of all replicas ([`compaction`]).

mod compaction;
mod endpoints;
mod error;
mod etcd_keys;
mod format;
mod lease;
mod tls_renewal;
mod version;
mod watch_stream;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::proto::{PbKeyValue, PbResponseOp, PbTxnOpResponse};
use etcd_client::{CompactionOptions, Compare, CompareOp, GetOptions, PutOptions, TxnOp};
use machinery::FailureLog;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub use self::endpoints::{EtcdTls, EtcdTlsSource};
pub(crate) use self::etcd_keys::EtcdKeys;

use self::endpoints::{EtcdEndpoints, RetryPolicy};
use self::error::{EtcdError, RetrySafety};
use self::etcd_keys::{to_etcd_revision, to_revision};
use self::lease::LeaseManager;
use self::watch_stream::{EtcdWatchStream, WatchMessage};
use self::watcher::{EtcdWatch, ProgressRequests};
use crate::store::{
    ConsistentReadSupport, Error, KeyValue, MAX_REQUEST_BYTES, Op, RangeRequest, RangeResponse,
    Store, StoreResult, StoreWatch, Txn, TxnResponse,
};

/// A key that is never written; the header of its get response has the revision.
const PROBE_KEY: &str = "/registry/health";
/// The interval between two health probes, and the timeout of each.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBES_PER_FORMAT_CHECK: usize = 5;
/// The interval at which the versions of the servers are read.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(60);
const FIRST_VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The options of the etcd engine.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// URLs: `https://HOST:PORT`, or `http://` without TLS.
    pub servers: Vec<String>,
    pub tls: Option<EtcdTls>,
    /// The source from which `tls` is read again while the store is open.
    pub renewed_tls: Option<EtcdTlsSource>,
    /// The prefix of all keys (`--etcd-prefix`).
    pub prefix: String,
    /// How long history stays readable at least. `None`: this replica does not compact.
    pub history: Option<Duration>,
    /// How long [`EtcdStore::open`] waits until the cluster responds.
    pub open_timeout: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: None,
            renewed_tls: None,
            prefix: etcd_keys::ROOT_PREFIX.into(),
            history: Some(Duration::from_secs(300)),
            open_timeout: Duration::from_secs(30),
        }
    }
}

struct EtcdClient {
    endpoints: EtcdEndpoints,
    keys: EtcdKeys,
    leases: LeaseManager,
    progress_requests: ProgressRequests,
    /// Whether every server runs a version with reliable progress responses.
    progress_reliable: AtomicBool,
    /// Whether a server has sent a progress response without a revision; never reset.
    progress_disabled: AtomicBool,
    /// The newest revision of any response.
    newest_revision: AtomicU64,
    /// The result of the last probe.
    health: Mutex<Result<(), String>>,
    failure: watch::Sender<Option<Error>>,
    stop: watch::Sender<bool>,
}

/// The store on etcd. [`EtcdStore::close`] ends its tasks and watches, and so does
/// dropping it.
pub struct EtcdStore {
    client: Arc<EtcdClient>,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Etcd({})", self.client.endpoints.urls())
    }
}

impl EtcdStore {
    /// Connects, and waits until the cluster responds.
    ///
    /// # Errors
    /// [`Error::Fatal`] when a URL or certificate cannot be used; [`Error::Unavailable`]
    /// when no server responds in time, or when a server rejects the connection.
    pub async fn open(options: EtcdOptions) -> StoreResult<Self> {
        let endpoints = EtcdEndpoints::new(&options.servers, options.tls.as_ref())
            .await
            .map_err(Error::Fatal)?;
        let inner = Arc::new(EtcdClient {
            endpoints,
            keys: EtcdKeys::new(&options.prefix),
            leases: LeaseManager::default(),
            progress_requests: ProgressRequests::default(),
            progress_reliable: AtomicBool::new(false),
            progress_disabled: AtomicBool::new(false),
            newest_revision: AtomicU64::new(0),
            health: Mutex::new(Ok(())),
            failure: watch::Sender::new(None),
            stop: watch::Sender::new(false),
        });
        inner.wait_until_ready(options.open_timeout).await?;
        format::read(&inner).await?;
        let all_known = inner.check_versions().await;
        let mut tasks = JoinSet::new();
        let looking = Arc::clone(&inner);
        tasks.spawn(async move {
            let mut known = all_known;
            loop {
                tokio::time::sleep(if known {
                    VERSION_CHECK_INTERVAL
                } else {
                    FIRST_VERSION_CHECK_INTERVAL
                })
                .await;
                known = looking.check_versions().await;
            }
        });
        let probing = Arc::clone(&inner);
        tasks.spawn(async move {
            loop {
                for _ in 0..PROBES_PER_FORMAT_CHECK {
                    tokio::time::sleep(PROBE_INTERVAL).await;
                    probing.probe().await;
                }
                probing.check_format().await;
            }
        });
        if let Some(source) = options.renewed_tls {
            let (renewing, tls) = (Arc::clone(&inner), options.tls.clone());
            tasks.spawn(async move { tls_renewal::run(&renewing, source, tls).await });
        }
        if let Some(every) = options.history {
            let compacting = Arc::clone(&inner);
            tasks.spawn(async move { compaction::run(&compacting, every).await });
        }
        Ok(Self {
            client: inner,
            tasks: Mutex::new(tasks),
        })
    }

    /// Ends all tasks and watches. Further calls fail with [`Error::Unavailable`].
    pub async fn close(&self) {
        self.client.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    /// The size in bytes of each server's database at its last status call; 0 where it is
    /// unknown.
    pub fn sizes(&self) -> Vec<u64> {
        let all = self.client.endpoints.all();
        let sizes = all.iter().map(|e| e.db_size.load(Ordering::Relaxed));
        sizes.collect()
    }

    /// Resolves when the store has failed permanently, such as after etcd went back to an
    /// older revision. Never resolves otherwise.
    pub async fn wait_for_failure(&self) -> Error {
        let mut failure = self.client.failure.subscribe();
        if let Ok(failure) = failure.wait_for(Option::is_some).await
            && let Some(error) = failure.clone()
        {
            return error;
        }
        std::future::pending().await
    }

    /// Whether the last probe, a linearizable read, succeeded within two seconds.
    ///
    /// # Errors
    /// The error of that probe.
    pub fn health(&self) -> Result<(), String> {
        self.client.check_open().map_err(|e| e.to_string())?;
        self.client.health.lock().clone()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.client.stop.send_replace(true);
    }
}

impl EtcdClient {
    fn check_open(&self) -> StoreResult<()> {
        if *self.stop.borrow() {
            return Err(Error::Unavailable("the store is closed".into()));
        }
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    async fn probe(&self) {
        let health = match timeout(PROBE_INTERVAL, self.current_revision()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.error.to_string()),
            Err(_) => Err("etcd does not answer within 2 s".into()),
        };
        *self.health.lock() = health;
    }

    async fn wait_until_ready(&self, open_timeout: Duration) -> StoreResult<()> {
        let start = Instant::now();
        let urls = self.endpoints.urls();
        let failures = FailureLog::new();
        loop {
            let failure = match self.current_revision().await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            let waited = start.elapsed();
            if failure.permanent || failure.retry_safety == RetrySafety::NotRetryable {
                return Err(failure.error);
            }
            if waited >= open_timeout {
                return Err(Error::Unavailable(format!(
                    "{urls} did not answer within {} s; the last error: {}",
                    open_timeout.as_secs(),
                    failure.error
                )));
            }
            if failures.record_failure("start", &failure.error.to_string()) {
                tracing::warn!(why = %failure.error, "waiting for etcd at {urls}");
            }
        }
    }

    /// The current revision of the cluster, by a linearizable read.
    async fn current_revision(&self) -> Result<u64, EtcdError> {
        let before = self.newest_revision.load(Ordering::Acquire);
        let key = self.keys.encode_key(PROBE_KEY);
        let answer = self
            .endpoints
            .call_with_failure(RetryPolicy::Repeatable, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move {
                    let options = GetOptions::new().with_count_only();
                    kv.get(key, Some(options)).await
                }
            })
            .await?;
        let revision = answer.0.header.map_or(0, |h| to_revision(h.revision));
        if revision < before {
            let why = format!(
                "etcd went back from revision {before} to {revision}, as after a restore from a \
                 backup; clients have seen later revisions, so this store cannot continue \
                 (restore with a higher revision, or restart all replicas)"
            );
            let error = Error::Fatal(why);
            self.failure.send_replace(Some(error.clone()));
            return Err(EtcdError {
                error,
                ..EtcdError::unavailable("", RetrySafety::NotRetryable)
            });
        }
        self.observe_revision(revision);
        Ok(revision)
    }

    fn observe_revision(&self, revision: u64) {
        self.newest_revision.fetch_max(revision, Ordering::AcqRel);
    }

    async fn open_watch(&self, prefix: &str, after: u64) -> Result<EtcdWatchStream, EtcdError> {
        let newest = after > 0 && after >= self.newest_revision.load(Ordering::Acquire);
        EtcdWatchStream::open(&self.endpoints, &self.keys, prefix, after, newest).await
    }

    /// Reads the version of every server; returns whether all responded.
    async fn check_versions(&self) -> bool {
        let mut all_true = true;
        let mut all_known = true;
        for endpoint in &*self.endpoints.all() {
            let mut client = endpoint.maintenance.clone();
            match timeout(PROBE_INTERVAL, client.status()).await {
                Ok(Ok(status)) => {
                    all_true &= version::has_reliable_progress(status.version());
                    let size = to_revision(status.db_size());
                    endpoint.db_size.store(size, Ordering::Relaxed);
                }
                // The last result stands until the server responds.
                _ => all_known = false,
            }
        }
        if !all_true {
            self.progress_reliable.store(false, Ordering::Release);
        } else if all_known {
            self.progress_reliable.store(true, Ordering::Release);
        }
        all_known
    }

    fn supports_progress(&self) -> bool {
        self.progress_reliable.load(Ordering::Acquire)
            && !self.progress_disabled.load(Ordering::Acquire)
    }

    fn disable_progress(&self) {
        if !self.progress_disabled.swap(true, Ordering::AcqRel) {
            tracing::info!("etcd does not report watch progress: consistent lists read from etcd");
        }
    }

    /// The compaction revision, which etcd reports only to a watch; `at_least` when etcd does
    /// not answer in time.
    async fn compact_revision(&self, at_least: u64) -> u64 {
        let compaction_error = async {
            let opened =
                EtcdWatchStream::open(&self.endpoints, &self.keys, PROBE_KEY, 0, false).await;
            let mut stream = match opened {
                Ok(stream) => stream,
                Err(failure) => return failure.error,
            };
            loop {
                match stream.next().await {
                    Ok(WatchMessage::Compacted(at)) => return Error::Compacted { at },
                    Ok(_) => {}
                    Err(why) => return Error::Unavailable(why),
                }
            }
        };
        match timeout(PROBE_INTERVAL, compaction_error).await {
            Ok(Error::Compacted { at }) => at.max(at_least),
            _ => at_least,
        }
    }

    /// Adds the revisions that etcd's errors lack.
    async fn complete_error(&self, error: Error) -> Error {
        match error {
            Error::Compacted { at } => Error::Compacted {
                at: self.compact_revision(at).await,
            },
            Error::Future { asked, .. } => match self.current_revision().await {
                Ok(current) => Error::Future { asked, current },
                Err(failure) => failure.error,
            },
            other => other,
        }
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let (start, end) = (
            self.keys.encode_key(&range.start),
            self.keys.encode_key(&range.end),
        );
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let answer = self
            .endpoints
            .call(RetryPolicy::Repeatable, range.revision, |endpoint| {
                let options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(limit)
                    .with_revision(to_etcd_revision(range.revision));
                let (mut kv, start) = (endpoint.kv.clone(), start.clone());
                async move { kv.get(start, Some(options)).await }
            })
            .await;
        let answer = match answer {
            Ok(answer) => answer.0,
            Err(error) => return Err(self.complete_error(error).await),
        };
        let current = answer.header.map_or(0, |h| to_revision(h.revision));
        self.observe_revision(current);
        let count = answer.kvs.len() as u64;
        Ok(RangeResponse {
            remaining: to_revision(answer.count).saturating_sub(count),
            kvs: answer
                .kvs
                .into_iter()
                .map(|kv| self.keys.decode_key_value(kv))
                .collect(),
            revision: if range.revision == 0 {
                current
            } else {
                range.revision
            },
        })
    }

    /// Fails for a revision from which no watch can start.
    async fn check_watchable(&self, revision: u64) -> StoreResult<()> {
        let key = self.keys.encode_key(PROBE_KEY);
        let requested = to_etcd_revision(revision.max(1));
        let answer = self
            .endpoints
            .call(RetryPolicy::Repeatable, revision, |endpoint| {
                let options = GetOptions::new().with_count_only().with_revision(requested);
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move { kv.get(key, Some(options)).await }
            })
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(self.complete_error(error).await),
        }
    }

    async fn commit_txn(&self, txn: &Txn, lease: Option<i64>) -> Result<TxnResponse, EtcdError> {
        let key = self.keys.encode_key(&txn.key);
        let answer = self
            .endpoints
            .call_with_failure(RetryPolicy::NonRepeatable, 0, |endpoint| {
                let write = match &txn.op {
                    Op::Put { value, .. } => {
                        let options = lease.map(|id| PutOptions::new().with_lease(id));
                        TxnOp::put(key.clone(), value.to_vec(), options)
                    }
                    Op::Delete => TxnOp::delete(key.clone(), None),
                };
                let unchanged = Compare::mod_revision(
                    key.clone(),
                    CompareOp::Equal,
                    to_etcd_revision(txn.expected),
                );
                let request = etcd_client::Txn::new()
                    .when([unchanged])
                    .and_then([write])
                    .or_else([TxnOp::get(key.clone(), None)]);
                let mut kv = endpoint.kv.clone();
                async move { kv.txn(request).await }
            })
            .await?
            .0;
        if answer.succeeded {
            let revision = answer.header.map_or(0, |h| to_revision(h.revision));
            self.observe_revision(revision);
            return Ok(TxnResponse::Committed { revision });
        }
        let current = first_key_value(answer.responses).map(|kv| self.keys.decode_key_value(kv));
        Ok(TxnResponse::Conflict { current })
    }

    async fn put_with_ttl(&self, txn: &Txn, ttl: Duration) -> StoreResult<TxnResponse> {
        let mut tries = 0;
        loop {
            let lease = self.leases.get(&self.endpoints, ttl).await?;
            match self.commit_txn(txn, Some(lease)).await {
                Err(failure) if failure.lease_not_found && tries < 2 => {
                    tries += 1;
                    self.leases.forget(lease).await;
                }
                other => return other.map_err(|failure| failure.error),
            }
        }
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        if revision == 0 {
            return Ok(());
        }
        let answer = self
            .endpoints
            .call(RetryPolicy::Repeatable, revision, |endpoint| {
                let mut kv = endpoint.kv.clone();
                async move {
                    kv.compact(to_etcd_revision(revision), Some(CompactionOptions::new()))
                        .await
                }
            })
            .await;
        match answer {
            // Another replica has compacted already.
            Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(self.complete_error(error).await),
        }
    }
}

/// The result of the `get` in the else branch of a transaction.
fn first_key_value(responses: Vec<PbResponseOp>) -> Option<PbKeyValue> {
    match responses.into_iter().next()?.response? {
        PbTxnOpResponse::ResponseRange(range) => range.kvs.into_iter().next(),
        _ => None,
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn consistent_read_support(&self) -> ConsistentReadSupport {
        if self.client.supports_progress() {
            ConsistentReadSupport::ProgressRequest
        } else {
            ConsistentReadSupport::Unsupported
        }
    }

    async fn revision(&self) -> StoreResult<u64> {
        self.client.check_open()?;
        let revision = self.client.current_revision().await.map_err(|f| f.error)?;
        self.client.progress_requests.request(None, revision);
        Ok(revision)
    }

    async fn prefix_revision(&self, prefix: &str) -> StoreResult<u64> {
        self.client.check_open()?;
        let revision = self.client.current_revision().await.map_err(|f| f.error)?;
        self.client
            .progress_requests
            .request(Some(prefix), revision);
        Ok(revision)
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        self.client.check_open()?;
        let outer = self.client.keys.encode_key(key);
        let answer = self
            .client
            .endpoints
            .call(RetryPolicy::Repeatable, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), outer.clone());
                async move { kv.get(key, None).await }
            })
            .await?
            .0;
        self.client
            .observe_revision(answer.header.map_or(0, |h| to_revision(h.revision)));
        let kv = answer.kvs.into_iter().next();
        Ok(kv.map(|kv| self.client.keys.decode_key_value(kv)))
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        self.client.check_open()?;
        self.client.range(range).await
    }

    async fn commit(&self, txn: Txn) -> StoreResult<TxnResponse> {
        self.client.check_open()?;
        let ttl = match &txn.op {
            Op::Put { value, ttl } => {
                if txn.key.len() + value.len() > MAX_REQUEST_BYTES {
                    return Err(Error::TooLarge);
                }
                *ttl
            }
            // etcd would succeed without deleting anything.
            Op::Delete if txn.expected == 0 => {
                let current = self.get(&txn.key).await?;
                return Ok(TxnResponse::Conflict { current });
            }
            Op::Delete => None,
        };
        match ttl {
            Some(ttl) => self.client.put_with_ttl(&txn, ttl).await,
            None => self
                .client
                .commit_txn(&txn, None)
                .await
                .map_err(|f| f.error),
        }
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        self.client.check_open()?;
        // The check is needed besides the watch: etcd would wait for a future revision, and
        // it reports a compacted one only later, within the watch.
        let (readable, opened) = tokio::join!(
            self.client.check_watchable(after),
            self.client.open_watch(prefix, after),
        );
        readable?;
        let stream = match opened {
            Ok(stream) => stream,
            Err(failure) => return Err(self.client.complete_error(failure.error).await),
        };
        let inner = Arc::clone(&self.client);
        Ok(Box::new(EtcdWatch::new(inner, prefix, after, stream)))
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.client.check_open()?;
        self.client.compact(revision).await
    }
}
