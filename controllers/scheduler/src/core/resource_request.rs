//! Resource requests of replicas and components, parsed once for all clusters of a
//! decision from `replicaRequirements` and `components` of a binding.

use karmada_api::ResourceBindingSpec;
use karmada_api::binding::Component;
use machinery::Quantity;
use serde_json::Value;

/// The name of a resource; the common ones compare without text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceName {
    Cpu,
    Memory,
    Storage,
    Pods,
    Other(Box<str>),
}

impl ResourceName {
    pub fn from_name(name: &str) -> Self {
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

    /// Converts a quantity to the unit that capacity is counted in: millicores for cpu,
    /// whole units for everything else.
    pub fn units(&self, amount: Quantity) -> i64 {
        let units = match self {
            Self::Cpu => amount.milli_value(),
            _ => amount.value(),
        };
        units.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether resource models consider it; they ignore other unqualified names.
    pub(crate) fn is_modeled(&self) -> bool {
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
struct ResourceAmount {
    resource: ResourceName,
    units: i64,
    is_modeled: bool,
}

/// Positive amounts by resource that one replica requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaResourceRequest {
    amounts: Vec<ResourceAmount>,
    /// Some amount is not a valid quantity: no cluster has capacity for it.
    unreadable: bool,
}

impl ReplicaResourceRequest {
    /// Parses `replicaRequirements`.
    pub fn from_requirements(requirements: &Value) -> Self {
        let mut demand = Self::default();
        let request = requirements.get("resourceRequest");
        for (name, amount) in request.and_then(Value::as_object).into_iter().flatten() {
            match Quantity::from_value(amount) {
                Ok(amount) if amount.is_zero() || amount.is_negative() => {}
                Ok(amount) => {
                    let of = ResourceName::from_name(name);
                    demand.amounts.push(ResourceAmount {
                        units: of.units(amount),
                        is_modeled: of.is_modeled(),
                        resource: of,
                    });
                }
                Err(_) => demand.unreadable = true,
            }
        }
        demand
    }

    /// Each amount in its unit.
    pub fn amounts(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        self.amounts
            .iter()
            .map(|amount| (&amount.resource, amount.units))
    }

    /// The amounts that resource models consider.
    pub fn modeled(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        let modeled = self.amounts.iter().filter(|amount| amount.is_modeled);
        modeled.map(|amount| (&amount.resource, amount.units))
    }

    pub fn is_unreadable(&self) -> bool {
        self.unreadable
    }
}

/// A number of pods with the same request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComponentResourceRequest {
    pub(crate) replicas: i64,
    /// `None`: the requirements are unknown; only pods are counted.
    pub(crate) request: Option<ReplicaResourceRequest>,
}

/// The request of one replica of a workload.
pub(crate) fn replica_request(spec: &ResourceBindingSpec) -> Option<ReplicaResourceRequest> {
    spec.replica_requirements
        .as_ref()
        .map(ReplicaResourceRequest::from_requirements)
}

/// The requests of a workload's components, which together are a set.
pub(crate) fn component_requests(components: &[Component]) -> Vec<ComponentResourceRequest> {
    let parts = components.iter().map(|component| ComponentResourceRequest {
        replicas: component.replicas,
        request: component
            .replica_requirements
            .as_ref()
            .map(ReplicaResourceRequest::from_requirements),
    });
    parts.collect()
}

/// A workload that a cluster was assigned and may not have started yet. Plain replicas are
/// one component without a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssumedWorkload {
    pub namespace: String,
    pub components: Vec<Component>,
}

impl AssumedWorkload {
    /// The part of a workload with `replicas` on one cluster.
    pub(crate) fn from_spec(spec: &ResourceBindingSpec, replicas: i64) -> Self {
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
