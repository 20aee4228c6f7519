//! Reserves the capacity of recent decisions until the clusters report it as used.
//!
//! Keeps for every cluster the workloads that are assumed to run there in addition to
//! what its resource summary shows. Decisions add reservations; health reports, deletions
//! and time remove them. Pure. Source of the rules: Karmada's `pkg/scheduler/cache/cache.go`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use karmada_api::{ResourceBindingSpec, TargetCluster};
use parking_lot::Mutex;

use super::resource_models::ModeledNodes;
use super::resource_request::{
    self, AssumedWorkload, ComponentResourceRequest, ReplicaResourceRequest, ResourceName,
};

/// How long a reservation lasts at most.
const RESERVATION_TTL: Duration = Duration::from_secs(300);

/// The capacity that a binding reserves on a cluster.
#[derive(Debug)]
struct ReservedWorkload {
    components: Vec<ComponentResourceRequest>,
    workload: Arc<AssumedWorkload>,
}

/// The reservations of one binding, by cluster.
#[derive(Clone, Debug, Default)]
pub struct BindingReservation {
    clusters: BTreeMap<String, Arc<ReservedWorkload>>,
    until: Option<Instant>,
}

/// The reservations of all bindings.
#[derive(Debug, Default)]
pub struct Reservations {
    by_binding: HashMap<String, BindingReservation>,
    by_cluster: HashMap<String, ClusterReservation>,
    /// Oldest first; only the last expiry of a binding counts.
    expiring: VecDeque<(Instant, String)>,
}

/// The workloads assumed to be on one cluster.
#[derive(Debug, Default)]
struct ClusterReservation {
    by_binding: BTreeMap<String, Arc<ReservedWorkload>>,
    pods: i64,
    /// Reserved amounts, each in its resource's unit.
    amounts: Vec<(ResourceName, i64)>,
    simulated: Mutex<Option<ReservationSimulation>>,
}

/// The modeled nodes of a cluster before and after the reserved workloads are placed on them.
#[derive(Debug)]
struct ReservationSimulation {
    before: ModeledNodes,
    after: Arc<ModeledNodes>,
}

impl ClusterReservation {
    fn add(&mut self, binding: &str, footprint: Arc<ReservedWorkload>) {
        self.add_to_sums(&footprint.components, 1);
        if let Some(simulated) = self.simulated.get_mut() {
            Arc::make_mut(&mut simulated.after).place(&footprint.components);
        }
        self.by_binding.insert(binding.to_owned(), footprint);
    }

    fn remove(&mut self, binding: &str) {
        if let Some(footprint) = self.by_binding.remove(binding) {
            self.add_to_sums(&footprint.components, -1);
            *self.simulated.get_mut() = None;
        }
    }

    /// Places all reserved workloads on `nodes`. The result is cached, since the nodes change
    /// rarely and workloads are added one by one.
    fn place_on(&self, nodes: &ModeledNodes) -> Arc<ModeledNodes> {
        let mut simulated = self.simulated.lock();
        if let Some(simulation) = simulated
            .as_ref()
            .filter(|simulation| simulation.before == *nodes)
        {
            return Arc::clone(&simulation.after);
        }
        let mut after = nodes.clone();
        for footprint in self.by_binding.values() {
            after.place(&footprint.components);
        }
        let after = Arc::new(after);
        *simulated = Some(ReservationSimulation {
            before: nodes.clone(),
            after: Arc::clone(&after),
        });
        after
    }

    /// Adds a binding's workload to the sums, or subtracts it if `sign` is -1.
    fn add_to_sums(&mut self, parts: &[ComponentResourceRequest], sign: i64) {
        for ComponentResourceRequest {
            replicas,
            request: demand,
        } in parts
        {
            let replicas = sign * (*replicas).max(0);
            self.pods += replicas;
            for (resource, each) in demand.iter().flat_map(ReplicaResourceRequest::amounts) {
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
pub struct OptionalReservationsRef<'a>(Option<&'a Reservations>);

impl<'a> OptionalReservationsRef<'a> {
    pub const EMPTY: Self = Self(None);

    fn cluster(self, cluster: &str) -> Option<&'a ClusterReservation> {
        self.0?.by_cluster.get(cluster)
    }

    /// The modeled nodes of a cluster with the assumed workloads on them; `None` if there are
    /// no assumed workloads.
    pub(crate) fn nodes(self, cluster: &str, nodes: &ModeledNodes) -> Option<Arc<ModeledNodes>> {
        Some(self.cluster(cluster)?.place_on(nodes))
    }

    /// The workload that each binding is assumed to have on a cluster.
    pub(crate) fn workloads(self, cluster: &str) -> Vec<Arc<AssumedWorkload>> {
        let reservation = self.cluster(cluster).into_iter();
        let footprints = reservation.flat_map(|reservation| reservation.by_binding.values());
        footprints.map(|f| Arc::clone(&f.workload)).collect()
    }

    pub(crate) fn pods(self, cluster: &str) -> i64 {
        self.cluster(cluster)
            .map_or(0, |reservation| reservation.pods)
    }

    pub(crate) fn amount(self, cluster: &str, resource: &ResourceName) -> i64 {
        let mut amounts = self.cluster(cluster).into_iter().flat_map(|h| &h.amounts);
        amounts.find(|(of, _)| of == resource).map_or(0, |a| a.1)
    }
}

impl Reservations {
    /// The current reservations; drops expired ones.
    pub fn snapshot(&mut self, now: Instant) -> OptionalReservationsRef<'_> {
        while let Some((until, binding)) = self.expiring.pop_front_if(|(until, _)| *until < now) {
            let current = self.by_binding.get(&binding);
            if current.is_some_and(|a| a.until == Some(until)) {
                self.forget(&binding);
            }
        }
        OptionalReservationsRef(Some(self))
    }

    /// Reserves the capacity of a decision. Returns the previous reservation, for
    /// [`Reservations::restore`].
    pub fn assume(
        &mut self,
        binding: &str,
        spec: &ResourceBindingSpec,
        targets: &[TargetCluster],
        now: Instant,
    ) -> BindingReservation {
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
            let workload = AssumedWorkload::from_spec(spec, target.replicas);
            let footprint = ReservedWorkload {
                components: resource_request::component_requests(&workload.components),
                workload: Arc::new(workload),
            };
            next.clusters
                .insert(target.name.clone(), Arc::new(footprint));
        }
        let until = now + RESERVATION_TTL;
        next.until = Some(until);
        self.expiring.push_back((until, binding.to_owned()));
        self.replace(binding, next);
        before
    }

