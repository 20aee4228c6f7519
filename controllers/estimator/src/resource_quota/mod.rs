//! Estimates how many replicas the ResourceQuotas of a namespace allow.
//!
//! Pure. Source of the rules: Karmada's `ResourceQuotaEstimator`
//! (`pkg/estimator/server/framework/plugins/resourcequota`): cpu, memory and extended
//! resources count, and of the scopes only `PriorityClass`; one matching scope suffices.

use std::collections::BTreeMap;

use karmada_api::binding::Component;
use machinery::Quantity;
use machinery::selector::{LabelRequirement, SelectorOperator};
use members::{MemberResourceQuota, ScopedResourceSelectorRequirement};
use scheduler::EstimateSubject;
use scheduler::core::{AssumedWorkload, ResourceName};
use serde_json::Value;

use crate::UNBOUNDED_REPLICAS;

const PRIORITY_CLASS: &str = "PriorityClass";

/// Amounts by resource, each in its unit.
type QuotaAmounts = BTreeMap<String, i64>;

fn string_field<'a>(requirements: Option<&'a Value>, field: &str) -> &'a str {
    let value = requirements.and_then(|r| r.get(field));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The namespace whose quotas apply; empty if no quotas apply.
pub(crate) fn quota_namespace<'a>(asked: &EstimateSubject<'a>) -> &'a str {
    match asked {
        EstimateSubject::Replicas(requirements) => string_field(*requirements, "namespace"),
        EstimateSubject::Sets { namespace, .. } => namespace,
    }
}

/// How many replicas or sets all quotas allow.
pub(crate) fn fit_within_quotas<'q>(
    quotas: impl IntoIterator<Item = &'q MemberResourceQuota>,
    asked: &EstimateSubject<'_>,
    assumed: &[impl AsRef<AssumedWorkload>],
) -> i64 {
    let namespace = quota_namespace(asked);
    let others: Vec<&Component> = assumed
        .iter()
        .map(AsRef::as_ref)
        .filter(|workload| workload.namespace == namespace)
        .flat_map(|workload| &workload.components)
        .collect();
    let fits = quotas.into_iter().map(|quota| {
        let requested = match asked {
            EstimateSubject::Replicas(None) => return UNBOUNDED_REPLICAS,
            EstimateSubject::Replicas(Some(requirements)) => {
                if !quota_applies(quota, string_field(Some(requirements), "priorityClassName")) {
                    return UNBOUNDED_REPLICAS;
                }
                resource_request(Some(requirements), 1)
            }
            EstimateSubject::Sets { components, .. } => sum_requests(components.iter(), quota),
        };
        let taken = sum_requests(others.iter().copied(), quota);
        fit_within(&free_amounts(quota), &taken, &requested)
    });
    fits.min().unwrap_or(UNBOUNDED_REPLICAS)
}

/// How often `requested` fits into what `free` leaves after `taken`.
fn fit_within(free: &QuotaAmounts, taken: &QuotaAmounts, requested: &QuotaAmounts) -> i64 {
    let left = |(name, free): (&String, &i64)| {
        let left = free - taken.get(name).copied().unwrap_or(0);
        (name.clone(), left)
    };
    let left: QuotaAmounts = free.iter().map(left).collect();
    if taken
        .keys()
        .any(|name| left.get(name).is_some_and(|l| *l < 0))
    {
        return 0;
    }
    let fits = requested.iter().filter(|(_, each)| **each > 0);
    let fits = fits.filter_map(|(name, each)| Some((left.get(name)?.max(&0)) / each));
    fits.min()
        .unwrap_or(UNBOUNDED_REPLICAS)
        .min(UNBOUNDED_REPLICAS)
}

/// The sum of the components' requests to which a quota applies.
fn sum_requests<'c>(
    components: impl Iterator<Item = &'c Component>,
    quota: &MemberResourceQuota,
) -> QuotaAmounts {
    let mut all = QuotaAmounts::new();
    for component in components {
        let requirements = component.replica_requirements.as_ref();
        if requirements.is_none()
            || !quota_applies(quota, string_field(requirements, "priorityClassName"))
        {
            continue;
        }
        for (name, amount) in resource_request(requirements, component.replicas.max(0)) {
            let sum = all.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    all
}

fn resource_request(requirements: Option<&Value>, times: i64) -> QuotaAmounts {
    let request = requirements.and_then(|r| r.get("resourceRequest"));
    let request = request.and_then(Value::as_object).into_iter().flatten();
    let amounts = request.filter(|(name, _)| is_counted(name));
    let amounts = amounts.filter_map(|(name, amount)| {
        let units = units(name, Quantity::from_value(amount).ok()?);
        Some((name.clone(), units.saturating_mul(times)))
    });
    amounts.collect()
}

/// Hard minus used, under the names that pods request.
fn free_amounts(quota: &MemberResourceQuota) -> QuotaAmounts {
    let amounts = quota.hard.iter().filter_map(|(name, hard)| {
        let plain = name.strip_prefix("requests.").unwrap_or(name);
        let used = quota.used.get(name)?;
        is_counted(plain).then(|| (plain.to_owned(), units(plain, *hard - *used)))
    });
    amounts.collect()
}

fn units(name: &str, amount: Quantity) -> i64 {
    ResourceName::from_name(name).units(amount)
}

/// Cpu, memory, and extended resources by `IsExtendedResourceName` of the core API.
fn is_counted(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name == "cpu" || name == "memory" || !(is_native || name.starts_with("requests."))
}

fn quota_applies(quota: &MemberResourceQuota, class: &str) -> bool {
    let mut scopes = quota.scopes.iter();
    quota.scopes.is_empty() || scopes.any(|scope| scope_matches(scope, class))
}

fn scope_matches(scope: &ScopedResourceSelectorRequirement, class: &str) -> bool {
    if scope.scope_name != PRIORITY_CLASS {
        return false;
    }
    let operator = match scope.operator.as_str() {
        "In" => SelectorOperator::In,
        "NotIn" => SelectorOperator::NotIn,
        "Exists" => SelectorOperator::Exists,
        "DoesNotExist" => SelectorOperator::DoesNotExist,
        _ => return false,
    };
    let class = Some(class).filter(|class| !class.is_empty());
    LabelRequirement::new(PRIORITY_CLASS, operator, scope.values.clone())
        .is_ok_and(|requirement| requirement.matches(class))
}

#[cfg(test)]
mod tests;
