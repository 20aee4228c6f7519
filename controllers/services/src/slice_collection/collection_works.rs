//! Reads from Works of which Services of which members the slices are collected.

use controller_context::WorkClient;
use karmada_api::names::{cluster_of_execution_space, execution_space_name};
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_SERVICE_NAME, ENDPOINT_SLICE_SERVICE_NAMESPACE, MULTI_CLUSTER_SERVICE_ID,
    MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE,
};
use machinery::Object;

use super::collected_work::CollectingKinds;
use crate::exported_services::{MemberNamespace, exported_services, is_applied_export};

/// Works with a ServiceExport, by execution namespace and namespace of the export, and by these and its
/// name.
const EXPORTS_INDEX: &str = "service-exports";
/// Works with a MultiClusterService, by the same keys as those with a collected EndpointSlice.
const SERVICES_INDEX: &str = "multi-cluster-services";
/// Works with a collected EndpointSlice, by execution namespace and namespace of the Service, and by
/// these and the name of the Service.
const COLLECTED_INDEX: &str = "exported-endpoint-slices";

impl MemberNamespace {
    fn index_key(&self) -> String {
        format!("{}/{}", execution_space_name(&self.cluster), self.namespace)
    }

    fn from_index_key(key: &str) -> Option<Self> {
        let (space, namespace) = key.split_once('/')?;
        Some(Self {
            cluster: cluster_of_execution_space(space)?.to_owned(),
            namespace: namespace.to_owned(),
        })
    }
}

/// Whether Services of a namespace are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportState {
    /// No Work has a ServiceExport.
    None,
    /// Such a Work exists, but none is applied.
    NotApplied,
    Applied,
}

/// The Service whose slice a Work reports: its namespace and its name.
pub(super) fn collected_service(work: &Object) -> Option<(MemberNamespace, String)> {
    let kinds = CollectingKinds::of_work(work);
    if kinds.export {
        let keys = (
            ENDPOINT_SLICE_SERVICE_NAMESPACE,
            ENDPOINT_SLICE_SERVICE_NAME,
        );
        labeled_service(work, keys)
    } else if kinds.multi_cluster_service {
        let keys = (MULTI_CLUSTER_SERVICE_NAMESPACE, MULTI_CLUSTER_SERVICE_NAME);
        labeled_service(work, keys)
    } else {
        None
    }
}

/// The Service of the MultiClusterService in a Work.
pub(super) fn provided_service(work: &Object) -> Option<(MemberNamespace, String)> {
    work.meta().label(MULTI_CLUSTER_SERVICE_ID)?;
    let keys = (MULTI_CLUSTER_SERVICE_NAMESPACE, MULTI_CLUSTER_SERVICE_NAME);
    labeled_service(work, keys).filter(|_| !work.meta().deleting)
}

fn labeled_service(work: &Object, keys: (&str, &str)) -> Option<(MemberNamespace, String)> {
    let label = |key| work.meta().label(key).filter(|value| !value.is_empty());
    let namespace = MemberNamespace {
        cluster: cluster_of_execution_space(work.namespace())?.to_owned(),
        namespace: label(keys.0)?.to_owned(),
    };
    Some((namespace, label(keys.1)?.to_owned()))
}

fn index_keys(services: impl IntoIterator<Item = (MemberNamespace, String)>) -> Vec<String> {
    let mut keys = Vec::new();
    for (namespace, service) in services {
        let of_namespace = namespace.index_key();
        keys.extend([format!("{of_namespace}/{service}"), of_namespace]);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The Works of the control plane, indexed by exports, MultiClusterServices and collected slices.
pub(super) struct CollectionWorks(pub(super) WorkClient);

impl CollectionWorks {
    pub(super) fn new(works: WorkClient) -> Self {
        works.forget_deleted();
        let informer = &works.informer;
        informer.add_index(EXPORTS_INDEX, |work| index_keys(exported_services(work)));
        informer.add_index(SERVICES_INDEX, |work| index_keys(provided_service(work)));
        informer.add_index(COLLECTED_INDEX, |work| index_keys(collected_service(work)));
        Self(works)
    }

    pub(super) fn export_state(&self, at: &MemberNamespace) -> ExportState {
        let works = self.0.informer.by_index(EXPORTS_INDEX, &at.index_key());
        let mut left = works.iter().filter(|work| !work.meta().deleting).peekable();
        if left.peek().is_none() {
            return ExportState::None;
        }
        match left.any(is_applied_export) {
            true => ExportState::Applied,
            false => ExportState::NotApplied,
        }
    }

    /// Whether the control plane has exported the Service from the member.
    pub(super) fn is_exported(&self, at: &MemberNamespace, service: &str) -> bool {
        let key = format!("{}/{service}", at.index_key());
        let works = self.0.informer.by_index(EXPORTS_INDEX, &key);
        works.iter().any(|work| !work.meta().deleting)
    }

    /// A Work for which the slices of a Service are collected.
    pub(super) fn collecting(&self, at: &MemberNamespace, service: &str) -> Option<Object> {
        let key = format!("{}/{service}", at.index_key());
        let indexes = [EXPORTS_INDEX, SERVICES_INDEX].into_iter();
        indexes
            .flat_map(|index| self.0.informer.by_index(index, &key))
            .next()
    }

    /// The Services of a namespace that have a MultiClusterService for which the member provides.
    pub(super) fn provided(&self, at: &MemberNamespace) -> Vec<String> {
        let works = self.0.informer.by_index(SERVICES_INDEX, &at.index_key());
        let services = works.iter().filter_map(provided_service);
        services.map(|(_, service)| service).collect()
    }

    pub(super) fn is_provided(&self, at: &MemberNamespace, service: &str) -> bool {
        let key = format!("{}/{service}", at.index_key());
        !self.0.informer.by_index(SERVICES_INDEX, &key).is_empty()
    }

    /// The namespaces of a cluster that have exports or MultiClusterServices.
    pub(super) fn namespaces(&self, cluster: &str) -> Vec<MemberNamespace> {
        let prefix = format!("{}/", execution_space_name(cluster));
        let of_namespace =
            |key: &str| key.starts_with(&prefix) && !key[prefix.len()..].contains('/');
        let mut keys = self.0.informer.index_keys(EXPORTS_INDEX, of_namespace);
        keys.extend(self.0.informer.index_keys(SERVICES_INDEX, of_namespace));
        keys.sort_unstable();
        keys.dedup();
        keys.iter()
            .filter_map(|key| MemberNamespace::from_index_key(key))
            .collect()
    }

    /// The Works with slices of a namespace, or of one Service.
    pub(super) fn collected(&self, at: &MemberNamespace, service: Option<&str>) -> Vec<Object> {
        let key = match service {
            Some(service) => format!("{}/{service}", at.index_key()),
            None => at.index_key(),
        };
        self.0.informer.by_index(COLLECTED_INDEX, &key)
    }
}
