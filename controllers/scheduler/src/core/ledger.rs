//! Room that was given and is not yet seen as taken.
//!
//! Enters: decisions, as they are made; what is told of their health; time. Leaves:
//! for every cluster, what is assumed to be there beside what its summary tells.
//! Pure. Source of the rules: Karmada's `pkg/scheduler/cache/cache.go`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openapi::karmada::{BindingSpec, TargetCluster};

use super::demand::{self, Demand, Part, Resource};

/// How long something is assumed at most.
const TTL: Duration = Duration::from_secs(300);

/// What one binding is assumed to have, by cluster.
#[derive(Clone, Debug, Default)]
pub struct Assumption {
    clusters: BTreeMap<String, Arc<[Part]>>,
    until: Option<Instant>,
}

/// What was given to all bindings.
#[derive(Debug, Default)]
pub struct Ledger {
    by_binding: HashMap<String, Assumption>,
    by_cluster: HashMap<String, Here>,
    /// Oldest first; of a binding only the last counts.
    expiring: VecDeque<(Instant, String)>,
}

/// What is assumed to be on one cluster.
#[derive(Debug, Default)]
struct Here {
    by_binding: BTreeMap<String, Arc<[Part]>>,
    pods: i64,
    /// Each in its unit.
    amounts: Vec<(Resource, i64)>,
}

impl Here {
    /// Puts what a binding has to the sums, or takes it away.
    fn count(&mut self, parts: &[Part], sign: i64) {
        for Part { replicas, demand } in parts {
            let replicas = sign * (*replicas).max(0);
            self.pods += replicas;
            for (resource, each) in demand.iter().flat_map(Demand::amounts) {
                let amount = each.saturating_mul(replicas);
                match self.amounts.iter_mut().find(|(of, _)| of == resource) {
                    Some((_, sum)) => *sum = sum.saturating_add(amount),
                    None => self.amounts.push((resource.clone(), amount)),
                }
            }
        }
    }
}

/// The ledger at one time.
#[derive(Clone, Copy, Debug)]
pub struct Assumed<'a>(Option<&'a Ledger>);

impl<'a> Assumed<'a> {
    pub const NOTHING: Self = Self(None);

    fn here(self, cluster: &str) -> Option<&'a Here> {
        self.0?.by_cluster.get(cluster)
    }

    /// What is assumed to be on a cluster, binding by binding.
    pub(crate) fn on(self, cluster: &str) -> impl Iterator<Item = &'a [Part]> + use<'a> {
        let here = self.here(cluster);
        let all = here.into_iter().flat_map(|here| here.by_binding.values());
        all.map(|parts| &**parts)
    }

    pub(crate) fn pods(self, cluster: &str) -> i64 {
        self.here(cluster).map_or(0, |here| here.pods)
    }

    pub(crate) fn amount(self, cluster: &str, resource: &Resource) -> i64 {
        let mut amounts = self.here(cluster).into_iter().flat_map(|h| &h.amounts);
        amounts.find(|(of, _)| of == resource).map_or(0, |a| a.1)
    }
}

