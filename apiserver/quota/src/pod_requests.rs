//! The effective resource requests and limits of a pod: for the replica requirements of bindings, the
//! resource summaries of members and the nodes of simulated members.
//!
//! Source: `PodRequests` in `k8s.io/component-helpers/resource`, applied after the defaults that
//! a kube-apiserver sets on a pod (`SetDefaults_Pod`), since pod templates do not have them.

use std::collections::BTreeMap;

use machinery::Quantity;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Requests and limits of a container or of a pod (pod-level resources).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    #[serde(deserialize_with = "deserialize_resource_list")]
    requests: Option<ResourceList>,
    #[serde(deserialize_with = "deserialize_resource_list")]
    limits: Option<ResourceList>,
}

/// Deserializes a `ResourceList`; the error names the malformed quantity.
fn deserialize_resource_list<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ResourceList>, D::Error> {
    let Some(amounts) = Option::<BTreeMap<String, Value>>::deserialize(from)? else {
        return Ok(None);
    };
    let read = |(name, amount): (String, Value)| match Quantity::from_value(&amount) {
        Ok(quantity) => Ok((name, quantity)),
        Err(detail) => Err(D::Error::custom(format!("quantity {amount}: {detail}"))),
    };
    amounts
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map(Some)
}

impl ResourceRequirements {
    fn requests(&self) -> impl Iterator<Item = (&String, Quantity)> {
        self.requests.iter().flatten().map(|(name, q)| (name, *q))
    }

    fn limits(&self) -> impl Iterator<Item = (&String, Quantity)> {
        self.limits.iter().flatten().map(|(name, q)| (name, *q))
    }
}

/// The fields of a container that determine its requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestingContainer {
    restart_policy: Option<String>,
    resources: Option<ResourceRequirements>,
}

impl RequestingContainer {
    /// The requests; a resource with a limit only requests its limit.
    fn requests(&self) -> ResourceList {
        let resources = self.resources.iter();
        let all = resources.flat_map(|r| r.limits().chain(r.requests()));
        all.map(|(name, amount)| (name.clone(), amount)).collect()
    }

    fn limits(&self) -> ResourceList {
        let resources = self.resources.iter();
        let all = resources.flat_map(ResourceRequirements::limits);
        all.map(|(name, amount)| (name.clone(), amount)).collect()
    }

    /// Whether this init container is a sidecar (restartable init container).
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// The requests of a pod, overhead included. `of_pod` are the pod-level resources.
pub fn pod_requests<'a>(
    containers: impl IntoIterator<Item = &'a RequestingContainer>,
    init_containers: impl IntoIterator<Item = &'a RequestingContainer>,
    of_pod: Option<&ResourceRequirements>,
    overhead: Option<&ResourceList>,
) -> ResourceList {
    let mut requests = container_totals(containers, init_containers, RequestingContainer::requests);
    let of_pod = of_pod.into_iter();
    for (name, limit) in of_pod.clone().flat_map(ResourceRequirements::limits) {
        // Hugepages cannot be overcommitted: the limit of the pod is its request.
        let defaulted = name.starts_with("hugepages-") || !requests.contains_key(name);
        if defaulted && is_supported_pod_level_resource(name) {
            requests.insert(name.clone(), limit);
        }
    }
    for (name, request) in of_pod.flat_map(ResourceRequirements::requests) {
        if is_supported_pod_level_resource(name) {
            requests.insert(name.clone(), request);
        }
    }
    add_resource_list(&mut requests, overhead.into_iter().flatten());
    requests
}

/// The limits of a pod (`PodLimits`). Overhead counts only where there is a limit.
pub fn pod_limits<'a>(
    containers: impl IntoIterator<Item = &'a RequestingContainer>,
    init_containers: impl IntoIterator<Item = &'a RequestingContainer>,
    of_pod: Option<&ResourceRequirements>,
    overhead: Option<&ResourceList>,
) -> ResourceList {
    let mut limits = container_totals(containers, init_containers, RequestingContainer::limits);
    for (name, limit) in of_pod.into_iter().flat_map(ResourceRequirements::limits) {
        if is_supported_pod_level_resource(name) {
            limits.insert(name.clone(), limit);
        }
    }
    let overhead = overhead.into_iter().flatten();
    let limited_overhead: Vec<_> = overhead
        .filter(|(name, _)| limits.contains_key(*name))
        .collect();
    add_resource_list(&mut limits, limited_overhead);
    limits
}

