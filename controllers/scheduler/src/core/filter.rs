//! Filter plugins: whether a cluster is feasible for the resource, and if not, why.
//!
//! Source of the rules and texts: Karmada's `pkg/scheduler/framework/plugins`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use karmada_api::ClusterAffinityMatcher;
use karmada_api::cluster::Taint;
use karmada_api::placement::{ClusterAffinityTerm, Toleration};

use super::{
    ApiKindHash, ClusterInfo, CurrentTargets, FilterCounts, ScheduleRequest, SchedulerPluginName,
    SchedulingContext, SchedulingFailure,
};

/// Tier of a cluster that no affinity matches.
const UNMATCHED_TIER: usize = 1000;

/// Why a plugin rejects a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterRejection<'a> {
    ApiMissing,
    UntoleratedTaint(&'a Taint),
    OutsideAffinity,
    /// The ReplicaSchedulingPreference is not about the cluster.
    OutsideReplicaPreference,
    /// The cluster lacks this property, by which the binding is to be spread.
    MissingProperty(&'static str),
    Evicting,
    AffinityPeersElsewhere,
    AntiAffinityPeerPresent,
}

impl FilterRejection<'_> {
    pub(crate) fn plugin(self) -> SchedulerPluginName {
        match self {
            Self::ApiMissing => SchedulerPluginName::APIEnablement,
            Self::UntoleratedTaint(_) => SchedulerPluginName::TaintToleration,
            Self::OutsideAffinity | Self::OutsideReplicaPreference => {
                SchedulerPluginName::ClusterAffinity
            }
            Self::MissingProperty(_) => SchedulerPluginName::SpreadConstraint,
            Self::Evicting => SchedulerPluginName::ClusterEviction,
            Self::AffinityPeersElsewhere => SchedulerPluginName::WorkloadAffinity,
            Self::AntiAffinityPeerPresent => SchedulerPluginName::WorkloadAntiAffinity,
        }
    }

    /// The reason as users see it, in Karmada's words.
    pub(crate) fn reason(self) -> Cow<'static, str> {
        match self {
            Self::ApiMissing => "cluster(s) did not have the API resource".into(),
            Self::UntoleratedTaint(taint) => {
                let value = if taint.value.is_empty() { "" } else { "=" };
                let Taint { key, effect, .. } = taint;
                let text = format!("{key}{value}{}:{effect}", taint.value);
                format!("cluster(s) had untolerated taint {{{text}}}").into()
            }
            Self::OutsideAffinity => {
                "cluster(s) did not match the placement cluster affinity constraint".into()
            }
            Self::OutsideReplicaPreference => {
                "cluster(s) were not named by the ReplicaSchedulingPreference".into()
            }
            Self::MissingProperty(property) => {
                format!("cluster(s) did not have {property} property").into()
            }
            Self::Evicting => "cluster(s) is in the process of eviction".into(),
            Self::AffinityPeersElsewhere => {
                "ResourceBinding with the same affinity group does not target this cluster".into()
            }
            Self::AntiAffinityPeerPresent => {
                "cluster already has workload with the same anti-affinity group".into()
            }
        }
    }
}

/// A cluster that passed all filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeasibleCluster<'a> {
    pub(crate) member: &'a ClusterInfo,
    /// Index of the overflow tier; 0 for the affinity itself.
    pub(crate) tier: usize,
}

/// All clusters, ordered by name.
#[derive(Debug, Default)]
pub(crate) struct FilterResult<'a> {
    pub(crate) feasible: Vec<FeasibleCluster<'a>>,
    pub(crate) rejected: Vec<(&'a ClusterInfo, FilterRejection<'a>)>,
    pub(crate) total: usize,
}

impl<'a> FilterResult<'a> {
    /// The names of the feasible clusters.
    pub(crate) fn feasible_names(&self) -> impl Iterator<Item = &'a str> {
        self.feasible.iter().map(|passed| passed.member.name())
    }

    /// The failure to report when no cluster is feasible.
    pub(crate) fn failure(&self) -> SchedulingFailure {
        let mut reasons: BTreeMap<Cow<'static, str>, usize> = BTreeMap::new();
        for (_, refusal) in &self.rejected {
            *reasons.entry(refusal.reason()).or_default() += 1;
        }
        let reasons = reasons
            .into_iter()
            .map(|(reason, count)| format!("{count} {reason}"));
        let mut texts: Vec<String> = reasons.collect();
        texts.sort();
        let texts = if texts.is_empty() {
            "no cluster exists".to_owned()
        } else {
            texts.join(", ")
        };
        SchedulingFailure::NoFit(format!("0/{} clusters are available: {texts}.", self.total))
    }
}

