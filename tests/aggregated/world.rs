//! Clusters of real components, and the binary under test among them.
//!
//! Members have a kube-controller-manager with all its controllers and a hollow
//! kubelet, so that pods become Ready; they share an etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{Informers, Shutdown, Tasks};
use harness::cluster::{FULL, Options};
use harness::{Cluster, Etcd, Server, etcd};
use hollow::Hollow;
use machinery::time::SystemClock;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const NAMES: [&str; 2] = ["member1", "member2"];
/// What a real cluster is made of. Whoever starts one asks for these first, on the
/// thread that bears the name of the test.
pub(crate) const REAL: [&str; 3] = ["etcd-3.5", "kube-apiserver", "kube-controller-manager"];

/// A real cluster with nodes on paper.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) cluster: Cluster,
    pub(crate) server: Server,
    /// What the hollow kubelet runs on.
    _kubelet: (Arc<Hollow>, Informers, Tasks),
}

impl Member {
    /// A cluster of its own; `None`: something cannot be had here, which was said.
    pub(crate) async fn alone(name: &'static str) -> Option<(Self, Etcd)> {
        harness::tools(REAL)?;
        let started = tokio::task::spawn_blocking(move || {
            let etcd = Etcd::start(etcd::NEW, 1)?;
            let options = Options {
                name,
                controllers: FULL,
                flags: &[],
            };
            Some((Cluster::start(&options, &etcd)?, etcd))
        });
        let (cluster, etcd) = started.await.unwrap()?;
        Some((Self::of(name, cluster).await, etcd))
    }

    async fn of(name: &'static str, cluster: Cluster) -> Self {
        Self {
            name,
            server: Server::connect(name, &cluster.kubeconfig),
            _kubelet: kubelet(&cluster).await,
            cluster,
        }
    }
}

/// All members and the etcd below them.
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    _etcd: Etcd,
}

impl Members {
    /// `None`: something cannot be had here, which was said.
    pub(crate) async fn start() -> Option<Self> {
        harness::tools(REAL)?;
        let started = tokio::task::spawn_blocking(|| {
            let etcd = Etcd::start(etcd::NEW, 1)?;
            let clusters = abreast(NAMES.map(|name| {
                let etcd = &etcd;
                move || {
                    let options = Options {
                        name,
                        controllers: FULL,
                        flags: &[],
                    };
                    Cluster::start(&options, etcd)
                }
            }));
            Some((clusters?, etcd))
        });
        let (clusters, etcd) = started.await.unwrap()?;
        let mut all = Vec::new();
        for (name, cluster) in NAMES.into_iter().zip(clusters) {
            all.push(Member::of(name, cluster).await);
        }
        Some(Self { all, _etcd: etcd })
    }
}

async fn kubelet(cluster: &Cluster) -> (Arc<Hollow>, Informers, Tasks) {
    let tasks = Tasks::new(Shutdown::new());
    let informers = Informers::new(&tasks);
    let options = hollow::Options {
        nodes: 2,
        ready_after: Duration::from_millis(10),
        controllers: false,
        ..hollow::Options::default()
    };
    let clock = Arc::new(SystemClock);
    let started = Hollow::start(cluster.api(), clock, options, &informers, &tasks);
    (started.await.unwrap(), informers, tasks)
}

/// Runs all at the same time; `None` when one has none.
pub(crate) fn abreast<T: Send, const N: usize>(
    all: [impl FnOnce() -> Option<T> + Send; N],
) -> Option<Vec<T>> {
    std::thread::scope(|scope| {
        let running = all.map(|one| scope.spawn(one));
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// `flotilla ARGUMENTS`, which must succeed; what it prints.
pub(crate) async fn flotilla(arguments: &[&str]) -> String {
    harness::process::run(BINARY, arguments).await
}

/// `flotilla join`, and waits until the cluster is Ready.
pub(crate) async fn join(control: &Server, kubeconfig: &Path, member: &Member) {
    let (at, of) = (path(kubeconfig), path(&member.cluster.kubeconfig));
    let arguments = [
        "join",
        member.name,
        "--cluster-kubeconfig",
        &of,
        "--kubeconfig",
        &at,
    ];
    flotilla(&arguments).await;
    control.until_ready(member.name).await;
}

pub(crate) fn path(path: &Path) -> String {
    path.display().to_string()
}
