//! Where objects are kept: opens the engine that was chosen, and hands the rest of
//! the binary a [`Store`] that does not say which one it is.

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use flotilla_http::Check;
use metrics::{Figure, Shape};
use storage::{Embedded, Store};

/// Which engine, and how.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// In the data directory.
    Embedded {
        /// Whether writes wait for the disk.
        sync: bool,
    },
}

impl Choice {
    /// Whether other processes may use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Embedded { .. } => false,
        }
    }
}

/// An open engine.
pub(crate) struct Engine {
    store: Arc<dyn Store>,
    kind: Kind,
}

enum Kind {
    Embedded(Arc<Embedded>),
}

impl Engine {
    /// Opens the engine; one that lives on this machine takes `dir`.
    pub(crate) async fn open(choice: &Choice, dir: &Path) -> anyhow::Result<Self> {
        match choice {
            Choice::Embedded { sync } => {
                let options = storage::Options {
                    sync: *sync,
                    ..storage::Options::default()
                };
                let dir = dir.to_owned();
                let open = move || Embedded::open(&dir, options);
                let embedded = Arc::new(tokio::task::spawn_blocking(open).await??);
                Ok(Self {
                    store: Arc::clone(&embedded) as Arc<dyn Store>,
                    kind: Kind::Embedded(embedded),
                })
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The health check `etcd`: the name that probes know, whatever the engine.
    pub(crate) fn check(&self) -> Check {
        match &self.kind {
            Kind::Embedded(embedded) => {
                let alive = Arc::downgrade(embedded);
                Check::live("etcd", move || {
                    alive
                        .upgrade()
                        .map(drop)
                        .ok_or_else(|| "the store is closed".into())
                })
            }
        }
    }

    /// Tells how large the store is, whenever somebody asks.
    pub(crate) fn tell(&self, metrics: &metrics::Registry) {
        let size = Figure::new(
            "apiserver_storage_size_bytes",
            "Bytes that the store takes on its disk.",
            Shape::Gauge,
            &["storage_cluster_id"],
        );
        match &self.kind {
            Kind::Embedded(embedded) => {
                let embedded = Arc::downgrade(embedded);
                metrics.read(&[size], move |readings| {
                    if let Some(embedded) = embedded.upgrade() {
                        let bytes = embedded.stats().disk_bytes as f64;
                        readings.set("apiserver_storage_size_bytes", &["etcd-0"], bytes);
                    }
                });
            }
        }
    }

    /// Resolves, with the reason, when the engine has failed for good.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        match &self.kind {
            Kind::Embedded(embedded) => anyhow!("{}", embedded.failed().await),
        }
    }

    /// Finishes what is under way; calls after this are refused.
    pub(crate) async fn close(&self) {
        match &self.kind {
            Kind::Embedded(embedded) => embedded.close().await,
        }
    }
}
