//! Estimates the available replicas of a cluster: from its summary (Karmada's
//! `pkg/estimator/client/general.go`), lowered to the accurate estimate if that is less.

use std::ops::Deref;
use std::sync::Arc;

use karmada_api::ResourceBindingSpec;

use super::accurate_estimates::AccurateEstimates;
use super::estimate_source::EstimateSource;
use super::reservations::OptionalReservationsRef;
use super::resource_models::ModeledNodes;
use super::resource_request::{
    self, ComponentResourceRequest, ReplicaResourceRequest, ResourceName,
};
use super::snapshot::{AvailableResources, ClusterInfo};
use super::{SchedulingContext, SchedulingSettings};

pub(crate) const UNBOUNDED_REPLICAS: i64 = i32::MAX as i64;

/// Whether a workload needs an estimate.
pub(crate) fn is_estimated(spec: &ResourceBindingSpec) -> bool {
    spec.replicas != 0 || !spec.components.is_empty()
}

enum EstimatedWorkload {
    Nothing,
    Replicas(Option<ReplicaResourceRequest>),
    Sets(Vec<ComponentResourceRequest>),
}

/// The modeled nodes as reported, or with assumed workloads on them.
enum ReportedOrAssumedModeledNodes<'m> {
    Reported(&'m ModeledNodes),
    WithAssumed(Arc<ModeledNodes>),
}

impl Deref for ReportedOrAssumedModeledNodes<'_> {
    type Target = ModeledNodes;

    fn deref(&self) -> &ModeledNodes {
        match self {
            Self::Reported(nodes) => nodes,
            Self::WithAssumed(nodes) => nodes,
        }
    }
}

/// Estimates one workload on many clusters.
pub(crate) struct CapacityEstimator<'a> {
    workload: EstimatedWorkload,
    /// The workload's replicas, returned when nothing limits the estimate.
    replicas: i64,
    settings: SchedulingSettings,
    reservations: OptionalReservationsRef<'a>,
    accurate: Option<&'a AccurateEstimates>,
}

impl<'a> CapacityEstimator<'a> {
    /// `sets`: the components are scheduled as a set. `accurate`: the estimates that count.
    pub(crate) fn new(
        spec: &ResourceBindingSpec,
        sets: bool,
        context: &SchedulingContext<'a>,
        accurate: Option<&'a AccurateEstimates>,
    ) -> Self {
        let workload = if !is_estimated(spec) {
            EstimatedWorkload::Nothing
        } else if sets {
            EstimatedWorkload::Sets(resource_request::component_requests(&spec.components))
        } else {
            EstimatedWorkload::Replicas(resource_request::replica_request(spec))
        };
        let reservations = if context.settings.reserve {
            context.reservations
        } else {
            OptionalReservationsRef::EMPTY
        };
        Self {
            workload,
            replicas: spec.replicas,
            settings: context.settings,
            reservations,
            accurate,
        }
    }

    /// Available replicas, or sets, of a cluster.
    pub(crate) fn available(&self, member: &ClusterInfo) -> (i64, EstimateSource) {
        if matches!(self.workload, EstimatedWorkload::Nothing) {
            return (UNBOUNDED_REPLICAS, EstimateSource::Unbounded);
        }
        let (mut fit, mut source) = self.general(member);
        let accurate = self.accurate.and_then(|all| all.available(member.name()));
        if let Some((estimate, by)) = accurate.filter(|(estimate, _)| *estimate < fit) {
            (fit, source) = (estimate.max(0), by);
        }
        if fit == UNBOUNDED_REPLICAS {
            return (self.replicas, EstimateSource::Unbounded);
        }
        (fit, source)
    }

    /// The estimate from the cluster's own summary.
    fn general(&self, member: &ClusterInfo) -> (i64, EstimateSource) {
        let Some(capacity) = member.available_resources() else {
            return (0, EstimateSource::NoSummary);
        };
        let pods = capacity.pods - self.reservations.pods(member.name());
        if pods <= 0 {
            return (0, EstimateSource::Pods);
        }
        let (fit, source) = match &self.workload {
            EstimatedWorkload::Nothing | EstimatedWorkload::Replicas(None) => {
                (pods, EstimateSource::Pods)
            }
            EstimatedWorkload::Replicas(Some(demand)) => {
                self.available_replicas(member, capacity, demand, pods)
            }
            EstimatedWorkload::Sets(set) => self.available_sets(member, capacity, set, pods),
        };
        (fit.clamp(0, UNBOUNDED_REPLICAS), source)
    }

    fn available_replicas(
        &self,
        member: &ClusterInfo,
        capacity: &AvailableResources,
        demand: &ReplicaResourceRequest,
        pods: i64,
    ) -> (i64, EstimateSource) {
        if demand.is_unreadable() {
            return (0, EstimateSource::Summary);
        }
        if let Some(nodes) = self.nodes(member) {
            return (
                nodes.fit_replicas(demand).min(pods),
                EstimateSource::ResourceModels,
            );
        }
        let mut fit = pods;
        for (resource, each) in demand.amounts() {
            let free = self.free(member, capacity, resource);
            fit = fit.min(free.max(0) / each.max(1));
        }
        (fit, EstimateSource::Summary)
    }

    fn available_sets(
        &self,
        member: &ClusterInfo,
        capacity: &AvailableResources,
        set: &[ComponentResourceRequest],
        pods: i64,
    ) -> (i64, EstimateSource) {
        let per_set: i64 = set.iter().map(|part| part.replicas).sum();
        if per_set <= 0 {
            return (pods, EstimateSource::Pods);
        }
        let mut fit = pods / per_set;
        for resource in resources(set) {
            let each = total_request(set.iter(), resource);
            if each > 0 {
                fit = fit.min(self.free(member, capacity, resource).max(0) / each);
            }
        }
        match self.nodes(member).filter(|_| fit > 0) {
            Some(nodes) => (nodes.fit_sets(set, fit), EstimateSource::ResourceModels),
            None => (fit, EstimateSource::Summary),
        }
    }

    /// The modeled nodes of a cluster with the assumed workloads on them, if it reports any.
    fn nodes<'m>(&self, member: &'m ClusterInfo) -> Option<ReportedOrAssumedModeledNodes<'m>> {
        let nodes = member.nodes().filter(|_| self.settings.resource_models)?;
        let beside = self.reservations.nodes(member.name(), nodes);
        Some(beside.map_or(
            ReportedOrAssumedModeledNodes::Reported(nodes),
            ReportedOrAssumedModeledNodes::WithAssumed,
        ))
    }

    /// The amount of a resource that the cluster's totals leave free, in its unit.
    fn free(
        &self,
        member: &ClusterInfo,
        capacity: &AvailableResources,
        resource: &ResourceName,
    ) -> i64 {
        let Some(free) = capacity.amount(resource) else {
            return 0;
        };
        free.saturating_sub(self.reservations.amount(member.name(), resource))
    }
}

fn resources(set: &[ComponentResourceRequest]) -> impl Iterator<Item = &ResourceName> {
    let demands = set.iter().filter_map(|part| part.request.as_ref());
    demands.flat_map(|demand| demand.amounts().map(|(resource, _)| resource))
}

fn total_request<'p>(
    parts: impl Iterator<Item = &'p ComponentResourceRequest>,
    resource: &ResourceName,
) -> i64 {
    let of = |part: &ComponentResourceRequest| {
        let demand = part.request.as_ref()?;
        let (_, each) = demand.amounts().find(|(of, _)| *of == resource)?;
        Some(each.saturating_mul(part.replicas.max(0)))
    };
    parts.filter_map(of).fold(0, i64::saturating_add)
}
