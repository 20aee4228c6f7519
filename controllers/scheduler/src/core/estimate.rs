//! How much of a workload a cluster has room for: by what the cluster tells of itself
//! (Karmada's `pkg/estimator/client/general.go`), and by what accurate estimators
//! answered, if that is less.

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

/// What an estimate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// There is nothing to estimate.
    Unbounded,
    /// The cluster tells no resources.
    NoSummary,
    /// Free pods alone.
    Pods,
    /// The sums of the cluster.
    Summary,
    /// Its nodes by grade.
    ResourceModels,
    /// Its nodes, one by one.
    Nodes,
    /// A ResourceQuota in it.
    ResourceQuota,
    /// An estimator that runs for it.
    Estimator,
}

/// Whether there is anything to estimate.
pub(crate) fn is_estimated(spec: &BindingSpec) -> bool {
    spec.replicas != 0 || !spec.components.is_empty()
}

enum What {
    Nothing,
    Replicas(Option<Demand>),
    Sets(Vec<Part>),
}

/// Nodes as a cluster tells them, or with more on them.
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

/// An estimator for one workload and many clusters.
pub(crate) struct Estimator<'a> {
    what: What,
    /// What stands for "no limit".
    replicas: i64,
    rules: Rules,
    assumed: Assumed<'a>,
    accurate: Option<&'a Answers>,
}

impl<'a> Estimator<'a> {
    /// `sets`: the components are placed as a whole. `accurate`: the answers that count.
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

    /// Free replicas, or sets, of a cluster.
    pub(crate) fn available(&self, member: &Member) -> (i64, Source) {
        if matches!(self.what, What::Nothing) {
            return (UNBOUNDED, Source::Unbounded);
        }
        let (mut fit, mut source) = self.general(member);
        let accurate = self.accurate.and_then(|all| all.room(member.name()));
        if let Some((room, by)) = accurate.filter(|(room, _)| *room < fit) {
            (fit, source) = (room.max(0), by);
        }
        if fit == UNBOUNDED {
            return (self.replicas, Source::Unbounded);
        }
        (fit, source)
    }

    /// By what the cluster tells of itself.
    fn general(&self, member: &Member) -> (i64, Source) {
        let Some(room) = member.room() else {
            return (0, Source::NoSummary);
        };
        let pods = room.pods - self.assumed.pods(member.name());
        if pods <= 0 {
            return (0, Source::Pods);
        }
        let (fit, source) = match &self.what {
            What::Nothing | What::Replicas(None) => (pods, Source::Pods),
            What::Replicas(Some(demand)) => self.replicas_of(member, room, demand, pods),
            What::Sets(set) => self.sets_of(member, room, set, pods),
        };
        (fit.clamp(0, UNBOUNDED), source)
    }

    fn replicas_of(
        &self,
        member: &Member,
        room: &Room,
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
            let free = self.free(member, room, resource);
            fit = fit.min(free.max(0) / each.max(1));
        }
        (fit, Source::Summary)
    }

    fn sets_of(&self, member: &Member, room: &Room, set: &[Part], pods: i64) -> (i64, Source) {
        let per_set: i64 = set.iter().map(|part| part.replicas).sum();
        if per_set <= 0 {
            return (pods, Source::Pods);
        }
        let mut fit = pods / per_set;
        for resource in resources(set) {
            let each = total(set.iter(), resource);
            if each > 0 {
                fit = fit.min(self.free(member, room, resource).max(0) / each);
            }
        }
        match self.nodes(member).filter(|_| fit > 0) {
            Some(nodes) => (nodes.sets(set, fit), Source::ResourceModels),
            None => (fit, Source::Summary),
        }
    }

    /// The nodes of a cluster with what is assumed to be on them, where it tells of any.
    fn nodes<'m>(&self, member: &'m Member) -> Option<MaybeShared<'m>> {
        let nodes = member.nodes().filter(|_| self.rules.resource_models)?;
        let beside = self.assumed.nodes(member.name(), nodes);
        Some(beside.map_or(MaybeShared::Own(nodes), MaybeShared::Beside))
    }

    /// What the sums of a cluster leave of a resource, in its unit.
    fn free(&self, member: &Member, room: &Room, resource: &Resource) -> i64 {
        let Some(free) = room.amount(resource) else {
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