/// `AggregateContainerRequests` and `AggregateContainerLimits`: the sum of all containers and sidecars, or the largest
/// initialization step if it is larger. A step is an init container with the sidecars that
/// started before it.
fn container_totals<'a>(
    containers: impl IntoIterator<Item = &'a RequestingContainer>,
    init_containers: impl IntoIterator<Item = &'a RequestingContainer>,
    amounts: fn(&RequestingContainer) -> ResourceList,
) -> ResourceList {
    let (mut sidecars, mut largest_step) = (ResourceList::new(), ResourceList::new());
    for container in init_containers {
        let mut step = amounts(container);
        add_resource_list(&mut step, &sidecars);
        if container.is_sidecar() {
            sidecars.clone_from(&step);
        }
        max_resource_list(&mut largest_step, step);
    }
    let mut requests = sidecars;
    for container in containers {
        add_resource_list(&mut requests, &amounts(container));
    }
    max_resource_list(&mut requests, largest_step);
    requests
}

/// `IsSupportedPodLevelResource`.
fn is_supported_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn add_resource_list<'a>(
    target: &mut ResourceList,
    addends: impl IntoIterator<Item = (&'a String, &'a Quantity)>,
) {
    for (name, amount) in addends {
        match target.get_mut(name) {
            Some(sum) => *sum += *amount,
            None => drop(target.insert(name.clone(), *amount)),
        }
    }
}

fn max_resource_list(target: &mut ResourceList, other: ResourceList) {
    for (name, amount) in other {
        let maximum = target.entry(name).or_insert(amount);
        *maximum = (*maximum).max(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct TestPodSpec {
        containers: Vec<RequestingContainer>,
        init_containers: Vec<RequestingContainer>,
        resources: Option<ResourceRequirements>,
        overhead: Option<ResourceList>,
    }

    fn check(pod: Value, expected: Value) {
        let spec: TestPodSpec = serde_json::from_value(pod.clone()).unwrap();
        let actual = pod_requests(
            &spec.containers,
            &spec.init_containers,
            spec.resources.as_ref(),
            spec.overhead.as_ref(),
        );
        let expected: ResourceList = serde_json::from_value(expected).unwrap();
        assert_eq!(actual, expected, "{pod}");
    }

    fn container_requesting(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn container_requests_add_up_and_limits_stand_in() {
        check(json!({"containers": [{}]}), json!({}));
        check(
            json!({"containers": [container_requesting("1"), {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "4", "memory": "1Gi"}}}]}),
            json!({"cpu": "1500m", "memory": "1Gi"}),
        );
        check(json!({"containers": [{"resources": null}]}), json!({}));
    }

    #[test]
    fn init_containers_run_in_sequence_and_sidecars_beside_all_later_containers() {
        for (init, expected) in [
            (
                json!([container_requesting("5"), container_requesting("2")]),
                "5",
            ),
            (json!([container_requesting("500m"), sidecar("2")]), "3"),
            (json!([sidecar("2"), container_requesting("3")]), "5"),
            (json!([container_requesting("3"), sidecar("2")]), "3"),
            (
                json!([sidecar("1"), sidecar("2"), container_requesting("100m")]),
                "4",
            ),
            (
                json!([sidecar("1"), container_requesting("5"), sidecar("2")]),
                "6",
            ),
        ] {
            check(
                json!({"containers": [container_requesting("1")], "initContainers": init}),
                json!({"cpu": expected}),
            );
        }
    }

    #[test]
    fn pod_level_resources_replace_container_requests() {
        let containers = json!([container_requesting("1")]);
        for (resources, expected) in [
            (json!({"requests": {"cpu": "3"}}), json!({"cpu": "3"})),
            (json!({"requests": {"cpu": "500m"}}), json!({"cpu": "500m"})),
            (json!({"limits": {"cpu": "3"}}), json!({"cpu": "1"})),
            (
                json!({"limits": {"memory": "1Gi"}}),
                json!({"cpu": "1", "memory": "1Gi"}),
            ),
            (
                json!({"requests": {"example.com/gpu": "1"}}),
                json!({"cpu": "1"}),
            ),
            (
                json!({"limits": {"hugepages-2Mi": "4Mi"}}),
                json!({"cpu": "1", "hugepages-2Mi": "4Mi"}),
            ),
        ] {
            check(
                json!({"containers": containers, "resources": resources}),
                expected,
            );
        }
        check(
            json!({"containers": containers, "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "50m", "memory": "1Mi"}}),
            json!({"cpu": "3050m", "memory": "1Mi"}),
        );
    }
}
