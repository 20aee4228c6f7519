//! The resource usage of bindings, and what of it a FederatedResourceQuota limits; for admission
//! and for the controller that recalculates usage.
//!
//! Rules of Karmada's `pkg/util/helper/binding.go` and `pkg/webhook/resourcebinding`.

use std::collections::BTreeSet;

use karmada_api::binding::{Component, ResourceBindingSpec};
use karmada_api::quota::QuotaResourceList;
use machinery::Quantity;
use serde_json::Value;

/// The requests of all scheduled replicas of a binding. Of a workload with components, each
/// cluster gets one set of all components.
pub fn calculate_resource_usage(binding: &ResourceBindingSpec) -> QuotaResourceList {
    let (unit, times) = if binding.components.is_empty() {
        let replicas = binding.clusters.iter().map(|c| c.replicas).sum();
        (
            replica_request(binding.replica_requirements.as_ref()),
            replicas,
        )
    } else {
        let clusters = i64::try_from(binding.clusters.len()).unwrap_or(i64::MAX);
        (component_set_request(&binding.components), clusters)
    };
    let all = unit.into_iter().map(|(name, q)| (name, q.times(times)));
    all.filter(|(_, q)| !q.is_zero()).collect()
}

fn component_set_request(components: &[Component]) -> QuotaResourceList {
    let mut sum = QuotaResourceList::new();
    for component in components {
        for (name, amount) in replica_request(component.replica_requirements.as_ref()) {
            add_amount(&mut sum, name, amount.times(component.replicas));
        }
    }
    sum
}

