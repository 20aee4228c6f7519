//! What a replica asks for, and what a workload occupies on a cluster.
//!
//! Enters: `replicaRequirements` and `components` of a binding. Leaves: amounts that
//! were parsed once for all clusters of a decision.

use machinery::Quantity;
use openapi::karmada::BindingSpec;
use openapi::karmada::binding::Component;
use serde_json::Value;

/// A resource by name; the common ones need no text to be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Cpu,
    Memory,
    Storage,
    Pods,
    Other(Box<str>),
}

impl Resource {
    pub fn named(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::Storage,
            "pods" => Self::Pods,
            other => Self::Other(other.into()),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Storage => "ephemeral-storage",
            Self::Pods => "pods",
            Self::Other(name) => name,
        }
    }

    /// An amount in the unit that room is counted in: thousandths of cpu, whole units
    /// of everything else.
    pub fn units(&self, amount: Quantity) -> i64 {
        let units = match self {
            Self::Cpu => amount.milli(),
            _ => amount.value(),
        };
        units.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether nodes are simulated with it; other plain names are not looked at.
    pub(crate) fn is_modelled(&self) -> bool {
        match self {
            Self::Cpu | Self::Memory | Self::Storage => true,
            Self::Pods => false,
            Self::Other(name) => {
                name.contains('/')
                    || name.starts_with("hugepages-")
                    || name.starts_with("attachable-volumes-")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Amount {
    of: Resource,
    units: i64,
    is_modelled: bool,
}

/// Positive amounts by resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    amounts: Vec<Amount>,
    /// An amount that is not a quantity: nothing has room for it.
    unreadable: bool,
}

impl Demand {
    /// Of `replicaRequirements`.
    pub fn of(requirements: &Value) -> Self {
        let mut demand = Self::default();
        let request = requirements.get("resourceRequest");
        for (name, amount) in request.and_then(Value::as_object).into_iter().flatten() {
            match Quantity::from_value(amount) {
                Ok(amount) if amount.is_zero() || amount.is_negative() => {}
                Ok(amount) => {
                    let of = Resource::named(name);
                    demand.amounts.push(Amount {
                        units: of.units(amount),
                        is_modelled: of.is_modelled(),
                        of,
                    });
                }
                Err(_) => demand.unreadable = true,
            }
        }
        demand
    }

    /// Each in its unit.
    pub fn amounts(&self) -> impl Iterator<Item = (&Resource, i64)> {
        self.amounts.iter().map(|amount| (&amount.of, amount.units))
    }

    /// Those that nodes are simulated with.
    pub fn modelled(&self) -> impl Iterator<Item = (&Resource, i64)> {
        let modelled = self.amounts.iter().filter(|amount| amount.is_modelled);
        modelled.map(|amount| (&amount.of, amount.units))
    }

    pub fn is_unreadable(&self) -> bool {
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
pub(crate) fn of_set(components: &[Component]) -> Vec<Part> {
    let parts = components.iter().map(|component| Part {
        replicas: component.replicas,
        demand: component.replica_requirements.as_ref().map(Demand::of),
    });
    parts.collect()
}

/// What a cluster was given and may not have started yet. Replicas of one kind are a
/// component without a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssumedWorkload {
    pub namespace: String,
    pub components: Vec<Component>,
}

impl AssumedWorkload {
    /// Of a workload of which a cluster was given `replicas`.
    pub(crate) fn of(spec: &BindingSpec, replicas: i64) -> Self {
        let components = if spec.components.is_empty() {
            vec![Component {
                name: String::new(),
                replicas,
                replica_requirements: spec.replica_requirements.clone(),
            }]
        } else {
            spec.components.clone()
        };
        Self {
            namespace: spec.resource.namespace.clone(),
            components,
        }
    }
}
