//! Keys and values of labels and annotations, names of finalizers, and keys of taints.

use std::collections::BTreeMap;

pub const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
pub const CLUSTER_POLICY_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
pub const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
pub const CLUSTER_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
pub const WORK_ID: &str = "work.karmada.io/permanent-id";
/// On bindings that something else than the detector created, to be scheduled nevertheless.
pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
/// On objects in members that the control plane may change and delete.
pub const MANAGED: &str = "karmada.io/managed";
pub const MANAGED_VALUE: &str = "true";
pub const SYSTEM: &str = "karmada.io/system";
pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
/// On templates: the member keeps its own number of replicas.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
/// On any object: `Always` denies its deletion.
pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
pub const DELETION_PROTECTED_VALUE: &str = "Always";
/// On attached bindings, followed by the reference key of the independent binding that
/// requires them; the value is that binding's permanent id.
pub const DEPENDED_BY_PREFIX: &str = "resourcebinding.karmada.io/depended-by-";
pub const QUOTA_NAMESPACE: &str = "federatedresourcequota.karmada.io/namespace";
pub const QUOTA_NAME: &str = "federatedresourcequota.karmada.io/name";
/// On Works with an EndpointSlice of a member: the namespace and the name of its Service.
pub const ENDPOINT_SLICE_SERVICE_NAMESPACE: &str = "endpointslice.karmada.io/namespace";
pub const ENDPOINT_SLICE_SERVICE_NAME: &str = "endpointslice.karmada.io/name";
/// On Works with an EndpointSlice of a member: for which kind it was collected.
pub const ENDPOINT_SLICE_WORK_MANAGED_BY: &str = "endpointslice.karmada.io/managed-by";
/// On EndpointSlices that a MultiClusterService dispatches, and on their Works: the provider.
pub const ENDPOINT_SLICE_PROVISION_CLUSTER: &str = "endpointslice.karmada.io/provision-cluster";
/// The permanent id of a MultiClusterService, on itself, its Service, binding and Works.
pub const MULTI_CLUSTER_SERVICE_ID: &str = "multiclusterservice.karmada.io/permanent-id";
/// Labels of Works and annotations of Services and bindings.
pub const MULTI_CLUSTER_SERVICE_NAMESPACE: &str = "multiclusterservice.karmada.io/namespace";
pub const MULTI_CLUSTER_SERVICE_NAME: &str = "multiclusterservice.karmada.io/name";
pub const SKIP_AUTO_PROPAGATION: &str = "namespace.karmada.io/skip-auto-propagation";

pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
/// On bindings that the scheduler has moved: the resourceVersion from which it did so last. By it the
/// record of moves tells the scheduler's writes from those of others.
pub const SCHEDULED_FROM: &str = "flotilla.io/scheduled-from";
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
pub const CLUSTER_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
/// On bindings: JSON list of the dependencies of the template.
pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
pub const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
pub const WORK_NAME: &str = "work.karmada.io/name";
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
pub const TEMPLATE_GENERATION: &str = "resourcetemplate.karmada.io/generation";
pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";

/// On policies: `auto` evicts resources from a cluster that stays not Ready. Karmada has no
/// such annotation.
pub const FAILOVER: &str = "flotilla.io/failover";
pub const FAILOVER_AUTO: &str = "auto";
/// On policies: how long a cluster may be not Ready before resources are evicted.
pub const FAILOVER_AFTER: &str = "flotilla.io/failover-after";
/// On templates: `true` leaves the objects in members when the template is deleted. Karmada has no
/// such annotation.
pub const ORPHAN: &str = "flotilla.io/orphan";
/// The same, as KubeFed's federated objects have it.
pub const KUBEFED_ORPHAN: &str = "kubefed.io/orphan";