/// The filter plugins, prepared for one request and many clusters.
pub(crate) struct ClusterFilter<'t, 'a> {
    request: ScheduleRequest<'a>,
    context: SchedulingContext<'a>,
    targets: &'t CurrentTargets<'t>,
    kind: ApiKindHash,
    /// The affinity, then its overflow affinities; empty if every cluster matches.
    affinities: Vec<ClusterAffinityMatcher<'a>>,
    has_tiers: bool,
    spread_by: Vec<&'a str>,
    evicting: Vec<&'a str>,
}

type FilterPluginFn =
    for<'f, 't, 'a> fn(&'f ClusterFilter<'t, 'a>, &'a ClusterInfo) -> Option<FilterRejection<'a>>;

/// The filters in the order in which they run; the first rejection counts.
const FILTER_CHECKS: [(SchedulerPluginName, FilterPluginFn); 7] = [
    (SchedulerPluginName::APIEnablement, |f, m| f.api(m)),
    (SchedulerPluginName::TaintToleration, |f, m| f.taints(m)),
    (SchedulerPluginName::ClusterAffinity, |f, m| f.affinity(m)),
    (SchedulerPluginName::SpreadConstraint, |f, m| f.spread(m)),
    (SchedulerPluginName::ClusterEviction, |f, m| f.eviction(m)),
    (SchedulerPluginName::WorkloadAffinity, |f, m| {
        f.workload_affinity(m)
    }),
    (SchedulerPluginName::WorkloadAntiAffinity, |f, m| {
        f.workload_anti_affinity(m)
    }),
];

impl<'t, 'a> ClusterFilter<'t, 'a> {
    pub(crate) fn new(
        request: &ScheduleRequest<'a>,
        scheduling_context: &SchedulingContext<'a>,
        targets: &'t CurrentTargets<'t>,
    ) -> Self {
        let placement = request.placement;
        let term = effective_term(request);
        let own = placement.cluster_affinity.as_ref();
        let own = own.or(term.map(|t| &t.affinity));
        let overflow = term.into_iter().flat_map(|t| &t.overflow_affinities);
        let affinities = own.into_iter().chain(overflow.map(|o| &o.affinity));
        let mut evicting: Vec<&str> = request
            .spec
            .graceful_eviction_tasks
            .iter()
            .map(|task| task.from_cluster.as_str())
            .collect();
        evicting.sort_unstable();
        let spread_by = placement.spread_constraints.iter();
        let of = &request.spec.resource;
        Self {
            kind: ApiKindHash::new(&of.api_version, &of.kind),
            request: *request,
            context: *scheduling_context,
            targets,
            affinities: affinities.map(|affinity| affinity.matcher()).collect(),
            has_tiers: term.is_some_and(|t| !t.overflow_affinities.is_empty()),
            spread_by: spread_by.map(|c| c.spread_by_field.as_str()).collect(),
            evicting,
        }
    }

