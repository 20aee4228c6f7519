//! Calls etcd on behalf of the store and its tasks: revisions, ranges, transactions, health.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::proto::{PbKeyValue, PbRangeResponse, PbResponseOp, PbTxnOpResponse};
use etcd_client::{CompactionOptions, Compare, CompareOp, GetOptions, PutOptions, TxnOp};
use machinery::FailureLogLimiter;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::delta_bases::DeltaBases;
use super::delta_value::encode_whole_value;
use super::endpoints::{EtcdEndpoints, RetryPolicy};
use super::error::{EtcdError, RetrySafety, newest_read_error};
use super::etcd_keys::{EtcdKeyCodec, to_etcd_revision, to_revision};
use super::lease::LeaseManager;
use super::progress_requests::AwaitedRevisionsByWatchPrefix;
use super::version;
use super::watch_stream::{EtcdWatchMessage, EtcdWatchStream};
use crate::delta::DeltaOptions;
use crate::store::{
    Error, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn, SingleKeyTxnOp, StoreResult,
    TxnResponse,
};

/// A key that is never written; the header of its get response has the revision.
const PROBE_KEY: &str = "/registry/health";

/// The interval between two health probes, and the timeout of each.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// The etcd requests of one store, with its leases, health probe and newest revision.
pub(super) struct EtcdClient {
    pub(super) endpoints: EtcdEndpoints,
    pub(super) keys: EtcdKeyCodec,
    leases: LeaseManager,
    pub(super) deltas: DeltaBases,
    pub(super) progress_requests: AwaitedRevisionsByWatchPrefix,
    /// Whether every server runs a version with reliable progress responses.
    progress_reliable: AtomicBool,
    /// Whether a server has sent a progress response without a revision; never reset.
    progress_disabled: AtomicBool,
    /// The newest revision of any response.
    newest_revision: AtomicU64,
    /// The result of the last probe.
    pub(super) health: Mutex<Result<(), String>>,
    pub(super) failure: watch::Sender<Option<Error>>,
    pub(super) stop: watch::Sender<bool>,
}

impl EtcdClient {
    pub(super) fn new(endpoints: EtcdEndpoints, prefix: &str, deltas: DeltaOptions) -> Self {
        Self {
            endpoints,
            keys: EtcdKeyCodec::new(prefix),
            leases: LeaseManager::default(),
            deltas: DeltaBases::new(deltas),
            progress_requests: AwaitedRevisionsByWatchPrefix::default(),
            progress_reliable: AtomicBool::new(false),
            progress_disabled: AtomicBool::new(false),
            newest_revision: AtomicU64::new(0),
            health: Mutex::new(Ok(())),
            failure: watch::Sender::new(None),
            stop: watch::Sender::new(false),
        }
    }

    pub(super) fn check_open(&self) -> StoreResult<()> {
        if *self.stop.borrow() {
            return Err(Error::Unavailable("the store is closed".into()));
        }
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    pub(super) async fn probe(&self) {
        let health = match timeout(PROBE_INTERVAL, self.current_revision()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.error.to_string()),
            Err(_) => Err("etcd does not answer within 2 s".into()),
        };
        *self.health.lock() = health;
    }

