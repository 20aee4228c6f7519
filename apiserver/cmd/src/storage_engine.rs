//! The storage flags, and the storage engine that they choose. The rest of the binary
//! uses it as a [`Store`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use client::{Api, TaskGroup};
use encryption_configuration::EncryptableResources;
use flotilla_http::{BackupOpener, HealthCheck, HealthProbe};
use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType};
use futures_util::{StreamExt, stream};
use machinery::Status;
use machinery::time::Clock;
use server_certificates::{CertificateUse, report_certificate};
use storage::backup::{BackupSource, BackupStream};
use storage::encryption::{EncryptedStore, ResourceTransformers, is_encrypted};
use storage::etcd::{self, CurrentEtcdTlsFn, EtcdStore, EtcdTls};
use storage::{
    DeltaOptions, EmbeddedStore, Error, RangeRequest, Store, StoreFaultKind, StoreHealth, format,
};
use tokio::sync::watch;

use crate::flag_modes::EffectiveMode;
use crate::store_events::StoreFaultEventRecorder;

/// The chosen engine with its options.
#[derive(Clone, Debug)]
pub(crate) enum StorageBackendConfig {
    /// The embedded store in the data directory.
    Embedded {
        /// Whether writes wait for fsync.
        sync: bool,
    },
    Etcd(Box<etcd::EtcdOptions>),
}

/// The flags that select an etcd, named as kube-apiserver's.
#[derive(Args)]
#[command(next_help_heading = "Etcd flags")]
pub(crate) struct EtcdConnectionArgs {
    /// List of etcd servers to connect with (https://ip:port), comma separated, of version
    /// 3.4 or newer; several replicas can share them. Without it, objects are stored in
    /// the data directory.
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// SSL Certificate Authority file used to secure etcd communication; by default the
    /// CAs of the system.
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// SSL certification file used to secure etcd communication.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_keyfile"])]
    etcd_certfile: Option<PathBuf>,
    /// SSL key file used to secure etcd communication.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    etcd_keyfile: Option<PathBuf>,
    /// The prefix to prepend to all resource paths in etcd; it must not be the prefix of a
    /// kube-apiserver.
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "/registry",
        requires = "etcd_servers"
    )]
    etcd_prefix: String,
}

impl EtcdConnectionArgs {
    /// How to connect; `None` without etcd servers.
    pub(crate) fn options(&self) -> anyhow::Result<Option<etcd::EtcdOptions>> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let files = EtcdCertificateFiles {
            ca: self.etcd_cafile.clone(),
            certificate: self.etcd_certfile.clone(),
            key: self.etcd_keyfile.clone(),
        };
        Ok(Some(etcd::EtcdOptions {
            servers: self.etcd_servers.clone(),
            tls: Some(files.read()?),
            renewed_tls: Some(CurrentEtcdTlsFn(Arc::new(move || {
                files.read().map_err(|error| format!("{error:#}"))
            }))),
            prefix: self.etcd_prefix.clone(),
            ..etcd::EtcdOptions::default()
        }))
    }
}

/// The storage flags, named as kube-apiserver's.
#[derive(Args)]
#[group(id = "storage")]
#[command(next_help_heading = "Etcd flags")]
pub(crate) struct StorageArgs {
    #[command(flatten)]
    etcd: EtcdConnectionArgs,
    /// Create and renew certificates for mutual TLS with etcd in this Secret of the host,
    /// in Flotilla's own namespace; etcd is started with its ca.crt, server.crt and
    /// server.key. Only behind another API server.
    #[arg(long, value_name = "NAME", requires = "etcd_servers",
          conflicts_with_all = ["etcd_cafile", "etcd_certfile"],
          add = EffectiveMode::BehindHost)]
    etcd_certificates_secret: Option<String>,
    /// Store a Work in etcd as its difference from a similar one, so that the manifest of a
    /// template is stored once for all clusters. Set it after every replica was upgraded: a
    /// version that does not know this form stops, and refuses to start on this etcd from
    /// then on.
    #[arg(long, requires = "etcd_servers")]
    etcd_deltas: bool,
    /// The file containing configuration for encryption providers to be used for storing
    /// resources (EncryptionConfiguration, with the providers aesgcm, secretbox and
    /// identity). It is read once, at the start.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
}

