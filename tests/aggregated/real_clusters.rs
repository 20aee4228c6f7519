//! Member clusters of real components, and commands of the binary under test.
//!
//! Each member has a kube-apiserver, a kube-controller-manager with all its controllers, and a
//! hollow kubelet, so that pods become Ready. The members share one etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{InformerFactory, ShutdownToken, TaskGroup};
use flotilla_runtime::{ControllerContext, EventRecorder};
use harness::cluster::{DEFAULT_CONTROLLERS, KubernetesClusterOptions};
use harness::{ApiServerClient, EtcdCluster, KubernetesCluster, etcd};
use hollow::HollowCluster;
use machinery::time::SystemClock;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
pub(crate) const MEMBER_NAMES: [&str; 2] = ["member1", "member2"];
/// The programs of a real cluster. Call `harness::tools` with them on the thread of the test,
/// whose name is recorded if one is missing.
pub(crate) const CLUSTER_TOOLS: [&str; 3] =
    ["etcd-3.5", "kube-apiserver", "kube-controller-manager"];

/// A real cluster with hollow nodes.
pub(crate) struct RealMemberCluster {
    pub(crate) name: &'static str,
    pub(crate) cluster: KubernetesCluster,
    pub(crate) server: ApiServerClient,
    /// The hollow kubelet with its informers and tasks.
    _kubelet: (Arc<HollowCluster>, InformerFactory, TaskGroup),
}

impl RealMemberCluster {
    /// Starts one cluster on an etcd of its own.
    ///
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
    pub(crate) async fn start(name: &'static str) -> Option<(Self, EtcdCluster)> {
        harness::tools(CLUSTER_TOOLS)?;
        let started = tokio::task::spawn_blocking(move || {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let options = KubernetesClusterOptions {
                name,
                controllers: DEFAULT_CONTROLLERS,
                flags: &[],
            };
            Some((KubernetesCluster::start(&options, &etcd)?, etcd))
        });
        let (cluster, etcd) = started.await.unwrap()?;
        Some((Self::with_kubelet(name, cluster).await, etcd))
    }

    async fn with_kubelet(name: &'static str, cluster: KubernetesCluster) -> Self {
        Self {
            name,
            server: ApiServerClient::connect(name, &cluster.kubeconfig),
            _kubelet: start_kubelet(&cluster).await,
            cluster,
        }
    }
}

/// All members and the etcd that they share.
pub(crate) struct RealMemberClusters {
    pub(crate) all: Vec<RealMemberCluster>,
    _etcd: EtcdCluster,
}

impl RealMemberClusters {
    /// Starts the clusters of [`MEMBER_NAMES`].
    ///
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
    pub(crate) async fn start() -> Option<Self> {
        harness::tools(CLUSTER_TOOLS)?;
        let started = tokio::task::spawn_blocking(|| {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let clusters = start_in_parallel(MEMBER_NAMES.map(|name| {
                let etcd = &etcd;
                move || {
                    let options = KubernetesClusterOptions {
                        name,
                        controllers: DEFAULT_CONTROLLERS,
                        flags: &[],
                    };
                    KubernetesCluster::start(&options, etcd)
                }
            }));
            Some((clusters?, etcd))
        });
        let (clusters, etcd) = started.await.unwrap()?;
        let mut all = Vec::new();
        for (name, cluster) in MEMBER_NAMES.into_iter().zip(clusters) {
            all.push(RealMemberCluster::with_kubelet(name, cluster).await);
        }
        Some(Self { all, _etcd: etcd })
    }
}

async fn start_kubelet(
    cluster: &KubernetesCluster,
) -> (Arc<HollowCluster>, InformerFactory, TaskGroup) {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let informers = InformerFactory::new(&tasks);
    let options = hollow::HollowClusterOptions {
        nodes: 2,
        ready_after: Duration::from_millis(10),
        run_controllers: false,
        ..hollow::HollowClusterOptions::default()
    };
    let context = ControllerContext {
        control_plane: cluster.api(),
        informers: informers.clone(),
        clock: Arc::new(SystemClock),
        recorder: EventRecorder::disabled(),
        tasks: tasks.clone(),
    };
    let started = HollowCluster::start(&context, options);
    (started.await.unwrap(), informers, tasks)
}

/// Runs all functions in parallel; returns `None` if one of them does.
pub(crate) fn start_in_parallel<T: Send, const N: usize>(
    all: [impl FnOnce() -> Option<T> + Send; N],
) -> Option<Vec<T>> {
    std::thread::scope(|scope| {
        let running = all.map(|one| scope.spawn(one));
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// Runs `flotilla ARGUMENTS`, which must succeed; returns its output.
pub(crate) async fn run_flotilla(arguments: &[&str]) -> String {
    harness::process::run_successfully(BINARY, arguments).await
}

/// Runs `flotilla join` and waits until the cluster is Ready.
pub(crate) async fn join(control: &ApiServerClient, kubeconfig: &Path, member: &RealMemberCluster) {
    let member_config = path_string(&member.cluster.kubeconfig);
    join_cluster(control, kubeconfig, member.name, &member_config).await;
}

/// Like [`join`], for a cluster of any kind.
pub(crate) async fn join_cluster(
    control: &ApiServerClient,
    kubeconfig: &Path,
    name: &str,
    member_config: &str,
) {
    let control_config = path_string(kubeconfig);
    let arguments = [
        "join",
        name,
        "--cluster-kubeconfig",
        member_config,
        "--kubeconfig",
        &control_config,
    ];
    run_flotilla(&arguments).await;
    control.wait_until_cluster_ready(name).await;
}

pub(crate) fn path_string(path: &Path) -> String {
    path.display().to_string()
}