/// The requests of one replica. The schema has rejected malformed quantities.
fn replica_request(requirements: Option<&Value>) -> QuotaResourceList {
    let requested = requirements.and_then(|r| r.get("resourceRequest"));
    let entries = requested.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// Adds an amount of one resource.
pub fn add_amount(amounts: &mut QuotaResourceList, name: String, amount: Quantity) {
    *amounts.entry(name).or_default() += amount;
}

/// Whether an update of a binding may change its usage.
pub fn may_change_usage(old: &ResourceBindingSpec, new: &ResourceBindingSpec) -> bool {
    let requested = |b: &ResourceBindingSpec| replica_request(b.replica_requirements.as_ref());
    let replicas = |b: &ResourceBindingSpec| b.clusters.iter().map(|c| c.replicas).sum::<i64>();
    let clusters = |b: &ResourceBindingSpec| -> BTreeSet<String> {
        b.clusters.iter().map(|c| c.name.clone()).collect()
    };
    let sets = |b: &ResourceBindingSpec| -> Vec<_> {
        let all = b.components.iter();
        all.map(|c| (c.replicas, replica_request(c.replica_requirements.as_ref())))
            .collect()
    };
    let has_components = !(old.components.is_empty() && new.components.is_empty());
    requested(old) != requested(new)
        || replicas(old) != replicas(new)
        || has_components && (clusters(old) != clusters(new) || sets(old) != sets(new))
}

/// `new` minus `old`, without resources that do not change.
pub fn usage_difference(new: &QuotaResourceList, old: &QuotaResourceList) -> QuotaResourceList {
    let names: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let of = |amounts: &QuotaResourceList, name| amounts.get(name).copied().unwrap_or_default();
    let all = names.into_iter();
    all.map(|name| (name.clone(), of(new, name) - of(old, name)))
        .filter(|(_, amount)| !amount.is_zero())
        .collect()
}

/// The amounts of the resources that a quota limits, under the quota's names: `requests.X` limits
/// what `X` limits, the requests of replicas.
pub fn retain_limited(
    amounts: &QuotaResourceList,
    overall: &QuotaResourceList,
) -> QuotaResourceList {
    let limited = overall.keys().filter_map(|name| {
        let amount = amounts.get(requested_resource(name))?;
        Some((name.clone(), *amount))
    });
    limited.collect()
}

/// The resource of a replica's request that a resource of a quota limits.
pub fn requested_resource(name: &str) -> &str {
    name.strip_prefix("requests.").unwrap_or(name)
}

/// Whether a quota can limit a resource by what the bindings of its namespace request. They say
/// nothing about limits, claims or numbers of objects; that replicas are pods, a script may say.
pub fn is_requested_by_bindings(name: &str) -> bool {
    let requested = requested_resource(name);
    let is_extended = requested.contains('/')
        && !requested.starts_with("count/")
        && !requested.contains(".storageclass.storage.k8s.io/");
    matches!(requested, "cpu" | "memory" | "ephemeral-storage" | "pods")
        || requested.starts_with("hugepages-")
        || is_extended
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: Value) -> ResourceBindingSpec {
        serde_json::from_value(value).unwrap()
    }

    fn amounts(value: Value) -> QuotaResourceList {
        serde_json::from_value(value).unwrap()
    }

    // proves: QUO-usage, QUO-usage-sets
    #[test]
    fn a_binding_uses_what_its_replicas_request() {
        let part = |name: &str, replicas: i64, request: Value| json!({"name": name, "replicas": replicas, "replicaRequirements": {"resourceRequest": request}});
        let table = [
            (json!({}), json!({})),
            (
                json!({"replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}),
                json!({}),
            ),
            (
                json!({"replicas": 9, "replicaRequirements": {"resourceRequest": {"cpu": "250m", "memory": "1Gi", "x.io/y": "0"}},
                    "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}]}),
                json!({"cpu": "750m", "memory": "3Gi"}),
            ),
            (
                json!({"clusters": [{"name": "a"}], "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}),
                json!({}),
            ),
            (
                json!({"components": [part("j", 1, json!({"cpu": "1"})), part("t", 2, json!({"cpu": "500m", "memory": "64Mi"})), {"name": "n", "replicas": 4}],
                    "clusters": [{"name": "a"}, {"name": "b"}]}),
                json!({"cpu": "4", "memory": "256Mi"}),
            ),
            (
                json!({"components": [part("j", 1, json!({"cpu": "1"}))]}),
                json!({}),
            ),
        ];
        for (binding, used) in table {
            let actual =
                serde_json::to_value(calculate_resource_usage(&spec(binding.clone()))).unwrap();
            assert_eq!(actual, used, "{binding}");
        }
    }

    // proves: ADM-quota-when
    #[test]
    fn only_some_updates_change_usage() {
        let old = json!({"replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "clusters": [{"name": "a", "replicas": 3}]});
        let spec_with = |key: &str, value: Value| {
            let mut new = old.clone();
            new[key] = value;
            new
        };
        let table = [
            (spec_with("replicas", json!(9)), false),
            (
                spec_with("clusters", json!([{"name": "b", "replicas": 3}])),
                false,
            ),
            (
                spec_with("clusters", json!([{"name": "a", "replicas": 4}])),
                true,
            ),
            (
                spec_with(
                    "replicaRequirements",
                    json!({"resourceRequest": {"cpu": "1000m"}}),
                ),
                false,
            ),
            (spec_with("replicaRequirements", Value::Null), true),
            (
                spec_with("components", json!([{"name": "c", "replicas": 1}])),
                true,
            ),
        ];
        for (new, concerned) in table {
            let actual = may_change_usage(&spec(old.clone()), &spec(new.clone()));
            assert_eq!(actual, concerned, "{new}");
        }
        let set = |clusters: Value, replicas: i64| {
            spec(json!({"components": [{"name": "c", "replicas": replicas}], "clusters": clusters}))
        };
        let old = set(json!([{"name": "a"}]), 1);
        for (new, concerned) in [
            (set(json!([{"name": "a"}]), 1), false),
            (set(json!([{"name": "b"}]), 1), true),
            (set(json!([{"name": "a"}]), 2), true),
        ] {
            assert_eq!(may_change_usage(&old, &new), concerned);
        }
    }

    // proves: QUO-limited, QUO-requests
    #[test]
    fn amounts_are_compared_by_resource() {
        let new = amounts(json!({"cpu": "3", "memory": "1Gi", "pods": "5"}));
        let old = amounts(json!({"cpu": "1", "memory": "1024Mi", "x": "2"}));
        let increase = usage_difference(&new, &old);
        assert_eq!(
            increase,
            amounts(json!({"cpu": "2", "pods": "5", "x": "-2"}))
        );
        let overall = amounts(json!({"cpu": "10"}));
        assert_eq!(
            retain_limited(&increase, &overall),
            amounts(json!({"cpu": "2"}))
        );
        let by_requests = amounts(json!({"requests.cpu": "1", "cpu": "9", "limits.cpu": "1"}));
        assert_eq!(
            retain_limited(&increase, &by_requests),
            amounts(json!({"cpu": "2", "requests.cpu": "2"}))
        );
    }

    #[test]
    fn only_requests_of_replicas_can_be_limited() {
        for (name, expected) in [
            ("cpu", true),
            ("requests.memory", true),
            ("hugepages-2Mi", true),
            ("requests.x.io/gpu", true),
            ("x.io/gpu", true),
            ("pods", true),
            ("limits.cpu", false),
            ("services.nodeports", false),
            ("requests.storage", false),
            ("count/deployments.apps", false),
            ("fast.storageclass.storage.k8s.io/requests.storage", false),
        ] {
            assert_eq!(is_requested_by_bindings(name), expected, "{name}");
        }
    }
}
