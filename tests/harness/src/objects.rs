//! Manifests for tests as JSON values, and the resources (GVR) of their kinds.

use machinery::Gvr;
use serde_json::{Value, json};

macro_rules! resources {
    ($($constant:ident $group:literal $version:literal $plural:literal $kind:literal;)*) => {
        $(pub static $constant: Gvr = Gvr::from_static($group, $version, $plural);)*

        /// The resource of an object, by its kind.
        pub fn gvr(object: &Value) -> &'static Gvr {
            match object["kind"].as_str() {
                $(Some($kind) => &$constant,)*
                other => panic!("objects.rs has no resource for {other:?}"),
            }
        }
    };
}

resources! {
    NAMESPACES "" "v1" "namespaces" "Namespace";
    SERVICES "" "v1" "services" "Service";
    CONFIG_MAPS "" "v1" "configmaps" "ConfigMap";
    SECRETS "" "v1" "secrets" "Secret";
    SERVICE_ACCOUNTS "" "v1" "serviceaccounts" "ServiceAccount";
    DEPLOYMENTS "apps" "v1" "deployments" "Deployment";
    STATEFUL_SETS "apps" "v1" "statefulsets" "StatefulSet";
    DAEMON_SETS "apps" "v1" "daemonsets" "DaemonSet";
    CONTROLLER_REVISIONS "apps" "v1" "controllerrevisions" "ControllerRevision";
    JOBS "batch" "v1" "jobs" "Job";
    ENDPOINT_SLICES "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice";
    SERVICE_EXPORTS "multicluster.x-k8s.io" "v1alpha1" "serviceexports" "ServiceExport";
    MULTI_CLUSTER_SERVICES "networking.karmada.io" "v1alpha1" "multiclusterservices" "MultiClusterService";
    SERVICE_IMPORTS "multicluster.x-k8s.io" "v1alpha1" "serviceimports" "ServiceImport";
    INGRESSES "networking.k8s.io" "v1" "ingresses" "Ingress";
    ROLES "rbac.authorization.k8s.io" "v1" "roles" "Role";
    ROLE_BINDINGS "rbac.authorization.k8s.io" "v1" "rolebindings" "RoleBinding";
    CLUSTER_ROLES "rbac.authorization.k8s.io" "v1" "clusterroles" "ClusterRole";
    CLUSTER_ROLE_BINDINGS "rbac.authorization.k8s.io" "v1" "clusterrolebindings" "ClusterRoleBinding";
    PODS "" "v1" "pods" "Pod";
    NODES "" "v1" "nodes" "Node";
    EVENTS "" "v1" "events" "Event";
    CLAIMS "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim";
    VOLUMES "" "v1" "persistentvolumes" "PersistentVolume";
    CRON_JOBS "batch" "v1" "cronjobs" "CronJob";
    BUDGETS "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget";
    STORAGE_CLASSES "storage.k8s.io" "v1" "storageclasses" "StorageClass";
    AUTOSCALERS "autoscaling" "v2" "horizontalpodautoscalers" "HorizontalPodAutoscaler";
    RESOURCE_QUOTAS "" "v1" "resourcequotas" "ResourceQuota";
    DEFINITIONS "apiextensions.k8s.io" "v1" "customresourcedefinitions" "CustomResourceDefinition";
    VALIDATING_WEBHOOKS "admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "ValidatingWebhookConfiguration";
    API_SERVICES "apiregistration.k8s.io" "v1" "apiservices" "APIService";
    WIDGETS "example.org" "v1" "widgets" "Widget";
    PRIORITY_CLASSES "scheduling.k8s.io" "v1" "priorityclasses" "PriorityClass";
    RESOURCE_REGISTRIES "search.karmada.io" "v1alpha1" "resourceregistries" "ResourceRegistry";
    CLUSTERS "cluster.karmada.io" "v1alpha1" "clusters" "Cluster";
    POLICIES "policy.karmada.io" "v1alpha1" "propagationpolicies" "PropagationPolicy";
    CLUSTER_POLICIES "policy.karmada.io" "v1alpha1" "clusterpropagationpolicies" "ClusterPropagationPolicy";
    TAINT_POLICIES "policy.karmada.io" "v1alpha1" "clustertaintpolicies" "ClusterTaintPolicy";
    OVERRIDES "policy.karmada.io" "v1alpha1" "overridepolicies" "OverridePolicy";
    CLUSTER_OVERRIDES "policy.karmada.io" "v1alpha1" "clusteroverridepolicies" "ClusterOverridePolicy";
    QUOTAS "policy.karmada.io" "v1alpha1" "federatedresourcequotas" "FederatedResourceQuota";
    REBALANCERS "apps.karmada.io" "v1alpha1" "workloadrebalancers" "WorkloadRebalancer";
    REPLICA_PREFERENCES "scheduling.kubefed.io" "v1alpha1" "replicaschedulingpreferences" "ReplicaSchedulingPreference";
    FEDERATED_TYPE_CONFIGS "core.kubefed.io" "v1beta1" "federatedtypeconfigs" "FederatedTypeConfig";
    REMEDIES "remedy.karmada.io" "v1alpha1" "remedies" "Remedy";
    ROLLOUT_POLICIES "rollout.flotilla.io" "v1alpha1" "rolloutpolicies" "RolloutPolicy";
    ROLLOUTS "rollout.flotilla.io" "v1alpha1" "rollouts" "Rollout";
    CRON_FEDERATED_HPAS "autoscaling.karmada.io" "v1alpha1" "cronfederatedhpas" "CronFederatedHPA";
    FEDERATED_HPAS "autoscaling.karmada.io" "v1alpha1" "federatedhpas" "FederatedHPA";
    CUSTOMIZATIONS "config.karmada.io" "v1alpha1" "resourceinterpretercustomizations" "ResourceInterpreterCustomization";
    HOOKS "config.karmada.io" "v1alpha1" "resourceinterpreterwebhookconfigurations" "ResourceInterpreterWebhookConfiguration";
    BINDINGS "work.karmada.io" "v1alpha2" "resourcebindings" "ResourceBinding";
    CLUSTER_BINDINGS "work.karmada.io" "v1alpha2" "clusterresourcebindings" "ClusterResourceBinding";
    WORKS "work.karmada.io" "v1alpha1" "works" "Work";
    LEASES "coordination.k8s.io" "v1" "leases" "Lease";
    REPLICA_SETS "apps" "v1" "replicasets" "ReplicaSet";
}

