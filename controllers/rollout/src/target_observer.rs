//! Observes the clusters of a template for a step, from what the control plane has of them.

use std::collections::HashMap;

use client::Informer;
use flotilla_runtime::ClusterLister;
use karmada_api::rollout::{RolloutPolicySpec, RolloutStatus};
use karmada_api::{ResourceBindingSpec, TargetCluster};
use machinery::{Gvk, Object};
use parking_lot::Mutex;

use crate::decision::ObservedTarget;
use crate::observation::observe_targets;
use crate::observed_works::ObservedWorks;

pub(crate) struct TargetObserver {
    clusters: ClusterLister,
    works: Informer,
    /// The Works that the last step of each rollout, by key, has read.
    observed_works: Mutex<HashMap<String, ObservedWorks>>,
}

impl TargetObserver {
    pub(crate) fn new(clusters: ClusterLister, works: Informer) -> Self {
        Self {
            clusters,
            works,
            observed_works: Mutex::default(),
        }
    }

    pub(crate) async fn wait_synced(&self) {
        self.works.wait_for_cache_sync().await;
        self.clusters.informer().wait_for_cache_sync().await;
    }

    /// Forgets the Works of a rollout.
    pub(crate) fn forget(&self, rollout: &str) {
        self.observed_works.lock().remove(rollout);
    }

    /// The target clusters, and those that keep replicas though they are no targets any more. A
    /// rollout has one step at a time.
    pub(crate) fn observe(
        &self,
        rollout: &str,
        policy: &RolloutPolicySpec,
        binding: &ResourceBindingSpec,
        previous: Option<&RolloutStatus>,
        revisions: &[Object],
    ) -> (Vec<ObservedTarget>, Vec<ObservedTarget>) {
        let resource = &binding.resource;
        let kind = Gvk::from_api_version(&resource.api_version, &resource.kind);
        let former = self.observed_works.lock().remove(rollout);
        let mut works = former.unwrap_or_default();
        works.begin_step();
        let mut observe = |clusters: &[&TargetCluster]| {
            observe_targets(
                policy,
                resource,
                clusters,
                |name| self.clusters.get(name),
                |namespace, name| {
                    let work = self.works.get(namespace, name)?;
                    Some(works.observe(&kind.group, &work))
                },
                |name| revisions.iter().any(|revision| revision.name() == name),
            )
        };
        let leaving = leaving_clusters(binding, previous);
        let leaving: Vec<&TargetCluster> = leaving.iter().collect();
        let observed = (observe(&binding.targets()), observe(&leaving));
        self.observed_works.lock().insert(rollout.to_owned(), works);
        observed
    }
}

/// The clusters that keep replicas by a status, and are no targets any more. From those that an
/// eviction purges directly, all replicas go first.
fn leaving_clusters(
    spec: &ResourceBindingSpec,
    status: Option<&RolloutStatus>,
) -> Vec<TargetCluster> {
    let (targets, purged) = (spec.targets(), spec.purged_clusters());
    let is_leaving =
        |name: &str| !purged.contains(name) && !targets.iter().any(|target| target.name == name);
    let kept = status.into_iter().flat_map(|status| &status.replicas);
    kept.filter(|kept| is_leaving(&kept.cluster))
        .map(|kept| TargetCluster {
            name: kept.cluster.clone(),
            ..TargetCluster::default()
        })
        .collect()
}