impl StorageArgs {
    /// Whether other processes may use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        !self.etcd.etcd_servers.is_empty()
    }

    /// The transformers of the encryption configuration, if there is one.
    pub(crate) fn encryption(
        &self,
        scope: EncryptableResources,
    ) -> anyhow::Result<Option<ResourceTransformers>> {
        let file = self.encryption_provider_config.as_ref();
        file.map(|file| encryption_configuration::load(file, scope))
            .transpose()
    }

    /// The Secret in which certificates for etcd are created.
    pub(crate) fn certificates_secret(&self) -> Option<&str> {
        self.etcd_certificates_secret.as_deref()
    }

    /// The chosen engine.
    pub(crate) fn backend(&self) -> anyhow::Result<StorageBackendConfig> {
        Ok(match self.etcd.options()? {
            None => StorageBackendConfig::Embedded { sync: true },
            Some(mut options) => {
                if self.etcd_deltas {
                    options.deltas.keys = etcd_delta_options();
                }
                StorageBackendConfig::Etcd(Box::new(options))
            }
        })
    }
}

/// The files of `--etcd-cafile`, `--etcd-certfile` and `--etcd-keyfile`. They are read
/// again, since a renewal replaces their content.
struct EtcdCertificateFiles {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl EtcdCertificateFiles {
    fn read(&self) -> anyhow::Result<EtcdTls> {
        let read = |flag: &str, file: &Option<PathBuf>| {
            let read = |file: &PathBuf| {
                let text = std::fs::read(file);
                text.with_context(|| format!("cannot read {flag} {}", file.display()))
            };
            file.as_ref().map(read).transpose()
        };
        let certificate = read("--etcd-certfile", &self.certificate)?;
        let key = read("--etcd-keyfile", &self.key)?;
        if let Some(pem) = &certificate {
            report_certificate(CertificateUse::EtcdClient, pem);
        }
        Ok(EtcdTls {
            ca: read("--etcd-cafile", &self.ca)?,
            identity: certificate.zip(key),
        })
    }
}

impl std::fmt::Display for StorageBackendConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded { .. } => f.write_str("embedded"),
            Self::Etcd(options) => {
                let servers = options.servers.join(",");
                write!(f, "etcd {servers} below {}", options.prefix)
            }
        }
    }
}

impl StorageBackendConfig {
    /// Whether other processes may use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Embedded { .. } => false,
            Self::Etcd(_) => true,
        }
    }
}

/// The Works of one template have the same name in the namespaces of all clusters.
pub(crate) const WORK_PREFIX: &str = "/registry/work.karmada.io/works/";
/// The keys whose values the embedded store keeps as differences from similar ones: those that
/// controllers write for each cluster, or again and again. The status of templates, bindings,
/// Rollouts and Clusters changes, and histories grow.
const DELTA_PREFIXES: [&str; 11] = [
    WORK_PREFIX,
    "/registry/work.karmada.io/resourcebindings/",
    "/registry/work.karmada.io/clusterresourcebindings/",
    "/registry/cluster.karmada.io/clusters/",
    "/registry/rollout.flotilla.io/rollouts/",
    "/registry/history.flotilla.io/templatehistories/",
    "/registry/history.flotilla.io/clustertemplatehistories/",
    "/registry/events/",
    "/registry/deployments/",
    "/registry/statefulsets/",
    "/registry/daemonsets/",
];
/// Smaller objects are stored whole.
const DELTA_MINIMUM_BYTES: usize = 512;

pub(crate) fn delta_options() -> DeltaOptions {
    DeltaOptions {
        prefixes: DELTA_PREFIXES.map(str::to_owned).into(),
        minimum_bytes: DELTA_MINIMUM_BYTES,
    }
}

/// The values that etcd keeps as differences. Where no other object resembles one, its base would be
/// another key, which is deleted only by a later round.
fn etcd_delta_options() -> DeltaOptions {
    DeltaOptions {
        prefixes: vec![WORK_PREFIX.to_owned()],
        minimum_bytes: DELTA_MINIMUM_BYTES,
    }
}

/// An open engine.
pub(crate) struct OpenedStorageEngine {
    /// The engine behind the encryption.
    store: Arc<dyn Store>,
    engine: EmbeddedOrEtcdStore,
}

enum EmbeddedOrEtcdStore {
    Embedded(Arc<EmbeddedStore>),
    Etcd(Arc<EtcdStore>),
}