impl Ledger {
    /// What is assumed now; what is too old is dropped.
    pub fn at(&mut self, now: Instant) -> Assumed<'_> {
        while let Some((until, binding)) = self.expiring.pop_front_if(|(until, _)| *until < now) {
            let current = self.by_binding.get(&binding);
            if current.is_some_and(|a| a.until == Some(until)) {
                self.forget(&binding);
            }
        }
        Assumed(Some(self))
    }

    /// Enters a decision; gives what was there before, for [`Ledger::restore`].
    pub fn assume(
        &mut self,
        binding: &str,
        spec: &BindingSpec,
        targets: &[TargetCluster],
        now: Instant,
    ) -> Assumption {
        let before = self.by_binding.get(binding).cloned().unwrap_or_default();
        if !spec.is_workload() {
            return before;
        }
        let mut next = before.clone();
        let given_up = |cluster: &str| {
            let had = spec.clusters.iter().any(|t| t.name == cluster);
            had && !targets.iter().any(|t| t.name == cluster)
        };
        next.clusters.retain(|cluster, _| !given_up(cluster));
        for target in targets {
            let parts = demand::footprint(spec, target.replicas);
            next.clusters.insert(target.name.clone(), parts.into());
        }
        let until = now + TTL;
        next.until = Some(until);
        self.expiring.push_back((until, binding.to_owned()));
        self.put(binding, next);
        before
    }

    /// Takes a decision back that could not be written.
    pub fn restore(&mut self, binding: &str, before: Assumption) {
        self.put(binding, before);
    }

    /// What a binding has on a cluster is there, and told by the cluster itself.
    pub fn release(&mut self, binding: &str, cluster: &str) {
        if let Some(mut assumption) = self.by_binding.get(binding).cloned() {
            assumption.clusters.remove(cluster);
            self.put(binding, assumption);
        }
    }

    /// The binding is gone.
    pub fn forget(&mut self, binding: &str) {
        self.put(binding, Assumption::default());
    }

    fn put(&mut self, binding: &str, assumption: Assumption) {
        let old = self.by_binding.remove(binding).unwrap_or_default();
        for cluster in old.clusters.keys() {
            let Some(here) = self.by_cluster.get_mut(cluster) else {
                continue;
            };
            if let Some(parts) = here.by_binding.remove(binding) {
                here.count(&parts, -1);
            }
            if here.by_binding.is_empty() {
                self.by_cluster.remove(cluster);
            }
        }
        if assumption.clusters.is_empty() {
            return;
        }
        for (cluster, parts) in &assumption.clusters {
            let here = self.by_cluster.entry(cluster.clone()).or_default();
            here.count(parts, 1);
            here.by_binding
                .insert(binding.to_owned(), Arc::clone(parts));
        }
        self.by_binding.insert(binding.to_owned(), assumption);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(had: &[&str]) -> BindingSpec {
        BindingSpec {
            replicas: 3,
            clusters: targets(had),
            ..BindingSpec::default()
        }
    }

    fn targets(names: &[&str]) -> Vec<TargetCluster> {
        let target = |name: &&str| TargetCluster {
            name: (*name).into(),
            replicas: 2,
            ..TargetCluster::default()
        };
        names.iter().map(target).collect()
    }

    fn pods(ledger: &mut Ledger, cluster: &str, now: Instant) -> i64 {
        let assumed = ledger.at(now);
        let parts = assumed.on(cluster).flatten();
        let listed: i64 = parts.map(|part| part.replicas).sum();
        assert_eq!(
            listed,
            assumed.pods(cluster),
            "the sums are those of the list"
        );
        listed
    }

    #[test]
    fn what_is_given_counts_until_it_is_healthy_moved_or_too_old() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.assume("n/a", &spec(&[]), &targets(&["m1", "m2"]), now);
        ledger.assume("n/b", &spec(&[]), &targets(&["m1"]), now);
        assert_eq!(pods(&mut ledger, "m1", now), 4);
        ledger.release("n/b", "m1");
        assert_eq!(pods(&mut ledger, "m1", now), 2);
        let before = ledger.assume("n/a", &spec(&["m1", "m2"]), &targets(&["m3"]), now);
        let at = |ledger: &mut Ledger| ["m1", "m2", "m3"].map(|m| pods(ledger, m, now));
        assert_eq!(at(&mut ledger), [0, 0, 2]);
        ledger.restore("n/a", before);
        assert_eq!(at(&mut ledger), [2, 2, 0]);
        let late = now + TTL + Duration::from_secs(1);
        assert_eq!(pods(&mut ledger, "m1", late), 0);
        assert!(ledger.by_binding.is_empty() && ledger.by_cluster.is_empty());
    }

    #[test]
    fn a_later_decision_counts_longer() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.assume("n/a", &spec(&[]), &targets(&["m1"]), now);
        ledger.assume("n/a", &spec(&["m1"]), &targets(&["m1"]), now + TTL / 2);
        assert_eq!(pods(&mut ledger, "m1", now + TTL + TTL / 4), 2);
        assert_eq!(pods(&mut ledger, "m1", now + 2 * TTL), 0);
        assert!(ledger.expiring.is_empty());
    }
}
