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
mod failure;
mod feed;
mod format;
mod keys;
mod lease;
mod renewal;
mod stream;
mod version;

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

pub use self::endpoints::{Tls, TlsSource};
pub(crate) use self::keys::Keys;

use self::endpoints::{Endpoints, Repeat};
use self::failure::{Again, Failure};
use self::feed::{Reader, Wanted};
use self::keys::{signed, unsigned};
use self::lease::Leases;
use self::stream::{Step, Stream};
use crate::store::{
    Entry, Error, Feed, MAX_REQUEST_BYTES, Op, Outcome, Page, Proof, Range, Result, Store, Txn,
};

/// A key that is never written; the header of its get response has the revision.
const NOWHERE: &str = "/registry/health";
/// The interval between two health probes, and the timeout of each.
const PROBE: Duration = Duration::from_secs(2);
const PROBES_PER_FORMAT_CHECK: usize = 5;
/// The interval at which the versions of the servers are read.
const LOOK: Duration = Duration::from_secs(60);
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The options of the etcd engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs: `https://HOST:PORT`, or `http://` without TLS.
    pub servers: Vec<String>,
    pub tls: Option<Tls>,
    /// The source from which `tls` is read again while the store is open.
    pub renewed_tls: Option<TlsSource>,
    /// The prefix of all keys (`--etcd-prefix`).
    pub prefix: String,
    /// How long history stays readable at least. `None`: this replica does not compact.
    pub history: Option<Duration>,
    /// How long [`EtcdStore::open`] waits until the cluster responds.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: None,
            renewed_tls: None,
            prefix: keys::ROOT.into(),
            history: Some(Duration::from_secs(300)),
            patience: Duration::from_secs(30),
        }
    }
}

struct Inner {
    endpoints: Endpoints,
    keys: Keys,
    leases: Leases,
    wanted: Wanted,
    /// Whether every server runs a version with reliable progress responses.
    progress: AtomicBool,
    /// Whether a server has sent a progress response without a revision; never reset.
    distrusted: AtomicBool,
    /// The newest revision of any response.
    seen: AtomicU64,
    /// The result of the last probe.
    health: Mutex<std::result::Result<(), String>>,
    failure: watch::Sender<Option<Error>>,
    stop: watch::Sender<bool>,
}

/// The store on etcd. [`EtcdStore::close`] ends its tasks and watches, and so does
/// dropping it.
pub struct Etcd {
    inner: Arc<Inner>,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Etcd({})", self.inner.endpoints.urls())
    }
}

impl Etcd {
    /// Connects, and waits until the cluster responds.
    ///
    /// # Errors
    /// [`Error::Fatal`] when a URL or certificate cannot be used; [`Error::Unavailable`]
    /// when no server responds in time, or when a server rejects the connection.
    pub async fn open(options: Options) -> Result<Self> {
        let endpoints = Endpoints::new(&options.servers, options.tls.as_ref())
            .await
            .map_err(Error::Fatal)?;
        let inner = Arc::new(Inner {
            endpoints,
            keys: Keys::new(&options.prefix),
            leases: Leases::default(),
            wanted: Wanted::default(),
            progress: AtomicBool::new(false),
            distrusted: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            health: Mutex::new(Ok(())),
            failure: watch::Sender::new(None),
            stop: watch::Sender::new(false),
        });
        inner.answered(options.patience).await?;
        format::read(&inner).await?;
        let all_known = inner.look().await;
        let mut tasks = JoinSet::new();
        let looking = Arc::clone(&inner);
        tasks.spawn(async move {
            let mut known = all_known;
            loop {
                tokio::time::sleep(if known { LOOK } else { FIRST_LOOK }).await;
                known = looking.look().await;
            }
        });
        let probing = Arc::clone(&inner);
        tasks.spawn(async move {
            loop {
                for _ in 0..PROBES_PER_FORMAT_CHECK {
                    tokio::time::sleep(PROBE).await;
                    probing.probe().await;
                }
                probing.check_format().await;
            }
        });
        if let Some(source) = options.renewed_tls {
            let (renewing, tls) = (Arc::clone(&inner), options.tls.clone());
            tasks.spawn(async move { renewal::run(&renewing, source, tls).await });
        }
        if let Some(every) = options.history {
            let compacting = Arc::clone(&inner);
            tasks.spawn(async move { compaction::run(&compacting, every).await });
        }
        Ok(Self {
            inner,
            tasks: Mutex::new(tasks),
        })
    }

