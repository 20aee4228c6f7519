//! The kinds that members serve, and their discovery documents.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use machinery::Gvr;
use serde_json::{Value, json};

/// A kind that members serve, in one version.
pub(crate) struct MemberResource {
    pub(crate) gvr: Gvr,
    pub(crate) kind: &'static str,
    pub(crate) is_namespaced: bool,
}

const fn resource(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    is_namespaced: bool,
) -> MemberResource {
    MemberResource {
        gvr: Gvr::from_static(group, "v1", plural),
        kind,
        is_namespaced,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

static RESOURCES: [MemberResource; 24] = [
    resource("", "configmaps", "ConfigMap", true),
    resource("", "events", "Event", true),
    resource("", "namespaces", "Namespace", false),
    resource("", "nodes", "Node", false),
    resource("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    resource("", "persistentvolumes", "PersistentVolume", false),
    resource("", "pods", "Pod", true),
    resource("", "resourcequotas", "ResourceQuota", true),
    resource("", "secrets", "Secret", true),
    resource("", "serviceaccounts", "ServiceAccount", true),
    resource("", "services", "Service", true),
    resource("apps", "daemonsets", "DaemonSet", true),
    resource("apps", "deployments", "Deployment", true),
    resource("apps", "replicasets", "ReplicaSet", true),
    resource("apps", "statefulsets", "StatefulSet", true),
    resource("batch", "cronjobs", "CronJob", true),
    resource("batch", "jobs", "Job", true),
    resource("discovery.k8s.io", "endpointslices", "EndpointSlice", true),
    resource("networking.k8s.io", "ingresses", "Ingress", true),
    resource(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
    ),
    resource(RBAC, "clusterrolebindings", "ClusterRoleBinding", false),
    resource(RBAC, "clusterroles", "ClusterRole", false),
    resource(RBAC, "rolebindings", "RoleBinding", true),
    resource(RBAC, "roles", "Role", true),
];

/// The resource with this group, version and plural name.
pub(super) fn find_resource(
    group: &str,
    version: &str,
    plural: &str,
) -> Option<&'static MemberResource> {
    RESOURCES.iter().find(|resource| {
        let gvr = &resource.gvr;
        gvr.group == group && gvr.version == version && gvr.resource == plural
    })
}

/// The aggregated discovery of the core group.
pub(super) static CORE_DISCOVERY: LazyLock<Bytes> = LazyLock::new(|| document(str::is_empty));
/// The aggregated discovery of all other groups.
pub(super) static GROUP_DISCOVERY: LazyLock<Bytes> =
    LazyLock::new(|| document(|group| !group.is_empty()));

fn document(includes: fn(&str) -> bool) -> Bytes {
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for resource in RESOURCES.iter().filter(|r| includes(&r.gvr.group)) {
        let gvr = &resource.gvr;
        let entry = json!({
            "resource": gvr.resource,
            "responseKind": {"group": gvr.group, "version": gvr.version, "kind": resource.kind},
            "scope": if resource.is_namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.kind.to_lowercase(),
            "verbs": ["create", "delete", "get", "list", "update", "watch"],
        });
        groups.entry(&gvr.group).or_default().push(entry);
    }
    let items = groups.into_iter().map(|(group, resources)| {
        json!({
            "metadata": {"name": group},
            "versions": [{"version": "v1", "freshness": "Current", "resources": resources}],
        })
    });
    let items: Vec<Value> = items.collect();
    let list = json!({
        "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList",
        "metadata": {}, "items": items,
    });
    list.to_string().into()
}