pub fn deployment(namespace: &str, name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod_template(name)},
    })
}

/// A pod template with one container.
pub fn pod_template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}})
}

pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"k": value}})
}

pub fn secret(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": {"k": value}})
}

/// The CustomResourceDefinition of [`widget`]s, with a status subresource.
pub fn widget_definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
    })
}

pub fn widget(namespace: &str, name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace}, "spec": {"size": size}})
}

/// A policy that propagates one object to clusters.
pub fn policy(namespace: &str, name: &str, object: &Value, clusters: &[&str]) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "resourceSelectors": [resource_selector(object)],
            "placement": {"clusterAffinity": {"clusterNames": clusters}},
        },
    })
}

/// A policy that divides replicas by static weights.
pub fn divided_policy(
    namespace: &str,
    name: &str,
    object: &Value,
    weights: &[(&str, i64)],
) -> Value {
    let clusters: Vec<&str> = weights.iter().map(|(c, _)| *c).collect();
    let list: Vec<Value> = weights
        .iter()
        .map(|(c, w)| json!({"targetCluster": {"clusterNames": [c]}, "weight": w}))
        .collect();
    let mut policy = policy(namespace, name, object, &clusters);
    policy["spec"]["placement"]["replicaScheduling"] = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": list},
    });
    policy
}

/// An OverridePolicy for one object.
pub fn override_policy(namespace: &str, name: &str, object: &Value, rules: &Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resourceSelectors": [resource_selector(object)], "overrideRules": rules},
    })
}

/// A FederatedHPA that keeps a Deployment between one replica and a maximum.
pub fn federated_hpa(
    namespace: &str,
    name: &str,
    target: &str,
    max: i64,
    metrics: &Value,
) -> Value {
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minReplicas": 1, "maxReplicas": max, "metrics": metrics,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        },
    })
}

/// A metric of a FederatedHPA: the CPU of the pods in percent of what they request.
pub fn cpu_utilization(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// A CronFederatedHPA that gives the Deployment of its name these replicas in each minute.
pub fn cron_federated_hpa(namespace: &str, name: &str, replicas: i64) -> Value {
    let rule = json!({"name": "each-minute", "schedule": "* * * * *", "targetReplicas": replicas});
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "CronFederatedHPA",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "rules": [rule],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        },
    })
}

/// A resource selector that selects one object by its name.
pub fn resource_selector(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"]})
}

/// Makes a cluster-scoped policy of a namespaced one, with the same spec.
pub fn cluster_scoped(mut policy: Value) -> Value {
    let kind = policy["kind"].as_str().unwrap_or_default();
    policy["kind"] = format!("Cluster{kind}").into();
    policy["metadata"] = json!({"name": policy["metadata"]["name"]});
    policy
}

/// The execution space of a cluster: the namespace of its Works.
pub fn execution_space(cluster: &str) -> String {
    format!("karmada-es-{cluster}")
}