impl OpenedStorageEngine {
    /// Opens the engine; the embedded store uses `dir`.
    pub(crate) async fn open(
        choice: &StorageBackendConfig,
        encryption: Option<ResourceTransformers>,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let format = match &encryption {
            Some(_) => format::ENCRYPTED,
            None => format::BASE,
        };
        // Also without a configuration, so that encrypted values are reported as such.
        let encryption = encryption.unwrap_or_default();
        match choice {
            StorageBackendConfig::Embedded { sync } => {
                let options = storage::EmbeddedStoreOptions {
                    sync: *sync,
                    format,
                    deltas: delta_options(),
                    ..storage::EmbeddedStoreOptions::default()
                };
                let dir = dir.to_owned();
                let open = move || EmbeddedStore::open(&dir, options);
                let embedded = Arc::new(tokio::task::spawn_blocking(open).await??);
                let engine = Arc::clone(&embedded) as Arc<dyn Store>;
                let prefix = etcd::EtcdOptions::default().prefix;
                Ok(Self {
                    store: Arc::new(EncryptedStore::new(engine, encryption, &prefix)),
                    engine: EmbeddedOrEtcdStore::Embedded(embedded),
                })
            }
            StorageBackendConfig::Etcd(options) => {
                let opened = Box::pin(EtcdStore::open((**options).clone())).await;
                let etcd = Arc::new(opened.map_err(etcd_error)?);
                Box::pin(check_foreign_data(&etcd, options)).await?;
                // After the check, so that nothing is written to the data of another
                // program.
                let has_deltas = !options.deltas.keys.prefixes.is_empty();
                let deltas = if has_deltas {
                    format::DELTAS
                } else {
                    format::BASE
                };
                let format = format::union(format, deltas);
                etcd.raise_format(format).await.map_err(etcd_error)?;
                let engine = Arc::clone(&etcd) as Arc<dyn Store>;
                Ok(Self {
                    store: Arc::new(EncryptedStore::new(engine, encryption, &options.prefix)),
                    engine: EmbeddedOrEtcdStore::Etcd(etcd),
                })
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Begins backups of what the engine stores, below the encryption.
    pub(crate) fn backup_opener(&self, clock: &Arc<dyn Clock>) -> BackupOpener {
        let source: Arc<dyn BackupSource> = match &self.engine {
            EmbeddedOrEtcdStore::Embedded(embedded) => Arc::clone(embedded) as _,
            EmbeddedOrEtcdStore::Etcd(etcd) => Arc::clone(etcd) as _,
        };
        let (source, clock) = (Arc::downgrade(&source), Arc::clone(clock));
        Arc::new(move || {
            let (source, clock) = (source.upgrade(), Arc::clone(&clock));
            Box::pin(async move {
                let closed = || Status::unavailable("the store is closed");
                let source = source.ok_or_else(closed)?;
                let begun = BackupStream::begin(source, &*clock).await;
                let stream = begun.map_err(|error| Status::unavailable(error.to_string()))?;
                let chunks = stream::unfold(stream, |mut stream| async move {
                    let chunk = stream.next_chunk().await?;
                    Some((chunk, stream))
                });
                Ok(chunks.boxed())
            })
        })
    }

    /// Whether the store answers reads.
    pub(crate) fn probe(&self) -> HealthProbe {
        let closed = || "the store is closed".to_owned();
        match &self.engine {
            EmbeddedOrEtcdStore::Embedded(embedded) => {
                let embedded = Arc::downgrade(embedded);
                Arc::new(move || embedded.upgrade().map(drop).ok_or_else(closed))
            }
            EmbeddedOrEtcdStore::Etcd(etcd) => {
                let etcd = Arc::downgrade(etcd);
                Arc::new(move || etcd.upgrade().ok_or_else(closed)?.health())
            }
        }
    }

    /// The health check `etcd`, which has this name for every engine since probes use it,
    /// and one check for each fault that keeps the embedded store from writing.
    pub(crate) fn checks(&self) -> Vec<HealthCheck> {
        let probe = self.probe();
        let EmbeddedOrEtcdStore::Embedded(embedded) = &self.engine else {
            return vec![HealthCheck::liveness("etcd", move || probe())];
        };
        let health = embedded.health();
        let fault_of = move |kind: Option<StoreFaultKind>| match &health.borrow().fault {
            Some(fault) if kind.is_none_or(|kind| kind == fault.kind) => Err(fault.message.clone()),
            _ => Ok(()),
        };
        let each = StoreFaultKind::ALL.map(|kind| {
            let fault_of = fault_of.clone();
            HealthCheck::liveness(format!("storage-{}", kind.name()), move || {
                fault_of(Some(kind))
            })
        });
        let all = HealthCheck::liveness("etcd", move || probe().and_then(|()| fault_of(None)));
        std::iter::once(all).chain(each).collect()
    }

    /// Records events of the faults of the embedded store until `tasks` are stopped.
    pub(crate) fn record_faults(
        &self,
        api: &Arc<dyn Api>,
        clock: &Arc<dyn Clock>,
        tasks: &TaskGroup,
    ) {
        let EmbeddedOrEtcdStore::Embedded(embedded) = &self.engine else {
            return;
        };
        let (api, clock) = (Arc::clone(api), Arc::clone(clock));
        let recorder = StoreFaultEventRecorder::new(api, clock, embedded.health());
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move {
            stop.run_until_triggered(recorder.run()).await;
        });
    }

    /// Registers the metrics of the store's size and faults.
    pub(crate) fn register_metrics(&self, metrics: &flotilla_metrics::MetricsRegistry) {
        let size = CallbackMetricDesc::new(
            "apiserver_storage_size_bytes",
            "Size of the storage database file physically allocated in bytes.",
            CallbackMetricType::Gauge,
            &["storage_cluster_id"],
        );
        match &self.engine {
            EmbeddedOrEtcdStore::Embedded(embedded) => {
                register_fault_metrics(embedded.health(), metrics);
                let embedded = Arc::downgrade(embedded);
                metrics.register_callback(&[size], move |writer| {
                    if let Some(embedded) = embedded.upgrade() {
                        let bytes = embedded.stats().disk_bytes as f64;
                        writer.set("apiserver_storage_size_bytes", &["etcd-0"], bytes);
                    }
                });
            }
            EmbeddedOrEtcdStore::Etcd(etcd) => {
                let etcd = Arc::downgrade(etcd);
                metrics.register_callback(&[size], move |writer| {
                    let sizes = etcd.upgrade().map_or_else(Vec::new, |etcd| etcd.sizes());
                    for (n, bytes) in sizes.iter().enumerate() {
                        let label = format!("etcd-{n}");
                        writer.set("apiserver_storage_size_bytes", &[&label], *bytes as f64);
                    }
                });
            }
        }
    }

    /// Resolves with the error when the engine has failed permanently.
    pub(crate) async fn wait_for_failure(&self) -> anyhow::Error {
        match &self.engine {
            EmbeddedOrEtcdStore::Embedded(embedded) => {
                anyhow!("{}", embedded.wait_for_failure().await)
            }
            EmbeddedOrEtcdStore::Etcd(etcd) => anyhow!("{}", etcd.wait_for_failure().await),
        }
    }

    /// Finishes the requests in flight; later calls fail.
    pub(crate) async fn close(&self) {
        match &self.engine {
            EmbeddedOrEtcdStore::Embedded(embedded) => embedded.close().await,
            EmbeddedOrEtcdStore::Etcd(etcd) => etcd.close().await,
        }
    }
}

/// Registers the metrics of the embedded store's faults.
fn register_fault_metrics(
    health: watch::Receiver<StoreHealth>,
    metrics: &flotilla_metrics::MetricsRegistry,
) {
    const FAULT: &str = "flotilla_store_fault";
    const FAULTS: &str = "flotilla_store_faults_total";
    let descriptions = [
        CallbackMetricDesc::new(
            FAULT,
            "Whether a fault (space, disk, writer) keeps the store from writing.",
            CallbackMetricType::Gauge,
            &["fault"],
        ),
        CallbackMetricDesc::new(
            FAULTS,
            "Faults that kept the store from writing.",
            CallbackMetricType::Counter,
            &["fault"],
        ),
    ];
    metrics.register_callback(&descriptions, move |writer| {
        let health = health.borrow();
        for kind in StoreFaultKind::ALL {
            let now = health.fault.as_ref().is_some_and(|f| f.kind == kind);
            writer.set(FAULT, &[kind.name()], f64::from(u8::from(now)));
            writer.set(FAULTS, &[kind.name()], health.fault_count(kind) as f64);
        }
    });
}

fn etcd_error(error: Error) -> anyhow::Error {
    match error {
        Error::Unavailable(reason) | Error::Fatal(reason) => anyhow!("cannot use etcd: {reason}"),
        other => anyhow!("cannot use etcd: {other}"),
    }
}

/// Fails when a value below the prefix is not JSON: another program wrote it, probably a
/// kube-apiserver, whose prefix must not be shared. Encrypted values are accepted where
/// the stored format version allows them.
async fn check_foreign_data(store: &EtcdStore, options: &etcd::EtcdOptions) -> anyhow::Result<()> {
    const LOOKED_AT: usize = 100;
    let stored_format = store.format().await.map_err(etcd_error)?;
    let encrypts = format::has_encrypted_values(stored_format);
    // Every cluster has the namespace; the others are the first keys.
    let mut entries = Vec::from_iter(store.get("/registry/namespaces/default").await?);
    let range = RangeRequest {
        limit: LOOKED_AT,
        ..RangeRequest::prefix("/registry/")
    };
    entries.extend(store.range(&range).await?.kvs);
    let is_own = |e: &storage::KeyValue| {
        e.value.first() == Some(&b'{') || (encrypts && is_encrypted(&e.value))
    };
    let foreign = entries.iter().find(|e| !is_own(e));
    if let Some(entry) = foreign {
        bail!(
            "the etcd prefix {} holds data of another program, such as a kube-apiserver ({} is \
             not written by Flotilla); choose another with --etcd-prefix",
            options.prefix,
            entry.key
        );
    }
    Ok(())
}