    /// Undoes a reservation whose result could not be written.
    pub fn restore(&mut self, binding: &str, before: BindingReservation) {
        self.replace(binding, before);
    }

    /// The binding's workload runs on the cluster, whose summary now includes it.
    pub fn release(&mut self, binding: &str, cluster: &str) {
        if let Some(mut assumption) = self.by_binding.get(binding).cloned() {
            assumption.clusters.remove(cluster);
            self.replace(binding, assumption);
        }
    }

    /// The binding was deleted.
    pub fn forget(&mut self, binding: &str) {
        self.replace(binding, BindingReservation::default());
    }

    fn replace(&mut self, binding: &str, assumption: BindingReservation) {
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

    fn spec(had: &[&str]) -> ResourceBindingSpec {
        ResourceBindingSpec {
            replicas: 3,
            clusters: targets(had),
            ..ResourceBindingSpec::default()
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

    fn pods(reservations: &mut Reservations, cluster: &str, now: Instant) -> i64 {
        let pods = reservations.snapshot(now).pods(cluster);
        let reservation = reservations.by_cluster.get(cluster);
        let parts = reservation
            .into_iter()
            .flat_map(|reservation| reservation.by_binding.values());
        let listed: i64 = parts.flat_map(|f| &f.components).map(|p| p.replicas).sum();
        assert_eq!(listed, pods, "the sums match the list");
        pods
    }

    // proves: SCH-reservations
    #[test]
    fn a_reservation_lasts_until_healthy_moved_or_expired() {
        let (mut reservations, now) = (Reservations::default(), Instant::now());
        reservations.assume("n/a", &spec(&[]), &targets(&["m1", "m2"]), now);
        reservations.assume("n/b", &spec(&[]), &targets(&["m1"]), now);
        assert_eq!(pods(&mut reservations, "m1", now), 4);
        reservations.release("n/b", "m1");
        assert_eq!(pods(&mut reservations, "m1", now), 2);
        let before = reservations.assume("n/a", &spec(&["m1", "m2"]), &targets(&["m3"]), now);
        let at = |reservations: &mut Reservations| {
            ["m1", "m2", "m3"].map(|m| pods(reservations, m, now))
        };
        assert_eq!(at(&mut reservations), [0, 0, 2]);
        reservations.restore("n/a", before);
        assert_eq!(at(&mut reservations), [2, 2, 0]);
        let late = now + RESERVATION_TTL + Duration::from_secs(1);
        assert_eq!(pods(&mut reservations, "m1", late), 0);
        assert!(reservations.by_binding.is_empty() && reservations.by_cluster.is_empty());
    }

    #[test]
    fn a_later_decision_extends_a_reservation() {
        let (mut reservations, now) = (Reservations::default(), Instant::now());
        reservations.assume("n/a", &spec(&[]), &targets(&["m1"]), now);
        reservations.assume(
            "n/a",
            &spec(&["m1"]),
            &targets(&["m1"]),
            now + RESERVATION_TTL / 2,
        );
        assert_eq!(
            pods(
                &mut reservations,
                "m1",
                now + RESERVATION_TTL + RESERVATION_TTL / 4
            ),
            2
        );
        assert_eq!(pods(&mut reservations, "m1", now + 2 * RESERVATION_TTL), 0);
        assert!(reservations.expiring.is_empty());
    }

    #[test]
    fn reservations_fill_and_free_modeled_nodes() {
        let cluster = serde_json::json!({
            "spec": {"resourceModels": [{"grade": 0, "ranges": [{"name": "cpu", "min": "2", "max": "4"}]}]},
            "status": {"resourceSummary": {"allocatableModelings": [{"grade": 0, "count": 4}]}},
        });
        let nodes = ModeledNodes::from_cluster(&serde_json::from_value(cluster).unwrap()).unwrap();
        let mut asking = spec(&[]);
        asking.replica_requirements = Some(serde_json::json!({"resourceRequest": {"cpu": "1"}}));
        let demand = resource_request::replica_request(&asking).unwrap();
        let (mut reservations, now) = (Reservations::default(), Instant::now());
        let fit = |reservations: &mut Reservations| {
            let beside = reservations.snapshot(now).nodes("m1", &nodes);
            beside.map_or(nodes.fit_replicas(&demand), |nodes| {
                nodes.fit_replicas(&demand)
            })
        };
        assert_eq!(fit(&mut reservations), 8);
        for (binding, left) in [("n/a", 6), ("n/b", 4), ("n/c", 2)] {
            reservations.assume(binding, &asking, &targets(&["m1"]), now);
            assert_eq!(fit(&mut reservations), left, "{binding}");
        }
        reservations.release("n/b", "m1");
        assert_eq!(fit(&mut reservations), 4);
    }
}