/// On policies: `true` holds the deletion of a template until no member has a copy. Karmada has no
/// such annotation.
pub const WAIT_FOR_REMOVAL: &str = "flotilla.io/wait-for-removal";
/// On templates whose deletion is held: the copies that are waited for.
pub const WAITING_FOR_REMOVAL: &str = "flotilla.io/waiting-for-removal";
/// On deleted Works that stay until their objects are gone: the uid of the template.
pub const REMOVAL_AWAITED_BY: &str = "flotilla.io/removal-awaited-by";

/// On bindings: JSON of the targets before each failover, by the name of the failed cluster.
pub const BEFORE_FAILOVER: &str = "flotilla.io/clusters-before-failover";

/// On bindings: JSON of the spec of the ReplicaSchedulingPreference that divides the replicas.
pub const REPLICA_PREFERENCE: &str = "flotilla.io/replica-scheduling-preference";
/// On bindings with a ReplicaSchedulingPreference: JSON of the replicas that clusters with
/// unschedulable pods can run, by cluster.
pub const OBSERVED_CAPACITY: &str = "flotilla.io/observed-capacity";
/// On Works: `Disabled` keeps the status of their objects from being collected. Karmada has no such
/// annotation.
pub const STATUS_COLLECTION: &str = "flotilla.io/status-collection";
pub const STATUS_COLLECTION_DISABLED: &str = "Disabled";

/// On Works: JSON list of the fields, as JSON pointers, that override policies set although the
/// member's value is retained otherwise. Karmada has no such annotation.
pub const OVERRIDDEN_FIELDS: &str = "flotilla.io/overridden-fields";
/// On override policies: `true` lets their plaintext overriders win over retained values. Karmada
/// has no such annotation.
pub const OVERRIDE_RETAINED: &str = "flotilla.io/override-retained-fields";

/// On Namespaces: `true` lets what lies in them go only where they are placed themselves. Karmada
/// has no such annotation.
pub const NAMESPACE_GATE: &str = "flotilla.io/namespace-gate";

/// On objects in members: `false` keeps the control plane from changing and deleting them. The
/// first label is KubeFed's.
pub const LEFT_ALONE_LABELS: [&str; 2] = ["kubefed.io/managed", "flotilla.io/managed"];
pub const LEFT_ALONE_VALUE: &str = "false";

/// The label that a cluster affinity requires to select no cluster on purpose.
pub const NOWHERE_LABEL: &str = "flotilla.io/nowhere";

/// On the ClusterRole of the control plane in a member: the UID of the control plane's
/// namespace `kube-system`. Karmada has no such annotation.
pub const CONTROL_PLANE_ID: &str = "flotilla.io/control-plane-id";

/// On Clusters: `false` refuses users and service accounts that may use the cluster proxy only
/// through a group, since the impersonator in the member would have to impersonate everyone.
/// Karmada has no such annotation.
pub const IMPERSONATE_GROUP_MEMBERS: &str = "flotilla.io/impersonate-group-members";

/// On Clusters: `true` lets the cluster proxy pass on the uid of users. Karmada has no such
/// annotation.
pub const IMPERSONATE_UID: &str = "flotilla.io/impersonate-uid";

/// On Clusters: the keys of the extras of users that the cluster proxy passes on, separated by
/// commas. Karmada has no such annotation.
pub const IMPERSONATE_EXTRA_KEYS: &str = "flotilla.io/impersonate-extra-keys";

/// On Clusters: the parts of the verification of its API server's certificate that are switched
/// off, separated by commas. Karmada has no such annotation.
pub const DISABLED_TLS_VALIDATIONS: &str = "flotilla.io/disabled-tls-validations";

/// On ResourceRegistries: `true` permits addresses of the backend without TLS. Karmada permits
/// them without the annotation.
pub const INSECURE_BACKEND_STORE: &str = "flotilla.io/insecure-backend-store";

/// On Clusters that were joined for a Cluster of Cluster API: its namespace and name. Karmada
/// has no such annotation.
pub const CLUSTER_API_CLUSTER: &str = "flotilla.io/cluster-api-cluster";

