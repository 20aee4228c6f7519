//! Divides replicas by a ReplicaSchedulingPreference: minimum first, then what is kept, then by
//! weight in rounds up to maximum and capacity. Pure.
//!
//! Source of the rules: KubeFed v0.10's `pkg/controller/util/planner`.

use karmada_api::replica_preference::ReplicaSchedulingPreferenceSpec;

const FNV_OFFSET_BASIS: u32 = 2_166_136_261;
const FNV_PRIME: u32 = 16_777_619;

/// A cluster among which replicas are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedCluster<'a> {
    pub(crate) name: &'a str,
    /// The replicas that it has, which stay without `rebalance`.
    pub(crate) current_replicas: i64,
    /// The replicas that it can run, if a limit is known.
    pub(crate) capacity: Option<i64>,
}

/// The replicas of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedReplicas {
    /// Replicas that it can run.
    pub(crate) replicas: i64,
    /// Replicas beyond its capacity: once it has room for them they run where they are due.
    pub(crate) overflow: i64,
    pub(crate) weight: i64,
}

/// The state of a cluster while replicas are divided.
#[derive(Clone, Copy, Debug)]
struct ClusterPlan<'a> {
    cluster: PlannedCluster<'a>,
    /// Position in the result.
    index: usize,
    /// Decides between clusters of the same weight, so that it is not always the first by name.
    hash: u32,
    min_replicas: i64,
    max_replicas: i64,
    weight: i64,
    replicas: i64,
    overflow: i64,
    /// Kept replicas that are not charged to the cluster's share yet.
    uncharged: i64,
    is_full: bool,
}

impl ClusterPlan<'_> {
    fn capacity(&self) -> i64 {
        self.cluster.capacity.unwrap_or(i64::MAX).max(0)
    }

    /// Assigns the minimum; returns how many replicas it took.
    fn take_minimum(&mut self, remaining: i64) -> i64 {
        self.replicas = self.min_replicas.min(remaining).min(self.capacity());
        self.replicas
    }

    /// Keeps current replicas above the minimum; returns how many it took.
    fn keep_current(&mut self, remaining: i64) -> i64 {
        let current = self.cluster.current_replicas;
        if current <= self.replicas {
            return 0;
        }
        let target = current.min(self.max_replicas).min(self.capacity());
        self.uncharged = (target - self.replicas).min(remaining).max(0);
        self.replicas += self.uncharged;
        self.uncharged
    }

    /// Its share of `round` replicas, rounded up.
    fn share(&self, round: i64, weights: i128) -> i64 {
        let share = (i128::from(round) * i128::from(self.weight) + weights - 1) / weights;
        i64::try_from(share).unwrap_or(i64::MAX)
    }

    /// Assigns a share, of which kept replicas are a part; returns how many replicas it took.
    fn take_share(&mut self, share: i64) -> i64 {
        let charged = share.min(self.uncharged);
        self.uncharged -= charged;
        let before = self.replicas;
        let mut total = before.saturating_add(share - charged);
        if total > self.max_replicas {
            total = self.max_replicas;
            self.is_full = true;
        }
        if total > self.capacity() {
            self.overflow = total - self.capacity();
            total = self.capacity();
            self.is_full = true;
        }
        self.replicas = total;
        total - before
    }
}

/// Divides the total of a preference; the result has the order of `clusters`. `key`: the namespace
/// and name of the workload.
pub(crate) fn plan(
    spec: &ReplicaSchedulingPreferenceSpec,
    key: &str,
    clusters: &[PlannedCluster<'_>],
) -> Vec<PlannedReplicas> {
    let mut plans = cluster_plans(spec, key, clusters);
    let mut remaining = spec.total_replicas.max(0);
    for plan in &mut plans {
        remaining -= plan.take_minimum(remaining);
    }
    if !spec.rebalance {
        for plan in &mut plans {
            remaining -= plan.keep_current(remaining);
        }
    }
    remaining = divide_by_weight(&mut plans, remaining);
    let mut result = vec![PlannedReplicas::default(); clusters.len()];
    for plan in plans {
        // Replicas that stay are not offered to full clusters in addition to others.
        let limit = if spec.rebalance { i64::MAX } else { remaining };
        if let Some(planned) = result.get_mut(plan.index) {
            *planned = PlannedReplicas {
                replicas: plan.replicas,
                overflow: plan.overflow.min(limit).max(0),
                weight: plan.weight,
            };
        }
    }
    result
}

/// The clusters that the preference is about: the greatest weight first, then by hash.
fn cluster_plans<'a>(
    spec: &ReplicaSchedulingPreferenceSpec,
    key: &str,
    clusters: &[PlannedCluster<'a>],
) -> Vec<ClusterPlan<'a>> {
    let plan = |(index, cluster): (usize, &PlannedCluster<'a>)| {
        let preference = spec.for_cluster(cluster.name)?;
        Some(ClusterPlan {
            cluster: *cluster,
            index,
            hash: fnv1_hash(cluster.name.bytes().chain(key.bytes())),
            min_replicas: preference.min_replicas.max(0),
            max_replicas: preference.max_replicas.unwrap_or(i64::MAX).max(0),
            weight: preference.weight.max(0),
            replicas: 0,
            overflow: 0,
            uncharged: 0,
            is_full: false,
        })
    };
    let mut plans: Vec<ClusterPlan<'a>> = clusters.iter().enumerate().filter_map(plan).collect();
    plans.sort_by_key(|plan| (-plan.weight, plan.hash, plan.cluster.name));
    plans
}

/// Divides what remains in rounds until none remains or no cluster takes more, and returns what is
/// left. Each round either uses up what remains, fills a cluster, or charges kept replicas.
fn divide_by_weight(plans: &mut [ClusterPlan<'_>], mut remaining: i64) -> i64 {
    while remaining > 0 {
        let open = || plans.iter().filter(|plan| !plan.is_full);
        let weights: i128 = open().map(|plan| i128::from(plan.weight)).sum();
        if weights == 0 {
            break;
        }
        skip_charging_rounds(plans, remaining, weights);
        let round = remaining;
        let mut is_changed = false;
        for plan in plans.iter_mut().filter(|plan| !plan.is_full) {
            let share = plan.share(round, weights).min(remaining);
            let uncharged = plan.uncharged;
            let taken = plan.take_share(share);
            remaining -= taken;
            is_changed |= taken > 0 || plan.uncharged < uncharged;
        }
        if !is_changed {
            break;
        }
    }
    remaining
}

/// Charges at once the kept replicas of the rounds in which they cover all shares. Such rounds
/// are all alike, and there may be as many as replicas.
fn skip_charging_rounds(plans: &mut [ClusterPlan<'_>], remaining: i64, weights: i128) {
    let shares: Vec<i64> = plans
        .iter()
        .map(|plan| match plan.is_full {
            true => 0,
            false => plan.share(remaining, weights).min(remaining),
        })
        .collect();
    let charged = plans.iter().zip(&shares).filter(|(_, share)| **share > 0);
    let rounds = charged.map(|(plan, share)| plan.uncharged / share).min();
    for (plan, share) in plans.iter_mut().zip(&shares) {
        plan.uncharged -= share * rounds.unwrap_or(0);
    }
}

/// The 32-bit FNV-1 hash, with which KubeFed orders clusters.
fn fnv1_hash(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(FNV_OFFSET_BASIS, |hash, byte| {
        hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte)
    })
}
