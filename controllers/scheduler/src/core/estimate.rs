//! The general estimator: how many replicas a cluster's summary has room for
//! (Karmada's `pkg/estimator/client/general.go`).

use machinery::Quantity;
use openapi::karmada::{BindingSpec, Cluster};

const UNBOUNDED: i64 = i32::MAX as i64;

/// Free replicas of a cluster.
pub(crate) fn available(spec: &BindingSpec, cluster: &Cluster) -> i64 {
    if spec.replicas == 0 {
        return UNBOUNDED;
    }
    let Some(summary) = &cluster.status.resource_summary else {
        return 0;
    };
    let free = |name: &str| {
        let of =
            |amounts: &std::collections::BTreeMap<String, Quantity>| amounts.get(name).copied();
        let allocatable = of(&summary.allocatable)?;
        Some(
            allocatable
                - of(&summary.allocated).unwrap_or_default()
                - of(&summary.allocating).unwrap_or_default(),
        )
    };
    let pods = free("pods")
        .map_or(0, Quantity::value)
        .clamp(0, UNBOUNDED.into()) as i64;
    let request = spec
        .replica_requirements
        .as_ref()
        .and_then(|r| r["resourceRequest"].as_object());
    let Some(request) = request else { return pods };
    let mut fit = pods;
    for (name, amount) in request {
        let Ok(amount) = Quantity::from_value(amount) else {
            return 0;
        };
        if amount.is_zero() || amount.is_negative() {
            continue;
        }
        let Some(free) = free(name) else { return 0 };
        let (free, each) = if name == "cpu" {
            (free.milli(), amount.milli())
        } else {
            (free.value(), amount.value())
        };
        fit = fit.min((free.max(0) / each.max(1)).min(UNBOUNDED.into()) as i64);
    }
    fit
}