    /// Filters all clusters except those being deleted. Calls `ended` after each plugin with
    /// the numbers of clusters that it passed and rejected.
    pub(crate) fn run(
        &self,
        ended: &mut dyn FnMut(SchedulerPluginName, FilterCounts),
    ) -> FilterResult<'a> {
        let members = self.context.snapshot.members();
        let present = members.iter().filter(|m| !m.is_terminating());
        let mut checked: Vec<(&'a ClusterInfo, Option<FilterRejection<'a>>)> =
            present.map(|member| (member, None)).collect();
        let mut passing = checked.len();
        for (plugin, check) in self.checks() {
            let mut rejected_count = 0;
            for (member, verdict) in checked.iter_mut().filter(|(_, v)| v.is_none()) {
                *verdict = check(self, member);
                rejected_count += usize::from(verdict.is_some());
            }
            passing -= rejected_count;
            let passed = passing;
            ended(
                plugin,
                FilterCounts {
                    passed,
                    rejected: rejected_count,
                },
            );
        }
        let mut filtered = FilterResult {
            feasible: Vec::with_capacity(passing),
            rejected: Vec::with_capacity(checked.len() - passing),
            total: members.len(),
        };
        for (member, verdict) in checked {
            match verdict {
                Some(refusal) => filtered.rejected.push((member, refusal)),
                None => filtered.feasible.push(FeasibleCluster {
                    member,
                    tier: self.tier(member),
                }),
            }
        }
        filtered
    }

    /// All reasons against a cluster.
    pub(crate) fn all_rejections(&self, member: &'a ClusterInfo) -> Vec<FilterRejection<'a>> {
        self.checks()
            .filter_map(|(_, check)| check(self, member))
            .collect()
    }

    fn checks(&self) -> impl Iterator<Item = (SchedulerPluginName, FilterPluginFn)> + use<> {
        let plugins = self.context.settings.plugins;
        FILTER_CHECKS
            .into_iter()
            .filter(move |(plugin, _)| plugins.has(*plugin))
    }

    fn is_target(&self, member: &ClusterInfo) -> bool {
        self.targets.for_cluster(member).is_some()
    }

    // A cluster that has the resource already stays feasible when it stops serving the kind.
    fn api(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let served = member.serves(self.kind) || self.is_target(member);
        (!served).then_some(FilterRejection::ApiMissing)
    }

    // The taint manager evicts what a cluster has already, not the scheduler.
    fn taints(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let tolerations = &self.request.placement.cluster_tolerations;
        let taint = untolerated_taint(&member.cluster.spec.taints, tolerations)?;
        (!self.is_target(member)).then_some(FilterRejection::UntoleratedTaint(taint))
    }

    // Overflow affinities apply to workloads; other objects stay within the affinity itself.
    fn affinity(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let count = if self.request.spec.is_workload() {
            self.affinities.len()
        } else {
            self.affinities.len().min(1)
        };
        let facts = member.attributes();
        let mut affinities = self.affinities[..count].iter();
        let matches = count == 0 || affinities.any(|affinity| affinity.matches(&facts));
        if !matches {
            return Some(FilterRejection::OutsideAffinity);
        }
        let preference = self.context.replica_preference?;
        let named = preference.spec.for_cluster(member.name());
        named
            .is_none()
            .then_some(FilterRejection::OutsideReplicaPreference)
    }

    fn spread(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let spec = &member.cluster.spec;
        let lacks = |field: &&str| match *field {
            "provider" => spec.provider.is_empty().then_some("provider"),
            "region" => spec.region.is_empty().then_some("region"),
            "zone" => spec.zones.is_empty().then_some("zones"),
            _ => None,
        };
        self.spread_by
            .iter()
            .find_map(lacks)
            .map(FilterRejection::MissingProperty)
    }

    fn eviction(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let any = !self.evicting.is_empty();
        let evicting = any && self.evicting.binary_search(&member.name()).is_ok();
        evicting.then_some(FilterRejection::Evicting)
    }

    fn workload_affinity(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let open = self.context.peers.affinity_allows(member.name()) || self.is_target(member);
        (!open).then_some(FilterRejection::AffinityPeersElsewhere)
    }

    fn workload_anti_affinity(&self, member: &'a ClusterInfo) -> Option<FilterRejection<'a>> {
        let closed =
            self.context.peers.anti_affinity_forbids(member.name()) && !self.is_target(member);
        closed.then_some(FilterRejection::AntiAffinityPeerPresent)
    }

    /// The overflow tier of a cluster; 0 within the affinity itself.
    fn tier(&self, member: &ClusterInfo) -> usize {
        if !self.has_tiers {
            return 0;
        }
        let facts = member.attributes();
        let mut tiers = self.affinities.iter();
        tiers
            .position(|a| a.matches(&facts))
            .unwrap_or(UNMATCHED_TIER)
    }
}

/// The affinity term to try; an affinity without a name takes precedence.
pub(crate) fn effective_term<'a>(request: &ScheduleRequest<'a>) -> Option<&'a ClusterAffinityTerm> {
    let named = request.placement.cluster_affinity.is_none();
    request.term.filter(|_| named)
}

/// The first taint that keeps new replicas out. A toleration with `tolerationSeconds` does
/// not count: the replicas would be evicted after it and scheduled again (Karmada admits them).
fn untolerated_taint<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    let lasts = |t: &Toleration, taint: &Taint| match taint.effect.as_str() {
        "NoExecute" => t.toleration_seconds.is_none(),
        _ => true,
    };
    let counts = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
    taints.iter().filter(counts).find(|taint| {
        let mut all = tolerations.iter();
        !all.any(|t| t.tolerates(taint) && lasts(t, taint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // proves: SCH-filter-taint, SCH-filter-brief
    #[test]
    fn new_replicas_need_every_taint_tolerated_without_a_limit() {
        let exists = |seconds: Value| json!([{"key": "k", "operator": "Exists", "tolerationSeconds": seconds}]);
        for (effect, tolerations, is_open) in [
            ("NoSchedule", json!([]), false),
            ("NoExecute", json!([]), false),
            ("PreferNoSchedule", json!([]), true),
            ("NoSchedule", exists(Value::Null), true),
            ("NoSchedule", exists(json!(60)), true),
            ("NoExecute", exists(Value::Null), true),
            ("NoExecute", exists(json!(60)), false),
        ] {
            let taints: Vec<Taint> =
                serde_json::from_value(json!([{"key": "k", "effect": effect}])).unwrap();
            let all: Vec<Toleration> = serde_json::from_value(tolerations.clone()).unwrap();
            let actual = untolerated_taint(&taints, &all).is_none();
            assert_eq!(actual, is_open, "{effect} {tolerations}");
        }
    }
}