/// On metrics of several members: the cluster of each object.
pub const QUERY_FROM_CLUSTER: &str = "resource.karmada.io/query-from-cluster";
/// On objects of members that the search and the global proxy return: their cluster.
pub const CACHED_FROM_CLUSTER: &str = "resource.karmada.io/cached-from-cluster";

/// On Clusters in pull mode: the replica of the control plane that has asked last for a tunnel of
/// the agent. Karmada has no such annotation.
pub const TUNNEL_REQUESTED_BY: &str = "flotilla.io/tunnel-requested-by";
/// The condition of Clusters by which agents report their tunnels.
pub const AGENT_TUNNEL_CONDITION: &str = "AgentTunnel";
/// The condition of Nodes and Clusters by which the service name resolution detector reports.
pub const SERVICE_NAME_RESOLUTION_CONDITION: &str = "ServiceDomainNameResolutionReady";

pub const CLUSTER_FINALIZER: &str = "karmada.io/cluster-controller";
pub const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
pub const CLUSTER_BINDING_FINALIZER: &str = "karmada.io/cluster-resource-binding-controller";
pub const DEPENDENCIES_FINALIZER: &str = "karmada.io/binding-dependencies-distributor";
pub const WORK_FINALIZER: &str = "karmada.io/execution-controller";
pub const POLICY_FINALIZER: &str = "karmada.io/propagation-policy-controller";
pub const CLUSTER_POLICY_FINALIZER: &str = "karmada.io/cluster-propagation-policy-controller";

/// On templates whose policy holds their deletion.
pub const WAIT_FOR_REMOVAL_FINALIZER: &str = "flotilla.io/wait-for-removal";

/// On Works with an EndpointSlice of a member.
pub const ENDPOINT_SLICE_FINALIZER: &str = "karmada.io/endpointslice-controller";
/// On Works with an EndpointSlice of a member that is dispatched to other members.
pub const ENDPOINT_SLICE_DISPATCH_FINALIZER: &str =
    "karmada.io/mcs-endpointslice-dispatch-controller";
pub const MULTI_CLUSTER_SERVICE_FINALIZER: &str = "karmada.io/multiclusterservice-controller";

pub const TAINT_UNSCHEDULABLE: &str = "cluster.karmada.io/unschedulable";
pub const TAINT_NOT_READY: &str = "cluster.karmada.io/not-ready";
pub const TAINT_UNREACHABLE: &str = "cluster.karmada.io/unreachable";

/// Whether the deletion of a template with these annotations leaves its objects in members.
pub fn is_orphaned_on_deletion(annotations: &BTreeMap<String, String>) -> bool {
    let is_set = |key: &str| annotations.get(key).is_some_and(|value| value == "true");
    is_set(ORPHAN) || is_set(KUBEFED_ORPHAN)
}

