//! Estimates the available replicas of a cluster: from its summary (Karmada's
//! `pkg/estimator/client/general.go`), lowered to the accurate estimate if that is less.

use std::ops::Deref;
use std::sync::Arc;

use openapi::karmada::BindingSpec;
use serde::Serialize;

use super::answers::Answers;
use super::demand::{self, Demand, Part, Resource};
use super::ledger::Assumed;
use super::models::Nodes;
use super::snapshot::{Member, Room};
use super::{Rules, World};

pub(crate) const UNBOUNDED: i64 = i32::MAX as i64;

/// The source of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// Nothing to estimate.
    Unbounded,
    /// The cluster reports no resource summary.
    NoSummary,
    /// The number of free pods.
    Pods,
    /// The totals of the resource summary.
    Summary,
    /// The nodes by resource model grade.
    ResourceModels,
    /// The individual nodes.
    Nodes,
    /// A ResourceQuota in the cluster.
    ResourceQuota,
    /// An estimator running for the cluster.
    Estimator,
}

/// Whether a workload needs an estimate.
pub(crate) fn is_estimated(spec: &BindingSpec) -> bool {
    spec.replicas != 0 || !spec.components.is_empty()
}

enum What {
    Nothing,
    Replicas(Option<Demand>),
    Sets(Vec<Part>),
}

/// The modeled nodes as reported, or with assumed workloads on them.
enum MaybeShared<'m> {
    Own(&'m Nodes),
    Beside(Arc<Nodes>),
}

impl Deref for MaybeShared<'_> {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        match self {
            Self::Own(nodes) => nodes,
            Self::Beside(nodes) => nodes,
        }
    }
}

/// Estimates one workload on many clusters.
pub(crate) struct Estimator<'a> {
    what: What,
    /// The workload's replicas, returned when nothing limits the estimate.
    replicas: i64,
    rules: Rules,
    assumed: Assumed<'a>,
    accurate: Option<&'a Answers>,
}

impl<'a> Estimator<'a> {
    /// `sets`: the components are scheduled as a set. `accurate`: the estimates that count.
    pub(crate) fn new(
        spec: &BindingSpec,
        sets: bool,
        world: &World<'a>,
        accurate: Option<&'a Answers>,
    ) -> Self {
        let what = if !is_estimated(spec) {
            What::Nothing
        } else if sets {
            What::Sets(demand::of_set(&spec.components))
        } else {
            What::Replicas(demand::of_replica(spec))
        };
        let assumed = if world.rules.reserve {
            world.assumed
        } else {
            Assumed::NOTHING
        };
        Self {
            what,
            replicas: spec.replicas,
            rules: world.rules,
            assumed,
            accurate,
        }
    }

    /// Available replicas, or sets, of a cluster.
    pub(crate) fn available(&self, member: &Member) -> (i64, Source) {
        if matches!(self.what, What::Nothing) {
            return (UNBOUNDED, Source::Unbounded);
        }
        let (mut fit, mut source) = self.general(member);
        let accurate = self.accurate.and_then(|all| all.room(member.name()));
        if let Some((estimate, by)) = accurate.filter(|(estimate, _)| *estimate < fit) {
            (fit, source) = (estimate.max(0), by);
        }
        if fit == UNBOUNDED {
            return (self.replicas, Source::Unbounded);
        }
        (fit, source)
    }

    /// The estimate from the cluster's own summary.
    fn general(&self, member: &Member) -> (i64, Source) {
        let Some(capacity) = member.room() else {
            return (0, Source::NoSummary);
        };
        let pods = capacity.pods - self.assumed.pods(member.name());
        if pods <= 0 {
            return (0, Source::Pods);
        }
        let (fit, source) = match &self.what {
            What::Nothing | What::Replicas(None) => (pods, Source::Pods),
            What::Replicas(Some(demand)) => self.replicas_of(member, capacity, demand, pods),
            What::Sets(set) => self.sets_of(member, capacity, set, pods),
        };
        (fit.clamp(0, UNBOUNDED), source)
    }

    fn replicas_of(
        &self,
        member: &Member,
        capacity: &Room,
        demand: &Demand,
        pods: i64,
    ) -> (i64, Source) {
        if demand.is_unreadable() {
            return (0, Source::Summary);
        }
        if let Some(nodes) = self.nodes(member) {
            return (nodes.replicas(demand).min(pods), Source::ResourceModels);
        }
        let mut fit = pods;
        for (resource, each) in demand.amounts() {
            let free = self.free(member, capacity, resource);
            fit = fit.min(free.max(0) / each.max(1));
        }
        (fit, Source::Summary)
    }

    fn sets_of(&self, member: &Member, capacity: &Room, set: &[Part], pods: i64) -> (i64, Source) {
        let per_set: i64 = set.iter().map(|part| part.replicas).sum();
        if per_set <= 0 {
            return (pods, Source::Pods);
        }
        let mut fit = pods / per_set;
        for resource in resources(set) {
            let each = total(set.iter(), resource);
            if each > 0 {
                fit = fit.min(self.free(member, capacity, resource).max(0) / each);
            }
        }
        match self.nodes(member).filter(|_| fit > 0) {
            Some(nodes) => (nodes.sets(set, fit), Source::ResourceModels),
            None => (fit, Source::Summary),
        }
    }

    /// The modeled nodes of a cluster with the assumed workloads on them, if it reports any.
    fn nodes<'m>(&self, member: &'m Member) -> Option<MaybeShared<'m>> {
        let nodes = member.nodes().filter(|_| self.rules.resource_models)?;
        let beside = self.assumed.nodes(member.name(), nodes);
        Some(beside.map_or(MaybeShared::Own(nodes), MaybeShared::Beside))
    }

    /// What the cluster's totals leave free of a resource, in its unit.
    fn free(&self, member: &Member, capacity: &Room, resource: &Resource) -> i64 {
        let Some(free) = capacity.amount(resource) else {
            return 0;
        };
        free.saturating_sub(self.assumed.amount(member.name(), resource))
    }
}

fn resources(set: &[Part]) -> impl Iterator<Item = &Resource> {
    let demands = set.iter().filter_map(|part| part.demand.as_ref());
    demands.flat_map(|demand| demand.amounts().map(|(resource, _)| resource))
}

fn total<'p>(parts: impl Iterator<Item = &'p Part>, resource: &Resource) -> i64 {
    let of = |part: &Part| {
        let demand = part.demand.as_ref()?;
        let (_, each) = demand.amounts().find(|(of, _)| *of == resource)?;
        Some(each.saturating_mul(part.replicas.max(0)))
    };
    parts.filter_map(of).fold(0, i64::saturating_add)
}
