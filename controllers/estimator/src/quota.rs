//! Estimates how many replicas the ResourceQuotas of a namespace allow.
//!
//! Pure. Source of the rules: Karmada's `ResourceQuotaEstimator`
//! (`pkg/estimator/server/framework/plugins/resourcequota`): cpu, memory and extended
//! resources count, and of the scopes only `PriorityClass`; one matching scope suffices.

use std::collections::BTreeMap;

use machinery::Quantity;
use machinery::selector::{Operator, Requirement};
use members::{Quota, Scope};
use openapi::karmada::binding::Component;
use scheduler::Asked;
use scheduler::core::{AssumedWorkload, Resource};
use serde_json::Value;

use crate::UNBOUNDED;

const PRIORITY_CLASS: &str = "PriorityClass";

/// Amounts by resource, each in its unit.
type Amounts = BTreeMap<String, i64>;

fn text<'a>(requirements: Option<&'a Value>, field: &str) -> &'a str {
    let value = requirements.and_then(|r| r.get(field));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The namespace whose quotas apply; empty if no quotas apply.
pub(crate) fn namespace<'a>(asked: &Asked<'a>) -> &'a str {
    match asked {
        Asked::Replicas(requirements) => text(*requirements, "namespace"),
        Asked::Sets { namespace, .. } => namespace,
    }
}

/// How many replicas or sets all quotas allow.
pub(crate) fn fits<'q>(
    quotas: impl IntoIterator<Item = &'q Quota>,
    asked: &Asked<'_>,
    assumed: &[impl AsRef<AssumedWorkload>],
) -> i64 {
    let namespace = namespace(asked);
    let others: Vec<&Component> = assumed
        .iter()
        .map(AsRef::as_ref)
        .filter(|workload| workload.namespace == namespace)
        .flat_map(|workload| &workload.components)
        .collect();
    let fits = quotas.into_iter().map(|quota| {
        let requested = match asked {
            Asked::Replicas(None) => return UNBOUNDED,
            Asked::Replicas(Some(requirements)) => {
                if !applies(quota, text(Some(requirements), "priorityClassName")) {
                    return UNBOUNDED;
                }
                request(Some(requirements), 1)
            }
            Asked::Sets { components, .. } => sum(components.iter(), quota),
        };
        let taken = sum(others.iter().copied(), quota);
        divide(&free(quota), &taken, &requested)
    });
    fits.min().unwrap_or(UNBOUNDED)
}

/// How often `requested` fits into what `free` leaves after `taken`.
fn divide(free: &Amounts, taken: &Amounts, requested: &Amounts) -> i64 {
    let left = |(name, free): (&String, &i64)| {
        let left = free - taken.get(name).copied().unwrap_or(0);
        (name.clone(), left)
    };
    let left: Amounts = free.iter().map(left).collect();
    if taken
        .keys()
        .any(|name| left.get(name).is_some_and(|l| *l < 0))
    {
        return 0;
    }
    let fits = requested.iter().filter(|(_, each)| **each > 0);
    let fits = fits.filter_map(|(name, each)| Some((left.get(name)?.max(&0)) / each));
    fits.min().unwrap_or(UNBOUNDED).min(UNBOUNDED)
}

/// The sum of the components' requests to which a quota applies.
fn sum<'c>(components: impl Iterator<Item = &'c Component>, quota: &Quota) -> Amounts {
    let mut all = Amounts::new();
    for component in components {
        let requirements = component.replica_requirements.as_ref();
        if requirements.is_none() || !applies(quota, text(requirements, "priorityClassName")) {
            continue;
        }
        for (name, amount) in request(requirements, component.replicas.max(0)) {
            let sum = all.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    all
}

fn request(requirements: Option<&Value>, times: i64) -> Amounts {
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
fn free(quota: &Quota) -> Amounts {
    let amounts = quota.hard.iter().filter_map(|(name, hard)| {
        let plain = name.strip_prefix("requests.").unwrap_or(name);
        let used = quota.used.get(name)?;
        is_counted(plain).then(|| (plain.to_owned(), units(plain, *hard - *used)))
    });
    amounts.collect()
}

fn units(name: &str, amount: Quantity) -> i64 {
    Resource::named(name).units(amount)
}

/// Cpu, memory, and extended resources by `IsExtendedResourceName` of the core API.
fn is_counted(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name == "cpu" || name == "memory" || !(is_native || name.starts_with("requests."))
}

fn applies(quota: &Quota, class: &str) -> bool {
    let mut scopes = quota.scopes.iter();
    quota.scopes.is_empty() || scopes.any(|scope| includes(scope, class))
}

fn includes(scope: &Scope, class: &str) -> bool {
    if scope.name != PRIORITY_CLASS {
        return false;
    }
    let operator = match scope.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return false,
    };
    let class = Some(class).filter(|class| !class.is_empty());
    Requirement::new(PRIORITY_CLASS, operator, scope.values.clone())
        .is_ok_and(|requirement| requirement.holds(class))
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
