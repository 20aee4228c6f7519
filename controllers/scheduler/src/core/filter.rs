//! Filters: whether a cluster may take the resource at all, and if not, why.

use std::collections::BTreeMap;

use openapi::karmada::cluster::Taint;
use openapi::karmada::placement::{AffinityTerm, Toleration};
use openapi::karmada::{ClusterAffinity, Matcher};

use super::{Failure, Member, Request, Snapshot};

/// Tier of a cluster that matches no term.
const NO_TIER: usize = 1000;

/// The clusters that pass, in the order of their names.
pub(crate) fn filter<'a>(
    request: &Request<'_>,
    snapshot: &'a Snapshot,
) -> Result<Vec<&'a Member>, Failure> {
    let affinities = Affinities::new(request);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut passed = Vec::new();
    for member in snapshot.members().iter().filter(|m| !m.is_terminating()) {
        match refuse(request, &affinities, member) {
            None => passed.push(member),
            Some(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    if !passed.is_empty() {
        return Ok(passed);
    }
    let mut texts: Vec<String> = reasons
        .into_iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    texts.sort();
    let texts = if texts.is_empty() {
        "no cluster exists".to_owned()
    } else {
        texts.join(", ")
    };
    Err(Failure::NoFit(format!(
        "0/{} clusters are available: {texts}.",
        snapshot.members().len()
    )))
}

/// The affinities of which one has to match, compiled once.
struct Affinities<'a>(Vec<Matcher<'a>>);

impl<'a> Affinities<'a> {
    fn new(request: &Request<'a>) -> Self {
        let own: Option<&ClusterAffinity> = match request.term {
            Some(term) => Some(&term.affinity),
            None => request.placement.cluster_affinity.as_ref(),
        };
        let overflow = request.term.filter(|_| request.spec.is_workload());
        let overflow = overflow
            .into_iter()
            .flat_map(|t| &t.overflow_affinities)
            .map(|o| &o.affinity);
        Self(
            own.into_iter()
                .chain(overflow)
                .map(ClusterAffinity::matcher)
                .collect(),
        )
    }

    fn match_any(&self, member: &Member) -> bool {
        self.0.is_empty() || self.0.iter().any(|m| m.matches(&member.facts()))
    }
}

fn refuse(request: &Request<'_>, affinities: &Affinities<'_>, member: &Member) -> Option<String> {
    let spec = request.spec;
    let is_target = spec.clusters.iter().any(|t| t.name == member.name());
    if !is_target && !member.serves(&spec.resource.api_version, &spec.resource.kind) {
        return Some("cluster(s) did not have the API resource".into());
    }
    if !is_target
        && let Some(taint) = untolerated(
            &member.cluster.spec.taints,
            &request.placement.cluster_tolerations,
        )
    {
        let value = if taint.value.is_empty() {
            String::new()
        } else {
            format!("={}", taint.value)
        };
        return Some(format!(
            "cluster(s) had untolerated taint {{{}{value}:{}}}",
            taint.key, taint.effect
        ));
    }
    if !affinities.match_any(member) {
        return Some("cluster(s) did not match the placement cluster affinity constraint".into());
    }
    if let Some(reason) = lacks_spread_property(request, member) {
        return Some(reason);
    }
    if spec
        .graceful_eviction_tasks
        .iter()
        .any(|t| t.from_cluster == member.name())
    {
        return Some("cluster(s) is in the process of eviction".into());
    }
    None
}

fn lacks_spread_property(request: &Request<'_>, member: &Member) -> Option<String> {
    let spec = &member.cluster.spec;
    request
        .placement
        .spread_constraints
        .iter()
        .find_map(|constraint| {
            let (missing, property) = match constraint.spread_by_field.as_str() {
                "provider" => (spec.provider.is_empty(), "provider"),
                "region" => (spec.region.is_empty(), "region"),
                "zone" => (spec.zones.is_empty(), "zones"),
                _ => (false, ""),
            };
            missing.then(|| format!("cluster(s) did not have {property} property"))
        })
}

fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    let counts = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
    taints
        .iter()
        .filter(counts)
        .find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// `ToleratesTaint` of the core API.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key.is_empty() || toleration.key == taint.key;
    let value = match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    };
    effect && key && value
}

/// The overflow tier of a cluster: 0 within the affinity itself.
pub(crate) fn tier(term: Option<&AffinityTerm>, member: &Member) -> usize {
    let Some(term) = term.filter(|t| !t.overflow_affinities.is_empty()) else {
        return 0;
    };
    let tiers =
        std::iter::once(&term.affinity).chain(term.overflow_affinities.iter().map(|o| &o.affinity));
    tiers
        .into_iter()
        .position(|a| a.matcher().matches(&member.facts()))
        .unwrap_or(NO_TIER)
}
