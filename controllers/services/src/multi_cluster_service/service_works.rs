//! Finds the Works of MultiClusterServices by their labels.

use controller_context::WorkClient;
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_PROVISION_CLUSTER, ENDPOINT_SLICE_WORK_MANAGED_BY, MULTI_CLUSTER_SERVICE_ID,
    MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE,
};
use machinery::Object;

use crate::slice_fields::MULTI_CLUSTER_SERVICE_KIND;

/// Works of any role, by the key of their MultiClusterService.
const SERVICE_INDEX: &str = "multi-cluster-service-works";
/// Works with a dispatched slice, by provider.
const PROVIDER_INDEX: &str = "dispatched-endpoint-slices";

/// The content of a Work of a MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkRole {
    /// The MultiClusterService, in the execution namespace of a provider.
    Service,
    /// A slice that a provider has.
    Collected,
    /// A slice for a consumer.
    Dispatched { provider: String },
}

impl WorkRole {
    pub(super) fn of(work: &Object) -> Option<Self> {
        service_key(work)?;
        let meta = work.meta();
        if meta.label(MULTI_CLUSTER_SERVICE_ID).is_some() {
            return Some(Self::Service);
        }
        if let Some(managed_by) = meta.label(ENDPOINT_SLICE_WORK_MANAGED_BY) {
            let mut kinds = managed_by.split('.');
            let collected = kinds.any(|kind| kind == MULTI_CLUSTER_SERVICE_KIND);
            return collected.then_some(Self::Collected);
        }
        let provider = work.annotation(ENDPOINT_SLICE_PROVISION_CLUSTER)?;
        Some(Self::Dispatched { provider })
    }
}

/// The key of the MultiClusterService of a Work.
pub(super) fn service_key(work: &Object) -> Option<String> {
    let label = |key| work.meta().label(key).filter(|value| !value.is_empty());
    Some(format!(
        "{}/{}",
        label(MULTI_CLUSTER_SERVICE_NAMESPACE)?,
        label(MULTI_CLUSTER_SERVICE_NAME)?
    ))
}

/// The Works of the control plane, indexed by MultiClusterService.
pub(super) struct ServiceWorks(pub(super) WorkClient);

impl ServiceWorks {
    pub(super) fn new(works: WorkClient) -> Self {
        works.forget_deleted();
        works.informer.add_index(SERVICE_INDEX, |work| {
            service_key(work).into_iter().collect()
        });
        works
            .informer
            .add_index(PROVIDER_INDEX, |work| match WorkRole::of(work) {
                Some(WorkRole::Dispatched { provider }) => vec![provider],
                _ => Vec::new(),
            });
        Self(works)
    }

    /// The Works of one role of a MultiClusterService.
    pub(super) fn list(&self, key: &str, is: impl Fn(&WorkRole) -> bool) -> Vec<Object> {
        let mut works = self.0.informer.by_index(SERVICE_INDEX, key);
        works.retain(|work| WorkRole::of(work).is_some_and(|role| is(&role)));
        works
    }

    pub(super) fn dispatched_by(&self, provider: &str) -> Vec<Object> {
        self.0.informer.by_index(PROVIDER_INDEX, provider)
    }
}
