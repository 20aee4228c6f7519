//! What a replica asks for, and what a workload occupies on a cluster.
//!
//! Enters: `replicaRequirements` and `components` of a binding. Leaves: amounts that
//! were parsed once for all clusters of a decision.

use machinery::Quantity;
use openapi::karmada::BindingSpec;
use serde_json::Value;

/// The resource that is counted in thousandths.
const CPU: &str = "cpu";

/// An amount in the unit that room is counted in: thousandths of cpu, whole units of
/// everything else.
pub(crate) fn units(name: &str, amount: Quantity) -> i128 {
    if name == CPU {
        amount.milli()
    } else {
        amount.value()
    }
}

/// Positive amounts by resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    amounts: Vec<(String, Quantity)>,
    /// An amount that is not a quantity: nothing has room for it.
    unreadable: bool,
}

impl Demand {
    fn of(requirements: &Value) -> Self {
        let mut demand = Self::default();
        let request = requirements.get("resourceRequest");
        for (name, amount) in request.and_then(Value::as_object).into_iter().flatten() {
            match Quantity::from_value(amount) {
                Ok(amount) if amount.is_zero() || amount.is_negative() => {}
                Ok(amount) => demand.amounts.push((name.clone(), amount)),
                Err(_) => demand.unreadable = true,
            }
        }
        demand
    }

    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.amounts
            .iter()
            .map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.unreadable
    }
}

/// So many pods that ask for the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) replicas: i64,
    /// `None`: nothing is said, pods alone are counted.
    pub(crate) demand: Option<Demand>,
}

/// What one replica of a workload asks for.
pub(crate) fn of_replica(spec: &BindingSpec) -> Option<Demand> {
    spec.replica_requirements.as_ref().map(Demand::of)
}

/// The components of a workload; together they are a set.
pub(crate) fn of_set(spec: &BindingSpec) -> Vec<Part> {
    let parts = spec.components.iter().map(|component| Part {
        replicas: component.replicas,
        demand: component.replica_requirements.as_ref().map(Demand::of),
    });
    parts.collect()
}

/// What a workload occupies on a cluster that was given `replicas`.
pub(crate) fn footprint(spec: &BindingSpec, replicas: i64) -> Vec<Part> {
    if spec.components.is_empty() {
        let demand = of_replica(spec);
        vec![Part { replicas, demand }]
    } else {
        of_set(spec)
    }
}