    /// Ends all tasks and watches. Further calls fail with [`Error::Unavailable`].
    pub async fn close(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    /// The size in bytes of each server's database at its last status call; 0 where it is
    /// unknown.
    pub fn sizes(&self) -> Vec<u64> {
        let all = self.inner.endpoints.all();
        let sizes = all.iter().map(|e| e.size.load(Ordering::Relaxed));
        sizes.collect()
    }

    /// Resolves when the store has failed permanently, such as after etcd went back to an
    /// older revision. Never resolves otherwise.
    pub async fn failed(&self) -> Error {
        let mut failure = self.inner.failure.subscribe();
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
    pub fn health(&self) -> std::result::Result<(), String> {
        self.inner.alive().map_err(|e| e.to_string())?;
        self.inner.health.lock().clone()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.inner.stop.send_replace(true);
    }
}

impl Inner {
    fn alive(&self) -> Result<()> {
        if *self.stop.borrow() {
            return Err(Error::Unavailable("the store is closed".into()));
        }
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    async fn probe(&self) {
        let health = match timeout(PROBE, self.newest()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.error.to_string()),
            Err(_) => Err("etcd does not answer within 2 s".into()),
        };
        *self.health.lock() = health;
    }

    async fn answered(&self, open_timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let urls = self.endpoints.urls();
        let failures = FailureLog::new();
        loop {
            let failure = match self.newest().await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            let waited = start.elapsed();
            if failure.hopeless || failure.again == Again::Never {
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
    async fn newest(&self) -> std::result::Result<u64, Failure> {
        let before = self.seen.load(Ordering::Acquire);
        let key = self.keys.outer(NOWHERE);
        let answer = self
            .endpoints
            .attempt(Repeat::Freely, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move {
                    let options = GetOptions::new().with_count_only();
                    kv.get(key, Some(options)).await
                }
            })
            .await?;
        let revision = answer.0.header.map_or(0, |h| unsigned(h.revision));
        if revision < before {
            let why = format!(
                "etcd went back from revision {before} to {revision}, as after a restore from a \
                 backup; clients have seen later revisions, so this store cannot continue \
                 (restore with a higher revision, or restart all replicas)"
            );
            let error = Error::Fatal(why);
            self.failure.send_replace(Some(error.clone()));
            return Err(Failure {
                error,
                ..Failure::unavailable("", Again::Never)
            });
        }
        self.see(revision);
        Ok(revision)
    }

    fn see(&self, revision: u64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }

    async fn open(&self, prefix: &str, after: u64) -> std::result::Result<Stream, Failure> {
        let newest = after > 0 && after >= self.seen.load(Ordering::Acquire);
        Stream::open(&self.endpoints, &self.keys, prefix, after, newest).await
    }

    /// Reads the version of every server; returns whether all responded.
    async fn look(&self) -> bool {
        let mut all_true = true;
        let mut all_known = true;
        for endpoint in &*self.endpoints.all() {
            let mut client = endpoint.maintenance.clone();
            match timeout(PROBE, client.status()).await {
                Ok(Ok(status)) => {
                    all_true &= version::progress_is_true(status.version());
                    let size = unsigned(status.db_size());
                    endpoint.size.store(size, Ordering::Relaxed);
                }
                // The last result stands until the server responds.
                _ => all_known = false,
            }
        }
        if !all_true {
            self.progress.store(false, Ordering::Release);
        } else if all_known {
            self.progress.store(true, Ordering::Release);
        }
        all_known
    }

    fn progress(&self) -> bool {
        self.progress.load(Ordering::Acquire) && !self.distrusted.load(Ordering::Acquire)
    }

    fn distrust(&self) {
        if !self.distrusted.swap(true, Ordering::AcqRel) {
            tracing::info!("etcd does not report watch progress: consistent lists read from etcd");
        }
    }

    /// The compaction revision, which etcd reports only to a watch; 0 when it is unknown.
    async fn compacted(&self) -> u64 {
        let compaction_error = async {
            let opened = Stream::open(&self.endpoints, &self.keys, NOWHERE, 0, false).await;
            let mut stream = match opened {
                Ok(stream) => stream,
                Err(failure) => return failure.error,
            };
            loop {
                match stream.next().await {
                    Ok(Step::Compacted(at)) => return Error::Compacted { at },
                    Ok(_) => {}
                    Err(why) => return Error::Unavailable(why),
                }
            }
        };
        match timeout(PROBE, compaction_error).await {
            Ok(Error::Compacted { at }) => at,
            _ => 0,
        }
    }

    /// Adds the revisions that etcd's errors lack.
    async fn told(&self, error: Error) -> Error {
        match error {
            Error::Compacted { at: 0 } => Error::Compacted {
                at: self.compacted().await,
            },
            Error::Future { asked, .. } => match self.newest().await {
                Ok(current) => Error::Future { asked, current },
                Err(failure) => failure.error,
            },
            other => other,
        }
    }

    async fn range(&self, range: &Range) -> Result<Page> {
        let (start, end) = (self.keys.outer(&range.start), self.keys.outer(&range.end));
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let answer = self
            .endpoints
            .call(Repeat::Freely, range.at, |endpoint| {
                let options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(limit)
                    .with_revision(signed(range.at));
                let (mut kv, start) = (endpoint.kv.clone(), start.clone());
                async move { kv.get(start, Some(options)).await }
            })
            .await;
        let answer = match answer {
            Ok(answer) => answer.0,
            Err(error) => return Err(self.told(error).await),
        };
        let current = answer.header.map_or(0, |h| unsigned(h.revision));
        self.see(current);
        let count = answer.kvs.len() as u64;
        Ok(Page {
            remaining: unsigned(answer.count).saturating_sub(count),
            entries: answer
                .kvs
                .into_iter()
                .map(|kv| self.keys.entry(kv))
                .collect(),
            revision: if range.at == 0 { current } else { range.at },
        })
    }

    /// Fails for a revision from which no watch can start.
    async fn readable(&self, revision: u64) -> Result<()> {
        let key = self.keys.outer(NOWHERE);
        let requested = signed(revision.max(1));
        let answer = self
            .endpoints
            .call(Repeat::Freely, revision, |endpoint| {
                let options = GetOptions::new().with_count_only().with_revision(requested);
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move { kv.get(key, Some(options)).await }
            })
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(self.told(error).await),
        }
    }

    async fn write(&self, txn: &Txn, lease: Option<i64>) -> std::result::Result<Outcome, Failure> {
        let key = self.keys.outer(&txn.key);
        let answer = self
            .endpoints
            .attempt(Repeat::Never, 0, |endpoint| {
                let write = match &txn.op {
                    Op::Put { value, .. } => {
                        let options = lease.map(|id| PutOptions::new().with_lease(id));
                        TxnOp::put(key.clone(), value.to_vec(), options)
                    }
                    Op::Delete => TxnOp::delete(key.clone(), None),
                };
                let unchanged =
                    Compare::mod_revision(key.clone(), CompareOp::Equal, signed(txn.expected));
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
            let revision = answer.header.map_or(0, |h| unsigned(h.revision));
            self.see(revision);
            return Ok(Outcome::Committed { revision });
        }
        let current = found(answer.responses).map(|kv| self.keys.entry(kv));
        Ok(Outcome::Conflict { current })
    }

    async fn put_for(&self, txn: &Txn, ttl: Duration) -> Result<Outcome> {
        let mut tries = 0;
        loop {
            let lease = self.leases.get(&self.endpoints, ttl).await?;
            match self.write(txn, Some(lease)).await {
                Err(failure) if failure.lease_gone && tries < 2 => {
                    tries += 1;
                    self.leases.forget(lease).await;
                }
                other => return other.map_err(|failure| failure.error),
            }
        }
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        if revision == 0 {
            return Ok(());
        }
        let answer = self
            .endpoints
            .call(Repeat::Freely, revision, |endpoint| {
                let mut kv = endpoint.kv.clone();
                async move {
                    kv.compact(signed(revision), Some(CompactionOptions::new()))
                        .await
                }
            })
            .await;
        match answer {
            // Another replica has compacted already.
            Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(self.told(error).await),
        }
    }
}

/// The result of the `get` in the else branch of a transaction.
fn found(responses: Vec<PbResponseOp>) -> Option<PbKeyValue> {
    match responses.into_iter().next()?.response? {
        PbTxnOpResponse::ResponseRange(range) => range.kvs.into_iter().next(),
        _ => None,
    }
}

#[async_trait]
impl Store for Etcd {
    fn proof(&self) -> Proof {
        if self.inner.progress() {
            Proof::Asked
        } else {
            Proof::None
        }
    }

    async fn revision(&self) -> Result<u64> {
        self.inner.alive()?;
        let revision = self.inner.newest().await.map_err(|f| f.error)?;
        self.inner.wanted.raise(None, revision);
        Ok(revision)
    }

    async fn revision_of(&self, prefix: &str) -> Result<u64> {
        self.inner.alive()?;
        let revision = self.inner.newest().await.map_err(|f| f.error)?;
        self.inner.wanted.raise(Some(prefix), revision);
        Ok(revision)
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.inner.alive()?;
        let outer = self.inner.keys.outer(key);
        let answer = self
            .inner
            .endpoints
            .call(Repeat::Freely, 0, |endpoint| {
                let (mut kv, key) = (endpoint.kv.clone(), outer.clone());
                async move { kv.get(key, None).await }
            })
            .await?
            .0;
        self.inner
            .see(answer.header.map_or(0, |h| unsigned(h.revision)));
        let kv = answer.kvs.into_iter().next();
        Ok(kv.map(|kv| self.inner.keys.entry(kv)))
    }

    async fn range(&self, range: &Range) -> Result<Page> {
        self.inner.alive()?;
        self.inner.range(range).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.inner.alive()?;
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
                return Ok(Outcome::Conflict { current });
            }
            Op::Delete => None,
        };
        match ttl {
            Some(ttl) => self.inner.put_for(&txn, ttl).await,
            None => self.inner.write(&txn, None).await.map_err(|f| f.error),
        }
    }

    async fn watch(&self, prefix: &str, after: u64) -> Result<Box<dyn Feed>> {
        self.inner.alive()?;
        // The check is needed besides the watch: etcd would wait for a future revision, and
        // it reports a compacted one only later, within the watch.
        let (readable, opened) =
            tokio::join!(self.inner.readable(after), self.inner.open(prefix, after),);
        readable?;
        let stream = match opened {
            Ok(stream) => stream,
            Err(failure) => return Err(self.inner.told(failure.error).await),
        };
        let inner = Arc::clone(&self.inner);
        Ok(Box::new(Reader::new(inner, prefix, after, stream)))
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        self.inner.alive()?;
        self.inner.compact(revision).await
    }
}