/// Whether objects of this namespace are never propagated.
pub fn is_reserved_namespace(namespace: &str) -> bool {
    namespace == "karmada-system"
        || namespace == "karmada-cluster"
        || namespace == "flotilla-system"
        || namespace.starts_with(super::names::EXECUTION_SPACE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: NAM-reserved
    #[test]
    fn some_namespaces_are_reserved() {
        for (namespace, reserved) in [
            ("karmada-system", true),
            ("karmada-cluster", true),
            ("flotilla-system", true),
            ("karmada-es-m1", true),
            ("karmada-es", false),
            ("karmada", false),
            ("default", false),
        ] {
            assert_eq!(is_reserved_namespace(namespace), reserved, "{namespace}");
        }
    }

    /// Clients rely on these keys; a change breaks existing objects.
    // proves: LAB-keys
    #[test]
    fn keys_are_those_of_karmada() {
        let domains = [
            (
                "propagationpolicy",
                &[POLICY_ID, POLICY_NAMESPACE, POLICY_NAME][..],
                "permanent-id namespace name",
            ),
            (
                "clusterpropagationpolicy",
                &[CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME],
                "permanent-id name",
            ),
            (
                "resourcebinding",
                &[
                    BINDING_ID,
                    BINDING_NAMESPACE,
                    BINDING_NAME,
                    DEPENDENCIES,
                    DEPENDED_BY_PREFIX,
                ],
                "permanent-id namespace name dependencies depended-by-",
            ),
            (
                "clusterresourcebinding",
                &[CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME],
                "permanent-id name",
            ),
            (
                "work",
                &[WORK_ID, WORK_NAMESPACE, WORK_NAME, CONFLICT_RESOLUTION],
                "permanent-id namespace name conflict-resolution",
            ),
            ("binding", &[BINDING_MANAGED_BY], "managed-by"),
            (
                "policy",
                &[
                    APPLIED_PLACEMENT,
                    APPLIED_OVERRIDES,
                    APPLIED_CLUSTER_OVERRIDES,
                ],
                "applied-placement applied-overrides applied-cluster-overrides",
            ),
            (
                "resourcetemplate",
                &[
                    CLAIMED_BY,
                    RETAIN_REPLICAS,
                    DELETION_PROTECTED,
                    TEMPLATE_UID,
                    TEMPLATE_GENERATION,
                    MANAGED_LABELS,
                    MANAGED_ANNOTATIONS,
                ],
                "claimed-by retain-replicas deletion-protected uid generation managed-labels managed-annotations",
            ),
            (
                "federatedresourcequota",
                &[QUOTA_NAMESPACE, QUOTA_NAME],
                "namespace name",
            ),
            (
                "endpointslice",
                &[
                    ENDPOINT_SLICE_SERVICE_NAMESPACE,
                    ENDPOINT_SLICE_SERVICE_NAME,
                    ENDPOINT_SLICE_WORK_MANAGED_BY,
                    ENDPOINT_SLICE_PROVISION_CLUSTER,
                ],
                "namespace name managed-by provision-cluster",
            ),
            (
                "multiclusterservice",
                &[
                    MULTI_CLUSTER_SERVICE_ID,
                    MULTI_CLUSTER_SERVICE_NAMESPACE,
                    MULTI_CLUSTER_SERVICE_NAME,
                ],
                "permanent-id namespace name",
            ),
            (
                "namespace",
                &[SKIP_AUTO_PROPAGATION],
                "skip-auto-propagation",
            ),
        ];
        for (domain, keys, names) in domains {
            let expected: Vec<String> = names
                .split(' ')
                .map(|name| format!("{domain}.karmada.io/{name}"))
                .collect();
            assert_eq!(keys, expected);
        }
        assert_eq!(
            [MANAGED, SYSTEM],
            ["karmada.io/managed", "karmada.io/system"]
        );
        assert_eq!(
            [MANAGED_VALUE, DELETION_PROTECTED_VALUE],
            ["true", "Always"]
        );
        let finalizers = [
            CLUSTER_FINALIZER,
            BINDING_FINALIZER,
            CLUSTER_BINDING_FINALIZER,
            DEPENDENCIES_FINALIZER,
            WORK_FINALIZER,
            POLICY_FINALIZER,
            CLUSTER_POLICY_FINALIZER,
            ENDPOINT_SLICE_FINALIZER,
            ENDPOINT_SLICE_DISPATCH_FINALIZER,
            MULTI_CLUSTER_SERVICE_FINALIZER,
        ];
        let expected = [
            "cluster-controller",
            "binding-controller",
            "cluster-resource-binding-controller",
            "binding-dependencies-distributor",
            "execution-controller",
            "propagation-policy-controller",
            "cluster-propagation-policy-controller",
            "endpointslice-controller",
            "mcs-endpointslice-dispatch-controller",
            "multiclusterservice-controller",
        ];
        assert_eq!(
            finalizers,
            expected.map(|name| format!("karmada.io/{name}"))
        );
    }
}
