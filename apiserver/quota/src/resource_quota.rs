//! The usage of a ResourceQuota by objects, and the quotas that count an object; for
//! admission and for the controller that recalculates usage (`pkg/quota/v1/evaluator/core`).

use std::collections::{BTreeMap, BTreeSet};

use machinery::{Gvr, Quantity};
use serde::Deserialize;
use serde_json::Value;

use crate::pod_requests::{
    RequestingContainer, ResourceList, ResourceRequirements, pod_limits, pod_requests,
};

const COUNT_PREFIX: &str = "count/";
const REQUESTS_PREFIX: &str = "requests.";
const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Resources of the core group that a quota may count by their plain name.
const PLAIN_COUNTS: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// Resources that every container must specify if a quota limits them.
const REQUIRED_OF_CONTAINERS: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

/// A ResourceQuota, as far as usage depends on it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceQuota {
    pub spec: ResourceQuotaSpec,
    pub status: ResourceQuotaStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaSpec {
    pub hard: ResourceList,
    scopes: Vec<String>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ResourceQuotaStatus {
    pub hard: ResourceList,
    pub used: ResourceList,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeSelector {
    match_expressions: Vec<ScopeRequirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeRequirement {
    scope_name: String,
    operator: String,
    values: Vec<String>,
}

impl ResourceQuotaSpec {
    /// Whether an object of this resource counts against the quota. Quotas with scopes
    /// count pods and claims only.
    pub fn covers(&self, resource: &Gvr, object: &Value) -> bool {
        let selector = self.scope_selector.iter();
        let mut expressions = selector.flat_map(|s| &s.match_expressions);
        if self.scopes.is_empty() && expressions.clone().next().is_none() {
            return true;
        }
        let has_scope = match is_core(resource, "pods") {
            true => pod_has_scope,
            false if is_core(resource, "persistentvolumeclaims") => claim_has_scope,
            false => return false,
        };
        self.scopes
            .iter()
            .all(|scope| has_scope(object, scope, "Exists", &[]))
            && expressions.all(|e| has_scope(object, &e.scope_name, &e.operator, &e.values))
    }

    /// The resources whose objects the quota counts, as group and plural.
    pub fn counted_resources(&self) -> BTreeSet<(String, String)> {
        self.hard
            .keys()
            .map(|name| counted_resource(name))
            .collect()
    }
}

/// The group and plural of the objects that use a quota resource.
fn counted_resource(name: &str) -> (String, String) {
    let (group, plural) = if let Some(counted_name) = name.strip_prefix(COUNT_PREFIX) {
        let (plural, group) = counted_name.split_once('.').unwrap_or((counted_name, ""));
        (group, plural)
    } else if PLAIN_COUNTS.contains(&name) {
        ("", name)
    } else if name.starts_with("services.") {
        ("", "services")
    } else if name == "requests.storage" || name.contains(STORAGE_CLASS_SUFFIX) {
        ("", "persistentvolumeclaims")
    } else {
        ("", "pods")
    };
    (group.to_owned(), plural.to_owned())
}

/// Whether objects of the resource may use the quota resource `name`.
pub fn counts(name: &str, resource: &Gvr) -> bool {
    let (group, plural) = counted_resource(name);
    resource.group == group && resource.resource == plural
}

fn is_core(resource: &Gvr, plural: &str) -> bool {
    resource.group.is_empty() && resource.resource == plural
}

/// Whether updates of the resource's objects may change their usage.
pub fn usage_may_change(resource: &Gvr) -> bool {
    ["pods", "services", "persistentvolumeclaims"]
        .iter()
        .any(|plural| is_core(resource, plural))
}

/// Whether an update changes what an object uses, or the quotas that cover it.
pub fn changes_usage(resource: &Gvr, old: &Value, new: &Value) -> bool {
    let classes = |object| match is_core(resource, "persistentvolumeclaims") {
        true => volume_attributes_classes(object),
        false => BTreeSet::new(),
    };
    usage(resource, old) != usage(resource, new) || classes(old) != classes(new)
}

/// The scope of claims is their VolumeAttributesClass: the one that they want, have, or are
/// being changed to.
fn claim_has_scope(claim: &Value, scope: &str, operator: &str, values: &[String]) -> bool {
    if scope != "VolumeAttributesClass" {
        return false;
    }
    let classes = volume_attributes_classes(claim);
    let listed = |class: &&str| values.iter().any(|value| value == class);
    match operator {
        "In" => classes.iter().any(listed),
        "NotIn" => classes.is_empty() || !classes.iter().all(listed),
        "Exists" => !classes.is_empty(),
        "DoesNotExist" => classes.is_empty(),
        _ => false,
    }
}

fn volume_attributes_classes(claim: &Value) -> BTreeSet<&str> {
    let status = &claim["status"];
    let names = [
        &claim["spec"]["volumeAttributesClassName"],
        &status["currentVolumeAttributesClassName"],
        &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let names = names.into_iter().filter_map(Value::as_str);
    names.filter(|name| !name.is_empty()).collect()
}

fn pod_has_scope(pod: &Value, scope: &str, operator: &str, values: &[String]) -> bool {
    let spec = &pod["spec"];
    let terminating = spec["activeDeadlineSeconds"].as_i64().is_some();
    let best_effort = pod["status"]["qosClass"] == "BestEffort";
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().unwrap_or_default();
            let listed = values.iter().any(|v| v == class);
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(&spec["affinity"]),
        _ => false,
    }
}

fn has_cross_namespace_affinity(affinity: &Value) -> bool {
    let sides = ["podAffinity", "podAntiAffinity"].into_iter();
    let terms = sides.flat_map(|side| {
        let terms = |field: &str| affinity[side][field].as_array().into_iter().flatten();
        let preferred = terms("preferredDuringSchedulingIgnoredDuringExecution");
        terms("requiredDuringSchedulingIgnoredDuringExecution")
            .chain(preferred.map(|weighted| &weighted["podAffinityTerm"]))
    });
    let mut terms = terms;
    terms.any(|term| {
        let has_namespaces = term["namespaces"].as_array().is_some_and(|n| !n.is_empty());
        has_namespaces || !term["namespaceSelector"].is_null()
    })
}

/// The usage of an object, by quota resource.
pub fn usage(resource: &Gvr, object: &Value) -> ResourceList {
    let one = Quantity::from_units(1);
    let mut used = ResourceList::new();
    let group_resource = resource.group_resource();
    used.insert(format!("{COUNT_PREFIX}{group_resource}"), one);
    if !resource.group.is_empty() {
        return used;
    }
    match &*resource.resource {
        "pods" => add_pod_usage(object, &mut used),
        "services" => add_service_usage(object, &mut used),
        "persistentvolumeclaims" => add_claim_usage(object, &mut used),
        plural if PLAIN_COUNTS.contains(&plural) => {
            used.insert(plural.to_owned(), one);
        }
        _ => {}
    }
    used
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    containers: Vec<QuotaContainer>,
    init_containers: Vec<QuotaContainer>,
    resources: Option<ResourceRequirements>,
    overhead: Option<ResourceList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QuotaContainer {
    name: String,
    #[serde(flatten)]
    resources: RequestingContainer,
}

impl PodSpec {
    fn of(pod: &Value) -> Self {
        Self::deserialize(&pod["spec"]).unwrap_or_default()
    }

    fn totals(&self) -> (ResourceList, ResourceList) {
        let containers = || self.containers.iter().map(|c| &c.resources);
        let init = || self.init_containers.iter().map(|c| &c.resources);
        let (of_pod, overhead) = (self.resources.as_ref(), self.overhead.as_ref());
        (
            pod_requests(containers(), init(), of_pod, overhead),
            pod_limits(containers(), init(), of_pod, overhead),
        )
    }
}

/// The requests and limits of a pod.
pub fn pod_totals(pod: &Value) -> (ResourceList, ResourceList) {
    PodSpec::of(pod).totals()
}

/// Pods that ended use nothing but their count.
fn add_pod_usage(pod: &Value, used: &mut ResourceList) {
    if matches!(
        pod["status"]["phase"].as_str(),
        Some("Failed" | "Succeeded")
    ) {
        return;
    }
    used.insert("pods".to_owned(), Quantity::from_units(1));
    let (requests, limits) = pod_totals(pod);
    add_compute_usage(requests, limits, used);
}

fn add_compute_usage(requests: ResourceList, limits: ResourceList, used: &mut ResourceList) {
    for (name, amount) in requests {
        match &*name {
            "cpu" | "memory" | "ephemeral-storage" => {
                used.insert(format!("{REQUESTS_PREFIX}{name}"), amount);
                used.insert(name, amount);
            }
            hugepages if hugepages.starts_with("hugepages-") => {
                used.insert(format!("{REQUESTS_PREFIX}{name}"), amount);
                used.insert(name, amount);
            }
            extended if extended.contains('/') => {
                used.insert(format!("{REQUESTS_PREFIX}{name}"), amount);
            }
            _ => {}
        }
    }
    for (name, amount) in limits {
        if matches!(&*name, "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), amount);
        }
    }
}

fn add_service_usage(service: &Value, used: &mut ResourceList) {
    let spec = &service["spec"];
    let ports = spec["ports"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let count = |n: usize| Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX));
    used.insert("services".to_owned(), count(1));
    let (node_ports, load_balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            let assigned = ports
                .iter()
                .filter(|p| p["nodePort"].as_i64().unwrap_or(0) != 0);
            (assigned.count(), 1)
        }
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    used.insert("services.nodeports".to_owned(), count(node_ports));
    used.insert("services.loadbalancers".to_owned(), count(load_balancers));
}

fn add_claim_usage(claim: &Value, used: &mut ResourceList) {
    let annotation = claim["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION].as_str();
    let class = annotation.or(claim["spec"]["storageClassName"].as_str());
    let class = class.unwrap_or_default();
    let mut add = |name: &str, amount: Quantity| {
        used.insert(name.to_owned(), amount);
        if !class.is_empty() {
            used.insert(format!("{class}{STORAGE_CLASS_SUFFIX}{name}"), amount);
        }
    };
    add("persistentvolumeclaims", Quantity::from_units(1));
    let quantity = |value: &Value| Quantity::from_value(value).ok();
    let requested = quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    let allocated = quantity(&claim["status"]["allocatedResources"]["storage"]);
    if let Some(storage) = requested.max(allocated) {
        add("requests.storage", storage);
    }
}

/// The message if a container does not specify a resource that the quota limits.
pub fn missing_container_resources(
    resource: &Gvr,
    object: &Value,
    hard: &ResourceList,
) -> Option<String> {
    if !is_core(resource, "pods") {
        return None;
    }
    let required: Vec<&str> = REQUIRED_OF_CONTAINERS
        .into_iter()
        .filter(|name| hard.contains_key(*name))
        .collect();
    let spec = PodSpec::of(object);
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.containers.iter().chain(&spec.init_containers) {
        let mut specified = ResourceList::new();
        let no_containers = std::iter::empty;
        let of_container = [&container.resources];
        let requests = pod_requests(of_container, no_containers(), None, None);
        let limits = pod_limits(of_container, no_containers(), None, None);
        add_compute_usage(requests, limits, &mut specified);
        for name in &required {
            if !specified.contains_key(*name) {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let texts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    Some(format!("must specify {}", texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn core(plural: &str) -> Gvr {
        Gvr::new("", "v1", plural)
    }

    fn check_usage(resource: &Gvr, object: Value, expected: Value) {
        let expected: ResourceList = serde_json::from_value(expected).unwrap();
        assert_eq!(usage(resource, &object), expected, "{object}");
    }

    #[test]
    fn objects_use_their_count_and_more() {
        check_usage(
            &core("secrets"),
            json!({}),
            json!({"count/secrets": "1", "secrets": "1"}),
        );
        let deployments = Gvr::new("apps", "v1", "deployments");
        check_usage(
            &deployments,
            json!({}),
            json!({"count/deployments.apps": "1"}),
        );
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "2"}}});
        let pod =
            json!({"spec": {"containers": [container], "overhead": {"cpu": "1", "memory": "1Gi"}}});
        check_usage(
            &core("pods"),
            pod.clone(),
            json!({"count/pods": "1", "pods": "1", "cpu": "2", "requests.cpu": "2", "limits.cpu": "3",
                   "memory": "1Gi", "requests.memory": "1Gi", "requests.example.com/gpu": "2"}),
        );
        let mut succeeded_pod = pod;
        succeeded_pod["status"] = json!({"phase": "Succeeded"});
        check_usage(&core("pods"), succeeded_pod, json!({"count/pods": "1"}));
        for (spec, node_ports, balancers) in [
            (json!({"ports": [{}, {}]}), "0", "0"),
            (json!({"type": "NodePort", "ports": [{}, {}]}), "2", "0"),
            (json!({"type": "LoadBalancer", "ports": [{}]}), "1", "1"),
            (
                json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{}, {"nodePort": 30000}]}),
                "1",
                "1",
            ),
        ] {
            check_usage(
                &core("services"),
                json!({"spec": spec}),
                json!({"count/services": "1", "services": "1", "services.nodeports": node_ports,
                       "services.loadbalancers": balancers}),
            );
        }
        check_usage(
            &core("persistentvolumeclaims"),
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}}),
            json!({"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "5Gi",
                   "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                   "fast.storageclass.storage.k8s.io/requests.storage": "5Gi"}),
        );
    }

    #[test]
    fn scopes_select_pods() {
        let check = |spec: Value, pod: Value, expected: bool| {
            let parsed: ResourceQuotaSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(parsed.covers(&core("pods"), &pod), expected, "{spec} {pod}");
        };
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"},
                         "status": {"qosClass": "Burstable"}});
        check(json!({}), pod.clone(), true);
        check(
            json!({"scopes": ["Terminating", "NotBestEffort"]}),
            pod.clone(),
            true,
        );
        check(
            json!({"scopes": ["Terminating", "BestEffort"]}),
            pod.clone(),
            false,
        );
        check(json!({"scopes": ["NotTerminating"]}), pod.clone(), false);
        check(
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            pod.clone(),
            false,
        );
        let selector = |operator: &str, values: &[&str]| {
            json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
        };
        check(selector("In", &["high"]), pod.clone(), true);
        check(selector("NotIn", &["high"]), pod.clone(), false);
        check(selector("Exists", &[]), pod.clone(), true);
        check(selector("DoesNotExist", &[]), pod, false);
        let affine = json!({"spec": {"affinity": {"podAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["other"]}]}}}});
        check(
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            affine,
            true,
        );
        let scoped: ResourceQuotaSpec =
            serde_json::from_value(json!({"scopes": ["Terminating"]})).unwrap();
        assert!(!scoped.covers(&core("services"), &json!({})));
    }

    #[test]
    fn scopes_select_claims_by_their_attributes_class() {
        let claims = core("persistentvolumeclaims");
        let check = |operator: &str, values: &[&str], claim: &Value, expected: bool| {
            let spec = json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]}});
            let parsed: ResourceQuotaSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(parsed.covers(&claims, claim), expected, "{spec} {claim}");
        };
        let without_class = json!({"spec": {"volumeAttributesClassName": ""}});
        let gold = json!({"spec": {"volumeAttributesClassName": "gold"}});
        let changing = json!({"spec": {"volumeAttributesClassName": "silver"},
            "status": {"currentVolumeAttributesClassName": "gold"}});
        for (operator, values, expected) in [
            ("In", &["gold"][..], [false, true, true]),
            ("In", &["silver"], [false, false, true]),
            ("NotIn", &["gold"], [true, false, true]),
            ("Exists", &[], [false, true, true]),
            ("DoesNotExist", &[], [true, false, false]),
        ] {
            for (claim, expected) in [&without_class, &gold, &changing].into_iter().zip(expected) {
                check(operator, values, claim, expected);
            }
        }
        let of_pods: ResourceQuotaSpec =
            serde_json::from_value(json!({"scopes": ["Terminating"]})).unwrap();
        assert!(!of_pods.covers(&claims, &gold));
        assert!(changes_usage(&claims, &without_class, &gold));
        assert!(!changes_usage(&claims, &gold, &gold.clone()));
    }

    #[test]
    fn quotas_name_the_resources_that_they_count() {
        let spec = json!({"hard": {"count/deployments.apps": "1", "services.nodeports": "1",
            "fast.storageclass.storage.k8s.io/requests.storage": "1", "limits.cpu": "1", "secrets": "1"}});
        let spec: ResourceQuotaSpec = serde_json::from_value(spec).unwrap();
        let names: Vec<String> = spec
            .counted_resources()
            .into_iter()
            .map(|(group, plural)| format!("{group}/{plural}"))
            .collect();
        let expected = [
            "/persistentvolumeclaims",
            "/pods",
            "/secrets",
            "/services",
            "apps/deployments",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn containers_must_specify_what_a_quota_limits() {
        let pod = json!({"spec": {"containers": [{"name": "b"},
            {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        let hard: ResourceList =
            serde_json::from_value(json!({"cpu": "1", "limits.memory": "1", "pods": "1"})).unwrap();
        let message = missing_container_resources(&core("pods"), &pod, &hard);
        let expected = "must specify cpu for: b; limits.memory for: a,b";
        assert_eq!(message.as_deref(), Some(expected));
    }
}
