//! The resources of Karmada's API that the code refers to, in their storage version.
//! Source: `pkg/apis/*/v1alpha*/well_known_constants.go` and `zz_generated.register.go`.

use machinery::Gvr;

macro_rules! resources {
    ($($name:ident = $group:literal $version:literal $plural:literal;)*) => {
        $(pub static $name: Gvr = Gvr::from_static(concat!($group, ".karmada.io"), $version, $plural);)*

        #[cfg(test)]
        const ALL: &[&Gvr] = &[$(&$name),*];
    };
}

resources! {
    CLUSTERS = "cluster" "v1alpha1" "clusters";
    POLICIES = "policy" "v1alpha1" "propagationpolicies";
    CLUSTER_POLICIES = "policy" "v1alpha1" "clusterpropagationpolicies";
    OVERRIDES = "policy" "v1alpha1" "overridepolicies";
    CLUSTER_OVERRIDES = "policy" "v1alpha1" "clusteroverridepolicies";
    QUOTAS = "policy" "v1alpha1" "federatedresourcequotas";
    TAINT_POLICIES = "policy" "v1alpha1" "clustertaintpolicies";
    BINDINGS = "work" "v1alpha2" "resourcebindings";
    CLUSTER_BINDINGS = "work" "v1alpha2" "clusterresourcebindings";
    WORKS = "work" "v1alpha1" "works";
    CUSTOMIZATIONS = "config" "v1alpha1" "resourceinterpretercustomizations";
    WEBHOOK_CONFIGURATIONS = "config" "v1alpha1" "resourceinterpreterwebhookconfigurations";
    REBALANCERS = "apps" "v1alpha1" "workloadrebalancers";
    FEDERATED_HPAS = "autoscaling" "v1alpha1" "federatedhpas";
    CRON_FEDERATED_HPAS = "autoscaling" "v1alpha1" "cronfederatedhpas";
    REMEDIES = "remedy" "v1alpha1" "remedies";
    MULTI_CLUSTER_SERVICES = "networking" "v1alpha1" "multiclusterservices";
    RESOURCE_REGISTRIES = "search" "v1alpha1" "resourceregistries";
}

/// KubeFed's preferences about the replicas of a workload.
pub static REPLICA_PREFERENCES: Gvr = Gvr::from_static(
    super::KUBEFED_SCHEDULING_GROUP,
    "v1alpha1",
    "replicaschedulingpreferences",
);
/// KubeFed's switches of kinds.
pub static FEDERATED_TYPE_CONFIGS: Gvr =
    Gvr::from_static("core.kubefed.io", "v1beta1", "federatedtypeconfigs");

/// The subresource of bindings with the scheduler's explanation of a placement.
pub const DECISION_SUBRESOURCE: &str = "decision";

#[cfg(test)]
mod tests {
    #[test]
    fn all_are_in_the_catalog() {
        let kubefed = [&super::REPLICA_PREFERENCES, &super::FEDERATED_TYPE_CONFIGS];
        for gvr in super::ALL.iter().copied().chain(kubefed) {
            let mut kinds = openapi::catalog().kinds().iter();
            assert!(kinds.any(|kind| kind.gvr == *gvr), "{gvr:?}");
        }
    }
}
