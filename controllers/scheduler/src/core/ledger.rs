//! Reserves the capacity of recent decisions until the clusters report it as used.
//!
//! Keeps for every cluster the workloads that are assumed to run there in addition to
//! what its resource summary shows. Decisions add reservations; health reports, deletions
//! and time remove them. Pure. Source of the rules: Karmada's `pkg/scheduler/cache/cache.go`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openapi::karmada::{BindingSpec, TargetCluster};
use parking_lot::Mutex;

use super::demand::{self, AssumedWorkload, Demand, Part, Resource};
use super::models::Nodes;

/// How long a reservation lasts at most.
const TTL: Duration = Duration::from_secs(300);

/// The capacity that a binding reserves on a cluster.
#[derive(Debug)]
struct Footprint {
    parts: Vec<Part>,
    workload: Arc<AssumedWorkload>,
}

/// The reservations of one binding, by cluster.
#[derive(Clone, Debug, Default)]
pub struct Assumption {
    clusters: BTreeMap<String, Arc<Footprint>>,
    until: Option<Instant>,
}

/// The reservations of all bindings.
#[derive(Debug, Default)]
pub struct Ledger {
    by_binding: HashMap<String, Assumption>,
    by_cluster: HashMap<String, Here>,
    /// Oldest first; only the last expiry of a binding counts.
    expiring: VecDeque<(Instant, String)>,
}

/// The workloads assumed to be on one cluster.
#[derive(Debug, Default)]
struct Here {
    by_binding: BTreeMap<String, Arc<Footprint>>,
    pods: i64,
    /// Reserved amounts, each in its resource's unit.
    amounts: Vec<(Resource, i64)>,
    simulated: Mutex<Option<Simulated>>,
}

/// The modeled nodes of a cluster before and after the reserved workloads are placed on them.
#[derive(Debug)]
struct Simulated {
    before: Nodes,
    after: Arc<Nodes>,
}

impl Here {
    fn add(&mut self, binding: &str, footprint: Arc<Footprint>) {
        self.count(&footprint.parts, 1);
        if let Some(simulated) = self.simulated.get_mut() {
            Arc::make_mut(&mut simulated.after).place(&footprint.parts);
        }
        self.by_binding.insert(binding.to_owned(), footprint);
    }

    fn remove(&mut self, binding: &str) {
        if let Some(footprint) = self.by_binding.remove(binding) {
            self.count(&footprint.parts, -1);
            *self.simulated.get_mut() = None;
        }
    }

    /// Places all reserved workloads on `nodes`. The result is cached, since the nodes change
    /// rarely and workloads are added one by one.
    fn on(&self, nodes: &Nodes) -> Arc<Nodes> {
        let mut simulated = self.simulated.lock();
        if let Some(known) = simulated.as_ref().filter(|known| known.before == *nodes) {
            return Arc::clone(&known.after);
        }
        let mut after = nodes.clone();
        for footprint in self.by_binding.values() {
            after.place(&footprint.parts);
        }
        let after = Arc::new(after);
        *simulated = Some(Simulated {
            before: nodes.clone(),
            after: Arc::clone(&after),
        });
        after
    }

    /// Adds a binding's workload to the sums, or subtracts it if `sign` is -1.
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

/// The reservations at one time.
#[derive(Clone, Copy, Debug)]
pub struct Assumed<'a>(Option<&'a Ledger>);

impl<'a> Assumed<'a> {
    pub const NOTHING: Self = Self(None);

    fn here(self, cluster: &str) -> Option<&'a Here> {
        self.0?.by_cluster.get(cluster)
    }

    /// The modeled nodes of a cluster with the assumed workloads on them; `None` if there are
    /// no assumed workloads.
    pub(crate) fn nodes(self, cluster: &str, nodes: &Nodes) -> Option<Arc<Nodes>> {
        Some(self.here(cluster)?.on(nodes))
    }

    /// The workload that each binding is assumed to have on a cluster.
    pub(crate) fn workloads(self, cluster: &str) -> Vec<Arc<AssumedWorkload>> {
        let reservation = self.here(cluster).into_iter();
        let footprints = reservation.flat_map(|reservation| reservation.by_binding.values());
        footprints.map(|f| Arc::clone(&f.workload)).collect()
    }

    pub(crate) fn pods(self, cluster: &str) -> i64 {
        self.here(cluster).map_or(0, |reservation| reservation.pods)
    }

    pub(crate) fn amount(self, cluster: &str, resource: &Resource) -> i64 {
        let mut amounts = self.here(cluster).into_iter().flat_map(|h| &h.amounts);
        amounts.find(|(of, _)| of == resource).map_or(0, |a| a.1)
    }
}

