//! The start parameters of the controllers between templates and members.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, InformerFactory};
use flotilla_runtime::{EventRecorder, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use machinery::time::Clock;
use openapi::karmada::FeatureGates;

use members::MemberAccess;

/// Everything that the propagation controllers depend on.
pub struct PropagationContext {
    /// The API that serves templates, policies, bindings and Works.
    pub control_plane: Arc<dyn Api>,
    pub members: Arc<dyn MemberAccess>,
    pub clusters: scheduler::SchedulerClusterCache,
    pub recorder: EventRecorder,
    pub interpreter: ResourceInterpreter,
    pub clock: Arc<dyn Clock>,
    /// The informers on `control`.
    pub informers: InformerFactory,
    /// Whether the API server of the templates runs workloads itself.
    pub host: HostWorkloadFilter,
    pub options: PropagationOptions,
}

/// The clusters whose Works this process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExecutionScope {
    /// Every cluster that is not in pull mode.
    #[default]
    PushClusters,
    /// One cluster, as in a pull-mode agent. No other controller runs.
    SingleCluster(String),
}

impl ExecutionScope {
    pub fn includes(&self, cluster: &str, clusters: &scheduler::SchedulerClusterCache) -> bool {
        match self {
            Self::SingleCluster(name) => name == cluster,
            Self::PushClusters => clusters
                .get(cluster)
                .is_none_or(|c| c.cluster.spec.sync_mode != "Pull"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct PropagationOptions {
    /// Regular expressions of namespaces that are not propagated; each has to match a whole name.
    pub skipped_namespaces: Vec<String>,
    /// APIs that are never templates, in addition to the built-in list: `group`, `group/version`,
    /// `group/version/Kind,Kind`, `v1/Kind,Kind`.
    pub skipped_apis: Vec<String>,
    /// The detector selects clusters at once only for bindings of this scheduler.
    pub scheduler_name: String,
    pub execution_scope: ExecutionScope,
    /// The optional features that are on.
    pub feature_gates: FeatureGates,
    /// Keeps the scheduling decisions that the detector makes at once.
    pub decisions: scheduler::DecisionExplanationCache,
    /// Timeout of one call to a member.
    pub call_timeout: Duration,
    /// Interval of the full recount of quota usage where quotas are enforced; zero: recount only on
    /// events.
    pub quota_resync: Duration,
}

impl Default for PropagationOptions {
    fn default() -> Self {
        Self {
            skipped_namespaces: vec!["kube-.*".into()],
            skipped_apis: Vec::new(),
            scheduler_name: "default-scheduler".into(),
            execution_scope: ExecutionScope::default(),
            feature_gates: FeatureGates::default(),
            decisions: scheduler::DecisionExplanationCache::default(),
            call_timeout: Duration::from_secs(30),
            quota_resync: Duration::from_secs(300),
        }
    }
}
