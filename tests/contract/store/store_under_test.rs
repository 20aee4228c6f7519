//! A store of each engine, as the cases get it.

use std::sync::Arc;
use std::time::Duration;

use storage::etcd::{self, EtcdStore};
use storage::{ConsistentReadSupport, DeltaOptions, EmbeddedStore, EmbeddedStoreOptions, Store};

use crate::contract::store::operations::ArcDynStore;

/// A store with the handle that closes it.
pub(crate) struct StoreUnderTest {
    pub(crate) store: ArcDynStore,
    handle: StoreEngineHandle,
}

enum StoreEngineHandle {
    Embedded(
        Arc<EmbeddedStore>,
        #[expect(dead_code, reason = "held")] Option<tempfile::TempDir>,
    ),
    Etcd(
        Arc<EtcdStore>,
        #[expect(dead_code, reason = "held")] harness::EtcdCluster,
    ),
}

impl StoreUnderTest {
    pub(crate) async fn memory() -> Option<Self> {
        let store = EmbeddedStore::in_memory(options()).unwrap();
        Some(Self::embedded(store, None))
    }

    pub(crate) async fn disk() -> Option<Self> {
        Some(Self::on_disk(options()))
    }

    pub(crate) async fn disk_without_sync() -> Option<Self> {
        Some(Self::on_disk(EmbeddedStoreOptions {
            sync: false,
            ..options()
        }))
    }

    /// All values are stored as deltas, however small.
    fn on_disk(options: EmbeddedStoreOptions) -> Self {
        let options = EmbeddedStoreOptions {
            deltas: all_deltas(),
            ..options
        };
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), options).unwrap();
        Self::embedded(store, Some(directory))
    }

    fn embedded(store: EmbeddedStore, directory: Option<tempfile::TempDir>) -> Self {
        let store = Arc::new(store);
        Self {
            store: Arc::clone(&store) as ArcDynStore,
            handle: StoreEngineHandle::Embedded(store, directory),
        }
    }

    /// etcd 3.4, whose progress notifications are not reliable.
    pub(crate) async fn etcd_34() -> Option<Self> {
        let support = ConsistentReadSupport::Unsupported;
        Self::etcd(harness::etcd::VERSION_3_4, support, None).await
    }

    pub(crate) async fn etcd_35() -> Option<Self> {
        let support = ConsistentReadSupport::ProgressRequest;
        Self::etcd(harness::etcd::VERSION_3_5, support, None).await
    }

    /// etcd 3.5; all values are stored as deltas.
    pub(crate) async fn etcd_deltas() -> Option<Self> {
        let support = ConsistentReadSupport::ProgressRequest;
        Self::etcd(harness::etcd::VERSION_3_5, support, Some(all_deltas())).await
    }

    async fn etcd(
        version: &str,
        proof: ConsistentReadSupport,
        deltas: Option<DeltaOptions>,
    ) -> Option<Self> {
        let server = harness::EtcdCluster::start(version, 1)?;
        let format = deltas.as_ref().map(|_| storage::format::DELTAS);
        let options = etcd::EtcdOptions {
            servers: vec![server.endpoints()],
            history_retention: None,
            deltas: etcd::EtcdDeltaOptions {
                keys: deltas.unwrap_or_default(),
                ..etcd::EtcdDeltaOptions::default()
            },
            ..etcd::EtcdOptions::default()
        };
        let store = Arc::new(EtcdStore::open(options).await.unwrap());
        if let Some(format) = format {
            store.raise_format(format).await.unwrap();
        }
        assert_eq!(store.consistent_read_support(), proof);
        Some(Self {
            store: Arc::clone(&store) as ArcDynStore,
            handle: StoreEngineHandle::Etcd(store, server),
        })
    }

    pub(crate) async fn close(self) {
        match self.handle {
            StoreEngineHandle::Embedded(store, _) => store.close().await,
            StoreEngineHandle::Etcd(store, _) => store.close().await,
        }
    }
}

fn all_deltas() -> DeltaOptions {
    DeltaOptions {
        prefixes: vec!["/".into()],
        minimum_bytes: 0,
    }
}

fn options() -> EmbeddedStoreOptions {
    EmbeddedStoreOptions {
        history_retention: None,
        key_expiry_interval: Duration::from_millis(20),
        ..EmbeddedStoreOptions::default()
    }
}
