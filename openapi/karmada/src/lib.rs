//! Karmada's API: keys of labels and annotations, generated names, and typed views of its
//! kinds. A view has only the fields that are read.
//!
//! Sources: Karmada's `pkg/apis/*/…/well_known_constants.go`, `pkg/util/names`,
//! `pkg/util/selector.go`.

pub mod addons;
pub mod affinity;
pub mod agents;
pub mod binding;
pub mod cluster;
pub mod cron_federated_hpa;
mod cron_schedule;
pub mod dependency;
pub mod failover;
pub mod feature_gates;
mod federated_type_config;
pub mod history;
pub mod identity_fields;
pub mod impersonated_identity;
pub mod kind_in_namespace;
pub mod names;
mod object_meta;
pub mod partition;
pub mod placement;
pub mod policy;
pub mod prune;
mod purge_mode;
pub mod quota;
pub mod rebalancer;
pub mod remedy;
pub mod replica_preference;
pub mod resource_registry;
pub mod resources;
pub mod rollout;
pub mod taint_policy;
pub mod tls_validations;
pub mod well_known_keys;
pub mod work;

pub use affinity::{ClusterAffinity, ClusterAffinityMatcher, ClusterAttributes};
pub use binding::{ResourceBinding, ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
pub use cluster::Cluster;
pub use cron_federated_hpa::CronFederatedHpa;
pub use cron_schedule::CronSchedule;
pub use dependency::DependentObjectReference;
pub use feature_gates::{FeatureGates, KarmadaFeature};
pub use federated_type_config::{FederatedTypeConfig, TYPE_CONFIG_NAMESPACE};
pub use history::TemplateHistory;
pub use identity_fields::IdentityFields;
pub use impersonated_identity::ImpersonatedIdentity;
pub use placement::Placement;
pub use policy::{OverridePolicy, PropagationPolicy, ResourceSelector};
pub use quota::FederatedResourceQuota;
pub use rebalancer::WorkloadRebalancer;
pub use remedy::Remedy;
pub use replica_preference::KUBEFED_SCHEDULING_GROUP;
pub use resource_registry::{OpenSearchConfig, ResourceRegistry};
pub use rollout::{Rollout, RolloutPolicy};
pub use taint_policy::ClusterTaintPolicy;
pub use work::Work;

/// The group of the Multi-Cluster Services API, which Karmada serves too.
pub const MULTICLUSTER_GROUP: &str = "multicluster.x-k8s.io";

/// The domain of KubeFed's groups.
const KUBEFED_DOMAIN: &str = ".kubefed.io";

/// Flotilla's own groups.
pub const FLOTILLA_GROUPS: [&str; 2] = [rollout::ROLLOUT_GROUP, history::HISTORY_GROUP];

/// Whether this is a group of Karmada's API, or of KubeFed's, that the catalog has, or one of Flotilla's own.
/// Other groups of the same domains are not.
pub fn is_karmada_group(group: &str) -> bool {
    let mut kinds = openapi::catalog().kinds().iter();
    let is_adopted = group == MULTICLUSTER_GROUP || FLOTILLA_GROUPS.contains(&group);
    (group.ends_with(".karmada.io") || is_adopted || is_kubefed_group(group))
        && kinds.any(|kind| kind.gvk.group == group)
}

/// Whether this is a group of KubeFed's API. A host that runs KubeFed serves it itself.
pub fn is_kubefed_group(group: &str) -> bool {
    group.ends_with(KUBEFED_DOMAIN)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_karmada_groups_of_the_catalog_count() {
        for (group, is_karmada) in [
            ("work.karmada.io", true),
            ("cluster.karmada.io", true),
            ("policy.karmada.io", true),
            ("config.karmada.io", true),
            ("multicluster.x-k8s.io", true),
            ("networking.karmada.io", true),
            ("search.karmada.io", true),
            ("scheduling.kubefed.io", true),
            ("core.kubefed.io", true),
            ("types.kubefed.io", false),
            ("rollout.flotilla.io", true),
            ("history.flotilla.io", true),
            ("flotilla.io", false),
            ("operator.karmada.io", false),
            ("karmada.io", false),
            ("apps", false),
            ("", false),
        ] {
            assert_eq!(super::is_karmada_group(group), is_karmada, "{group}");
        }
    }
}
