//! Room that was given and is not yet seen as taken.
//!
//! Enters: decisions, as they are made; what is told of their health; time. Leaves:
//! for every cluster, what is assumed to be there beside what its summary tells.
//! Pure. Source of the rules: Karmada's `pkg/scheduler/cache/cache.go`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openapi::karmada::{BindingSpec, TargetCluster};

use super::demand::{self, Part};

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
    /// cluster → bindings that have something there.
    by_cluster: HashMap<String, BTreeMap<String, Arc<[Part]>>>,
}

/// The ledger at one time.
#[derive(Clone, Copy, Debug)]
pub struct Assumed<'a>(Option<(&'a Ledger, Instant)>);

impl Assumed<'_> {
    pub const NOTHING: Self = Self(None);

    /// What is assumed to be on a cluster.
    pub(crate) fn on(&self, cluster: &str) -> impl Iterator<Item = &[Part]> + Clone {
        let all = self.0.and_then(|(ledger, now)| {
            let here = ledger.by_cluster.get(cluster)?;
            Some((ledger, now, here))
        });
        all.into_iter().flat_map(|(ledger, now, here)| {
            let holds = move |binding: &String| {
                let of = ledger.by_binding.get(binding);
                of.and_then(|a| a.until).is_some_and(|until| now <= until)
            };
            here.iter()
                .filter(move |(binding, _)| holds(binding))
                .map(|(_, parts)| &**parts)
        })
    }
}

impl Ledger {
    pub fn at(&self, now: Instant) -> Assumed<'_> {
        Assumed(Some((self, now)))
    }

    /// Enters a decision; gives what was there before, for [`Ledger::restore`].
    pub fn assume(
        &mut self,
        binding: &str,
        spec: &BindingSpec,
        targets: &[TargetCluster],
        now: Instant,
    ) -> Assumption {
        self.drop_expired(now);
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
        next.until = Some(now + TTL);
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
        if let Some(old) = self.by_binding.remove(binding) {
            for cluster in old.clusters.keys() {
                if let Some(here) = self.by_cluster.get_mut(cluster) {
                    here.remove(binding);
                    if here.is_empty() {
                        self.by_cluster.remove(cluster);
                    }
                }
            }
        }
        if assumption.clusters.is_empty() {
            return;
        }
        for (cluster, parts) in &assumption.clusters {
            let here = self.by_cluster.entry(cluster.clone()).or_default();
            here.insert(binding.to_owned(), Arc::clone(parts));
        }
        self.by_binding.insert(binding.to_owned(), assumption);
    }

    fn drop_expired(&mut self, now: Instant) {
        let over = |a: &Assumption| a.until.is_none_or(|until| now > until);
        let expired: Vec<String> = self
            .by_binding
            .iter()
            .filter(|(_, assumption)| over(assumption))
            .map(|(binding, _)| binding.clone())
            .collect();
        for binding in expired {
            self.forget(&binding);
        }
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

    fn pods(ledger: &Ledger, cluster: &str, now: Instant) -> i64 {
        let assumed = ledger.at(now);
        let parts = assumed.on(cluster).flatten();
        parts.map(|part| part.replicas).sum()
    }

    #[test]
    fn what_is_given_counts_until_it_is_healthy_moved_or_too_old() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.assume("n/a", &spec(&[]), &targets(&["m1", "m2"]), now);
        ledger.assume("n/b", &spec(&[]), &targets(&["m1"]), now);
        assert_eq!(pods(&ledger, "m1", now), 4);
        ledger.release("n/b", "m1");
        assert_eq!(pods(&ledger, "m1", now), 2);
        let before = ledger.assume("n/a", &spec(&["m1", "m2"]), &targets(&["m3"]), now);
        assert_eq!(["m1", "m2", "m3"].map(|m| pods(&ledger, m, now)), [0, 0, 2]);
        ledger.restore("n/a", before);
        assert_eq!(["m1", "m2", "m3"].map(|m| pods(&ledger, m, now)), [2, 2, 0]);
        assert_eq!(pods(&ledger, "m1", now + TTL + Duration::from_secs(1)), 0);
        ledger.forget("n/a");
        assert!(ledger.by_binding.is_empty() && ledger.by_cluster.is_empty());
    }

    #[test]
    fn what_expired_is_dropped_with_the_next_decision() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.assume("n/a", &spec(&[]), &targets(&["m1"]), now);
        let late = now + TTL + Duration::from_secs(1);
        ledger.assume("n/b", &spec(&[]), &targets(&["m2"]), late);
        assert_eq!(ledger.by_binding.len(), 1);
    }
}
