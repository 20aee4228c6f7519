//! Member clusters of real components, and commands of the binary under test.
//!
//! Each member has a kube-apiserver, a kube-controller-manager with all its controllers, and a
//! hollow kubelet, so that pods become Ready. The members share one etcd.

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
/// The programs of a real cluster. Call `harness::tools` with them on the thread of the test,
/// whose name is recorded if one is missing.
pub(crate) const REAL: [&str; 3] = ["etcd-3.5", "kube-apiserver", "kube-controller-manager"];

/// A real cluster with hollow nodes.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) cluster: Cluster,
    pub(crate) server: Server,
    /// The hollow kubelet with its informers and tasks.
    _kubelet: (Arc<Hollow>, Informers, Tasks),
}

impl Member {
    /// Starts one cluster on an etcd of its own.
    ///
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
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

/// All members and the etcd that they share.
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    _etcd: Etcd,
}

impl Members {
    /// Starts the clusters of [`MEMBER_NAMES`].
    ///
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
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

/// Runs all functions in parallel; returns `None` if one of them does.
pub(crate) fn abreast<T: Send, const N: usize>(
    all: [impl FnOnce() -> Option<T> + Send; N],
) -> Option<Vec<T>> {
    std::thread::scope(|scope| {
        let running = all.map(|one| scope.spawn(one));
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// Runs `flotilla ARGUMENTS`, which must succeed; returns its output.
pub(crate) async fn flotilla(arguments: &[&str]) -> String {
    harness::process::run(BINARY, arguments).await
}

/// Runs `flotilla join` and waits until the cluster is Ready.
pub(crate) async fn join(control: &Server, kubeconfig: &Path, member: &Member) {
    let control_config = path(kubeconfig);
    let member_config = path(&member.cluster.kubeconfig);
    let arguments = [
        "join",
        member.name,
        "--cluster-kubeconfig",
        &member_config,
        "--kubeconfig",
        &control_config,
    ];
    flotilla(&arguments).await;
    control.until_ready(member.name).await;
}

pub(crate) fn path(path: &Path) -> String {
    path.display().to_string()
}