impl Ledger {
    /// The current reservations; drops expired ones.
    pub fn at(&mut self, now: Instant) -> Assumed<'_> {
        while let Some((until, binding)) = self.expiring.pop_front_if(|(until, _)| *until < now) {
            let current = self.by_binding.get(&binding);
            if current.is_some_and(|a| a.until == Some(until)) {
                self.forget(&binding);
            }
        }
        Assumed(Some(self))
    }

    /// Reserves the capacity of a decision. Returns the previous reservation, for
    /// [`Reservations::restore`].
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
            let workload = AssumedWorkload::of(spec, target.replicas);
            let footprint = Footprint {
                parts: demand::of_set(&workload.components),
                workload: Arc::new(workload),
            };
            next.clusters
                .insert(target.name.clone(), Arc::new(footprint));
        }
        let until = now + TTL;
        next.until = Some(until);
        self.expiring.push_back((until, binding.to_owned()));
        self.put(binding, next);
        before
    }

    /// Undoes a reservation whose result could not be written.
    pub fn restore(&mut self, binding: &str, before: Assumption) {
        self.put(binding, before);
    }

    /// The binding's workload runs on the cluster, whose summary now includes it.
    pub fn release(&mut self, binding: &str, cluster: &str) {
        if let Some(mut assumption) = self.by_binding.get(binding).cloned() {
            assumption.clusters.remove(cluster);
            self.put(binding, assumption);
        }
    }

    /// The binding was deleted.
    pub fn forget(&mut self, binding: &str) {
        self.put(binding, Assumption::default());
    }

    fn put(&mut self, binding: &str, assumption: Assumption) {
        let old = self.by_binding.remove(binding).unwrap_or_default();
        for cluster in old.clusters.keys() {
            let Some(reservation) = self.by_cluster.get_mut(cluster) else {
                continue;
            };
            reservation.remove(binding);
            if reservation.by_binding.is_empty() {
                self.by_cluster.remove(cluster);
            }
        }
        if assumption.clusters.is_empty() {
            return;
        }
        for (cluster, footprint) in &assumption.clusters {
            let reservation = self.by_cluster.entry(cluster.clone()).or_default();
            reservation.add(binding, Arc::clone(footprint));
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
        let pods = ledger.at(now).pods(cluster);
        let reservation = ledger.by_cluster.get(cluster);
        let parts = reservation
            .into_iter()
            .flat_map(|reservation| reservation.by_binding.values());
        let listed: i64 = parts.flat_map(|f| &f.parts).map(|p| p.replicas).sum();
        assert_eq!(listed, pods, "the sums match the list");
        pods
    }

    // proves: SCH-reservations
    #[test]
    fn a_reservation_lasts_until_healthy_moved_or_expired() {
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
    fn a_later_decision_extends_a_reservation() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.assume("n/a", &spec(&[]), &targets(&["m1"]), now);
        ledger.assume("n/a", &spec(&["m1"]), &targets(&["m1"]), now + TTL / 2);
        assert_eq!(pods(&mut ledger, "m1", now + TTL + TTL / 4), 2);
        assert_eq!(pods(&mut ledger, "m1", now + 2 * TTL), 0);
        assert!(ledger.expiring.is_empty());
    }

    #[test]
    fn reservations_fill_and_free_modeled_nodes() {
        let cluster = serde_json::json!({
            "spec": {"resourceModels": [{"grade": 0, "ranges": [{"name": "cpu", "min": "2", "max": "4"}]}]},
            "status": {"resourceSummary": {"allocatableModelings": [{"grade": 0, "count": 4}]}},
        });
        let nodes = Nodes::of(&serde_json::from_value(cluster).unwrap()).unwrap();
        let mut asking = spec(&[]);
        asking.replica_requirements = Some(serde_json::json!({"resourceRequest": {"cpu": "1"}}));
        let demand = demand::of_replica(&asking).unwrap();
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let fit = |ledger: &mut Ledger| {
            let beside = ledger.at(now).nodes("m1", &nodes);
            beside.map_or(nodes.replicas(&demand), |nodes| nodes.replicas(&demand))
        };
        assert_eq!(fit(&mut ledger), 8);
        for (binding, left) in [("n/a", 6), ("n/b", 4), ("n/c", 2)] {
            ledger.assume(binding, &asking, &targets(&["m1"]), now);
            assert_eq!(fit(&mut ledger), left, "{binding}");
        }
        ledger.release("n/b", "m1");
        assert_eq!(fit(&mut ledger), 4);
    }
}
