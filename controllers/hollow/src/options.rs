//! The options of a hollow cluster.

use std::time::Duration;

/// The size of the cluster and the timing of its pods.
#[derive(Clone, Debug)]
pub struct HollowClusterOptions {
    pub nodes: usize,
    /// A quantity of cores, as in `64`.
    pub node_cpu: String,
    /// A quantity of bytes, as in `256Gi`.
    pub node_memory: String,
    pub pods_per_node: u32,
    /// Time from the assignment of a pod's node until it is Ready.
    pub ready_after: Duration,
    /// The kubelet version that nodes report.
    pub kubelet_version: String,
    /// Whether to run the workload controllers in addition to the kubelet. Beside a
    /// kube-controller-manager they must be off: both would create pods.
    pub run_controllers: bool,
}

/// Pods that controllers create beyond what the nodes can hold.
const MAX_UNSCHEDULABLE_PODS: usize = 500;

impl HollowClusterOptions {
    /// The pods that workload controllers create at most in the whole cluster.
    pub(crate) fn max_pods(&self) -> usize {
        let capacity = self.nodes.saturating_mul(self.pods_per_node as usize);
        capacity.saturating_add(MAX_UNSCHEDULABLE_PODS)
    }
}

impl Default for HollowClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 10,
            node_cpu: "64".into(),
            node_memory: "256Gi".into(),
            pods_per_node: 500,
            ready_after: Duration::from_millis(100),
            kubelet_version: "v1.36.0".into(),
            run_controllers: true,
        }
    }
}