    pub(super) async fn wait_until_ready(&self, open_timeout: Duration) -> StoreResult<()> {
        let start = Instant::now();
        let urls = self.endpoints.urls();
        let failures = FailureLogLimiter::new();
        loop {
            let failure = match self.current_revision().await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            let elapsed = start.elapsed();
            if failure.permanent || failure.retry_safety == RetrySafety::NotRetryable {
                return Err(failure.error);
            }
            if elapsed >= open_timeout {
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
    pub(super) async fn current_revision(&self) -> Result<u64, EtcdError> {
        let before = self.newest_revision.load(Ordering::Acquire);
        let key = self.keys.encode_key(PROBE_KEY);
        let response = self
            .endpoints
            .call_with_failure(RetryPolicy::Repeatable, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move {
                    let options = GetOptions::new().with_count_only();
                    kv.get(key, Some(options)).await
                }
            })
            .await?;
        let revision = response.0.header.map_or(0, |h| to_revision(h.revision));
        if revision < before {
            let message = format!(
                "etcd went back from revision {before} to {revision}, as after a restore from a \
                 backup; clients have seen later revisions, so this store cannot continue \
                 (restore with a higher revision, or restart all replicas)"
            );
            let error = Error::Fatal(message);
            self.failure.send_replace(Some(error.clone()));
            return Err(EtcdError {
                error,
                ..EtcdError::unavailable("", RetrySafety::NotRetryable)
            });
        }
        self.observe_revision(revision);
        Ok(revision)
    }

    pub(super) fn observe_revision(&self, revision: u64) {
        self.newest_revision.fetch_max(revision, Ordering::AcqRel);
    }

    pub(super) async fn open_watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<EtcdWatchStream, EtcdError> {
        let newest = after > 0 && after >= self.newest_revision.load(Ordering::Acquire);
        EtcdWatchStream::open(&self.endpoints, &self.keys, prefix, after, newest).await
    }

    /// Reads the version of every server; returns whether all responded.
    pub(super) async fn check_versions(&self) -> bool {
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

    pub(super) fn supports_progress(&self) -> bool {
        self.progress_reliable.load(Ordering::Acquire)
            && !self.progress_disabled.load(Ordering::Acquire)
    }

    pub(super) fn disable_progress(&self) {
        if !self.progress_disabled.swap(true, Ordering::AcqRel) {
            tracing::info!("etcd does not report watch progress: consistent lists read from etcd");
        }
    }

    /// The compaction revision, which etcd reports only to a watch; `at_least` when etcd does
    /// not answer in time.
    pub(super) async fn compact_revision(&self, at_least: u64) -> u64 {
        let compaction_error = async {
            let opened =
                EtcdWatchStream::open(&self.endpoints, &self.keys, PROBE_KEY, 0, false).await;
            let mut stream = match opened {
                Ok(stream) => stream,
                Err(failure) => return failure.error,
            };
            loop {
                match stream.next().await {
                    Ok(EtcdWatchMessage::Compacted(at)) => return Error::Compacted { at },
                    Ok(_) => {}
                    Err(message) => return Error::Unavailable(message),
                }
            }
        };
        match timeout(PROBE_INTERVAL, compaction_error).await {
            Ok(Error::Compacted { at }) => at.max(at_least),
            _ => at_least,
        }
    }

    /// Adds the revisions that etcd's errors lack.
    pub(super) async fn complete_error(&self, error: Error) -> Error {
        match error {
            Error::Compacted { at } => Error::Compacted {
                at: self.compact_revision(at).await,
            },
            Error::Future { requested, .. } => match self.current_revision().await {
                Ok(current) => Error::Future { requested, current },
                Err(failure) => failure.error,
            },
            other => other,
        }
    }

    pub(super) async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let outer = self.keys.encode_key(key);
        let response = self
            .endpoints
            .call(RetryPolicy::Repeatable, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), outer.clone());
                async move { kv.get(key, None).await }
            })
            .await?
            .0;
        let revision = response.header.map_or(0, |h| to_revision(h.revision));
        self.observe_revision(revision);
        let kv = response.kvs.into_iter().next();
        self.decode_newest(kv, revision).await
    }

    pub(super) async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let response = self.read_range(range, false).await?;
        let current = response.header.map_or(0, |h| to_revision(h.revision));
        let revision = match range.revision {
            0 => current,
            revision => revision,
        };
        let count = response.kvs.len() as u64;
        let decoded = self.decode_key_values(response.kvs, revision).await;
        Ok(RangeResponse {
            remaining: to_revision(response.count).saturating_sub(count),
            kvs: match range.revision {
                0 => decoded.map_err(newest_read_error)?,
                _ => decoded?,
            },
            revision,
        })
    }

    /// The keys of a range as etcd stores them.
    pub(super) async fn read_range(
        &self,
        range: &RangeRequest,
        keys_only: bool,
    ) -> StoreResult<PbRangeResponse> {
        let (start, end) = (
            self.keys.encode_key(&range.start),
            self.keys.encode_key(&range.end),
        );
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let response = self
            .endpoints
            .call(RetryPolicy::Repeatable, range.revision, |endpoint| {
                let mut options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(limit)
                    .with_revision(to_etcd_revision(range.revision));
                if keys_only {
                    options = options.with_keys_only();
                }
                let (mut kv, start) = (endpoint.kv.clone(), start.clone());
                async move { kv.get(start, Some(options)).await }
            })
            .await;
        let response = match response {
            Ok(response) => response.0,
            Err(error) => return Err(self.complete_error(error).await),
        };
        let current = response.header.as_ref();
        self.observe_revision(current.map_or(0, |h| to_revision(h.revision)));
        Ok(response)
    }

    /// Fails for a revision from which no watch can start.
    pub(super) async fn check_watchable(&self, revision: u64) -> StoreResult<()> {
        let key = self.keys.encode_key(PROBE_KEY);
        let requested = to_etcd_revision(revision.max(1));
        let response = self
            .endpoints
            .call(RetryPolicy::Repeatable, revision, |endpoint| {
                let options = GetOptions::new().with_count_only().with_revision(requested);
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move { kv.get(key, Some(options)).await }
            })
            .await;
        match response {
            Ok(_) => Ok(()),
            Err(error) => Err(self.complete_error(error).await),
        }
    }

    /// Commits a transaction whose value is stored whole.
    pub(super) async fn commit_txn(
        &self,
        txn: &SingleKeyTxn,
        lease: Option<i64>,
    ) -> Result<TxnResponse, EtcdError> {
        let key = self.keys.encode_key(&txn.key);
        let write = match &txn.op {
            SingleKeyTxnOp::Put { value, .. } => {
                let options = lease.map(|id| PutOptions::new().with_lease(id));
                TxnOp::put(key, encode_whole_value(value), options)
            }
            SingleKeyTxnOp::Delete => TxnOp::delete(key, None),
        };
        let result = self.send_txn(txn, &[], &[write]).await?;
        self.txn_response(result).await
    }

    /// Sends a transaction that writes if the key is unchanged and `compares` hold.
    pub(super) async fn send_txn(
        &self,
        txn: &SingleKeyTxn,
        compares: &[Compare],
        writes: &[TxnOp],
    ) -> Result<EtcdTxnResult, EtcdError> {
        let key = self.keys.encode_key(&txn.key);
        let response = self
            .endpoints
            .call_with_failure(RetryPolicy::NonRepeatable, 0, |endpoint| {
                let unchanged = Compare::mod_revision(
                    key.clone(),
                    CompareOp::Equal,
                    to_etcd_revision(txn.expected),
                );
                let compares = std::iter::once(unchanged).chain(compares.iter().cloned());
                let request = etcd_client::Txn::new()
                    .when(compares.collect::<Vec<_>>())
                    .and_then(writes)
                    .or_else([TxnOp::get(key.clone(), None)]);
                let mut kv = endpoint.kv.clone();
                async move { kv.txn(request).await }
            })
            .await?
            .0;
        let revision = response.header.map_or(0, |h| to_revision(h.revision));
        self.observe_revision(revision);
        Ok(EtcdTxnResult {
            succeeded: response.succeeded,
            revision,
            current: match response.succeeded {
                true => None,
                false => first_key_value(response.responses),
            },
        })
    }

    pub(super) async fn txn_response(
        &self,
        result: EtcdTxnResult,
    ) -> Result<TxnResponse, EtcdError> {
        let EtcdTxnResult {
            succeeded,
            revision,
            current,
        } = result;
        if succeeded {
            return Ok(TxnResponse::Committed { revision });
        }
        let current = self.decode_newest(current, revision).await;
        let current = current.map_err(EtcdError::not_retryable)?;
        Ok(TxnResponse::Conflict { current })
    }

    pub(super) async fn put_with_ttl(
        &self,
        txn: &SingleKeyTxn,
        ttl: Duration,
    ) -> StoreResult<TxnResponse> {
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

    pub(super) async fn compact(&self, revision: u64) -> StoreResult<()> {
        if revision == 0 {
            return Ok(());
        }
        let response = self
            .endpoints
            .call(RetryPolicy::Repeatable, revision, |endpoint| {
                let mut kv = endpoint.kv.clone();
                async move {
                    kv.compact(to_etcd_revision(revision), Some(CompactionOptions::new()))
                        .await
                }
            })
            .await;
        match response {
            // Another replica has compacted already.
            Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(self.complete_error(error).await),
        }
    }
}

/// The response to a transaction on one key.
pub(super) struct EtcdTxnResult {
    pub(super) succeeded: bool,
    /// The revision of the store after the transaction.
    pub(super) revision: u64,
    /// The key as it is, where the transaction did not succeed.
    pub(super) current: Option<PbKeyValue>,
}

/// The result of the `get` in the else branch of a transaction.
pub(super) fn first_key_value(responses: Vec<PbResponseOp>) -> Option<PbKeyValue> {
    match responses.into_iter().next()?.response? {
        PbTxnOpResponse::ResponseRange(range) => range.kvs.into_iter().next(),
        _ => None,
    }
}
