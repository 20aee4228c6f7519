//! The etcd engine, for etcd 3.4 and newer and servers with the same API.
//!
//! commit ──one transaction──► etcd ──one etcd watch per watch──► [`watcher`] ──► responses
//!
//! etcd provides durability, order, revisions and history. This engine sends requests to
//! a server that responds ([`endpoints`]), reopens broken watches at their revision
//! ([`watcher`]), lets keys with a time to live share leases ([`lease`]), compacts in
//! one of all replicas ([`compaction`]), and stores similar values once:
//!
//! put ──[`delta_writer`]──► key: delta, name of its base ──[`delta_reader`]──► the value
//!                    └────► base: value ──[`base_collection`]──► deleted after its last delta
//!
//! Each key is written in a transaction of its own: the keys of one transaction share a revision, and a
//! client whose watch ends between two of its events would resume after both.

mod base_collection;
mod client;
mod compaction;
mod delta_bases;
mod delta_reader;
mod delta_value;
mod delta_writer;
mod endpoints;
mod error;
mod etcd_keys;
mod format;
mod lease;
mod progress_requests;
mod restore;
mod snapshot;
#[cfg(test)]
mod tests;
mod tls_renewal;
mod version;
mod watch_stream;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub use self::endpoints::{CurrentEtcdTlsFn, EtcdTls};
pub(crate) use self::etcd_keys::EtcdKeyCodec;
pub use self::restore::restore;

use self::client::{EtcdClient, PROBE_INTERVAL};
use self::endpoints::EtcdEndpoints;
use self::watcher::EtcdWatch;
use crate::delta::DeltaOptions;
use crate::format::has_deltas;
use crate::store::{
    ConsistentReadSupport, Error, KeyValue, MAX_REQUEST_BYTES, RangeRequest, RangeResponse,
    SingleKeyTxn, SingleKeyTxnOp, Store, StoreResult, StoreWatch, TxnResponse,
};

const PROBES_PER_FORMAT_CHECK: usize = 5;
/// Three times the interval of format checks.
const DELTA_WRITE_DELAY: Duration = Duration::from_secs(30);
/// A round reads all keys with values that may be deltas.
const BASE_COLLECTION_INTERVAL: Duration = Duration::from_secs(1800);
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
    pub renewed_tls: Option<CurrentEtcdTlsFn>,
    /// The prefix of all keys (`--etcd-prefix`).
    pub prefix: String,
    /// How long history stays readable at least. `None`: this replica does not compact.
    pub history_retention: Option<Duration>,
    /// How long [`EtcdStore::open`] waits until the cluster responds.
    pub open_timeout: Duration,
    pub deltas: EtcdDeltaOptions,
}

/// Which values are stored as differences from similar ones, once [`EtcdStore::raise_format`] has
/// allowed it. Differences are always read.
#[derive(Clone, Debug)]
pub struct EtcdDeltaOptions {
    pub keys: DeltaOptions,
    /// How long after its start a process stores whole values, where it finds data. In this time a
    /// process that does not know deltas finds the raised format and stops.
    pub write_delay: Duration,
    /// The interval at which bases are deleted that no value needs.
    pub collection_interval: Duration,
}

impl Default for EtcdDeltaOptions {
    fn default() -> Self {
        Self {
            keys: DeltaOptions::default(),
            write_delay: DELTA_WRITE_DELAY,
            collection_interval: BASE_COLLECTION_INTERVAL,
        }
    }
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: None,
            renewed_tls: None,
            prefix: etcd_keys::ROOT_PREFIX.into(),
            history_retention: Some(Duration::from_secs(300)),
            open_timeout: Duration::from_secs(30),
            deltas: EtcdDeltaOptions::default(),
        }
    }
}

/// The store on etcd. [`EtcdStore::close`] ends its tasks and watches, and so does
/// dropping it.
pub struct EtcdStore {
    client: Arc<EtcdClient>,
    delta_write_delay: Duration,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EtcdStore({})", self.client.endpoints.urls())
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
        let inner = Arc::new(EtcdClient::new(
            endpoints,
            &options.prefix,
            options.deltas.keys,
        ));
        inner.wait_until_ready(options.open_timeout).await?;
        format::read(&inner).await?;
        let all_known = inner.check_versions().await;
        let mut tasks = JoinSet::new();
        let version_client = Arc::clone(&inner);
        tasks.spawn(async move {
            let mut versions_known = all_known;
            loop {
                tokio::time::sleep(if versions_known {
                    VERSION_CHECK_INTERVAL
                } else {
                    FIRST_VERSION_CHECK_INTERVAL
                })
                .await;
                versions_known = version_client.check_versions().await;
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
        if let Some(every) = options.history_retention {
            let compacting = Arc::clone(&inner);
            tasks.spawn(async move { compaction::run(&compacting, every).await });
        }
        let (collecting, interval) = (Arc::clone(&inner), options.deltas.collection_interval);
        tasks.spawn(async move { base_collection::run(&collecting, interval).await });
        Ok(Self {
            client: inner,
            delta_write_delay: options.deltas.write_delay,
            tasks: Mutex::new(tasks),
        })
    }

    /// Stores the format version ([`crate::format`]) where there is none and raises it to
    /// include `needed`. Where that includes deltas, values are stored as such from then on.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the stored version is higher than this program knows.
    pub async fn raise_format(&self, needed: u32) -> StoreResult<()> {
        self.client.check_open()?;
        let is_new = format::raise(&self.client, needed).await?;
        if has_deltas(needed) {
            let delay = if is_new {
                Duration::ZERO
            } else {
                self.delta_write_delay
            };
            self.client.deltas.enable_writes(delay);
        }
        Ok(())
    }

    /// The stored format version.
    ///
    /// # Errors
    /// As [`EtcdStore::raise_format`].
    pub async fn format(&self) -> StoreResult<u32> {
        self.client.check_open()?;
        format::read(&self.client).await.map(|(version, _)| version)
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
        self.client.get(key).await
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        self.client.check_open()?;
        self.client.range(range).await
    }

    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        self.client.check_open()?;
        let committed = match &txn.op {
            SingleKeyTxnOp::Put { value, .. }
                if txn.key.len() + value.len() > MAX_REQUEST_BYTES =>
            {
                return Err(Error::TooLarge);
            }
            SingleKeyTxnOp::Put { ttl: Some(ttl), .. } => {
                return self.client.put_with_ttl(&txn, *ttl).await;
            }
            SingleKeyTxnOp::Put { value, ttl: None } => {
                Box::pin(self.client.commit_put(&txn, value)).await
            }
            // etcd would succeed without deleting anything.
            SingleKeyTxnOp::Delete if txn.expected == 0 => {
                let current = self.get(&txn.key).await?;
                return Ok(TxnResponse::Conflict { current });
            }
            SingleKeyTxnOp::Delete => self.client.commit_txn(&txn, None).await,
        };
        committed.map_err(|failure| failure.error)
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
