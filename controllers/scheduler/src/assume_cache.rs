//! Remembers results that later decisions must count before the informers show them: the
//! capacity that was assigned, and the clusters of bindings in affinity groups.
//!
//! Decisions are assumed when they are made, confirmed or restored after their write, and
//! dropped when the informer delivers them. Provides the parts of the
//! [`SchedulingContext`](crate::core::SchedulingContext) besides the clusters.

use std::sync::Arc;
use std::time::Instant;

use flotilla_runtime::{Expectations, PreviousExpectation};
use karmada_api::binding::WorkloadAffinityGroups;
use karmada_api::{ResourceBinding, ResourceBindingSpec, TargetCluster};
use machinery::Object;

use crate::core::SchedulingSettings;
use crate::core::reservations::{BindingReservation, Reservations};
use crate::core::workload_affinity::{AffinityPeerClusters, BindingWithAffinityGroups};

/// Assumed results. Keys are `namespace/name`.
#[derive(Debug, Default)]
pub(crate) struct AssumeCache {
    pub(crate) reservations: Reservations,
    /// The clusters in results that the informer does not show yet.
    results: Expectations<String, Arc<[String]>>,
}

/// The state that a new assumption replaced, for [`AssumeCache::restore`].
#[derive(Debug)]
pub(crate) struct PreviousAssumption {
    reservation: Option<BindingReservation>,
    result: Option<PreviousExpectation<Arc<[String]>>>,
}

impl AssumeCache {
    /// Assumes a result that is about to be written.
    pub(crate) fn assume(
        &mut self,
        key: &String,
        spec: &ResourceBindingSpec,
        targets: &[TargetCluster],
        rules: SchedulingSettings,
        now: Instant,
    ) -> PreviousAssumption {
        let reservation = rules
            .reserve
            .then(|| self.reservations.assume(key, spec, targets, now));
        let in_group = rules.uses_workload_affinity() && spec.workload_affinity_groups.is_some();
        let clusters = || targets.iter().map(|t| t.name.clone()).collect();
        let result = in_group.then(|| self.results.assume(key, clusters()));
        PreviousAssumption {
            reservation,
            result,
        }
    }

    /// The result was written; `look` reads the informer's copy of the binding.
    pub(crate) fn finish_write(
        &self,
        key: &String,
        replaced: &PreviousAssumption,
        written: &Object,
        look: impl FnOnce() -> Option<Object>,
    ) {
        if replaced.result.is_some() {
            self.results.expect(key, written, look);
        }
    }

    /// The result could not be written: restores what it replaced.
    pub(crate) fn restore(&mut self, key: &String, replaced: PreviousAssumption) {
        if let Some(reservation) = replaced.reservation {
            self.reservations.restore(key, reservation);
        }
        if let Some(result) = replaced.result {
            self.results.restore(key, result);
        }
    }

    /// The informer delivered an update of a binding; `copy` is the new object.
    pub(crate) fn observe_update(
        &mut self,
        key: &String,
        old: &ResourceBinding,
        new: &ResourceBinding,
        copy: &Object,
    ) {
        self.results.satisfy(key, copy);
        let healthy = |of: &ResourceBinding, cluster: &str| {
            let items = &of.status.aggregated_status;
            let mut items = items.iter().filter(|i| i.cluster_name == cluster);
            items.any(|i| i.health == "Healthy")
        };
        for item in &new.status.aggregated_status {
            let cluster = item.cluster_name.as_str();
            if healthy(new, cluster) && !healthy(old, cluster) {
                self.reservations.release(key, cluster);
            }
        }
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &String) {
        self.results.forget(key);
        self.reservations.forget(key);
    }

    /// The clusters of the other bindings in a binding's groups; `others` are the informer's
    /// copies of all bindings that share a group.
    pub(crate) fn peers(
        &self,
        own: &Object,
        groups: Option<&WorkloadAffinityGroups>,
        others: &[Object],
    ) -> AffinityPeerClusters {
        let own = BindingWithAffinityGroups {
            namespace: own.namespace(),
            name: own.name(),
            groups,
        };
        let views: Vec<_> = others
            .iter()
            .filter_map(|object| {
                let binding = object.decode::<ResourceBinding>().ok()?;
                let assumed = self
                    .results
                    .assumed(&object.meta().key(), object.revision());
                Some((object, binding, assumed))
            })
            .collect();
        let all = views.iter().map(|(object, binding, assumed)| {
            let peer = BindingWithAffinityGroups {
                namespace: object.namespace(),
                name: object.name(),
                groups: binding.spec.workload_affinity_groups.as_ref(),
            };
            let clusters: Vec<&str> = match assumed {
                Some(clusters) => clusters.iter().map(String::as_str).collect(),
                None => {
                    let clusters = binding.spec.clusters.iter();
                    clusters.map(|t| t.name.as_str()).collect()
                }
            };
            (peer, clusters)
        });
        AffinityPeerClusters::new(own, all)
    }
}

#[cfg(test)]
mod tests {
    use karmada_api::{FeatureGates, KarmadaFeature};
    use serde_json::json;

    use super::*;
    use crate::core::SchedulerPluginSet;

    fn binding(name: &str, clusters: &[&str], revision: u64) -> Object {
        let clusters: Vec<_> = clusters.iter().map(|c| json!({"name": c})).collect();
        let value = json!({
            "metadata": {"name": name, "namespace": "n", "resourceVersion": revision.to_string()},
            "spec": {"clusters": clusters, "workloadAffinityGroups": {"antiAffinityGroup": "app=a"}},
        });
        Object::from_value(&value).unwrap()
    }

    /// Clusters that are excluded for one binding, when the informer's copy of another is `other`.
    fn excluded_clusters(book: &AssumeCache, other: &Object) -> Vec<&'static str> {
        let own = binding("own", &[], 1);
        let view = own.decode::<ResourceBinding>().unwrap();
        let groups = view.spec.workload_affinity_groups.as_ref();
        let peers = book.peers(&own, groups, std::slice::from_ref(other));
        let mut closed = vec!["m1", "m2", "m3"];
        closed.retain(|cluster| peers.anti_affinity_forbids(cluster));
        closed
    }

    // proves: SCH-peers-assigning
    #[test]
    fn assumed_results_count_before_the_informer_shows_them() {
        let gates = FeatureGates::default().with_feature(KarmadaFeature::WorkloadAffinity, true);
        let rules = SchedulingSettings::new(gates, SchedulerPluginSet::default(), false);
        let old = binding("other", &["m1"], 5);
        let view = old.decode::<ResourceBinding>().unwrap();
        let input = [TargetCluster {
            name: "m2".into(),
            ..TargetCluster::default()
        }];
        let mut book = AssumeCache::default();
        assert_eq!(excluded_clusters(&book, &old), ["m1"]);
        let key = "n/other".to_owned();
        let enter =
            |book: &mut AssumeCache| book.assume(&key, &view.spec, &input, rules, Instant::now());
        let entry = enter(&mut book);
        assert_eq!(
            excluded_clusters(&book, &old),
            ["m2"],
            "while it is written"
        );
        book.restore(&key, entry);
        assert_eq!(
            excluded_clusters(&book, &old),
            ["m1"],
            "it could not be written"
        );
        let entry = enter(&mut book);
        let written = binding("other", &["m2"], 8);
        book.finish_write(&key, &entry, &written, || Some(old.clone()));
        assert_eq!(excluded_clusters(&book, &old), ["m2"], "the copy is older");
        assert_eq!(
            excluded_clusters(&book, &binding("other", &["m3"], 9)),
            ["m3"],
            "the copy is newer"
        );
        book.observe_update(&key, &view, &view, &binding("other", &["m1"], 7));
        assert_eq!(excluded_clusters(&book, &old), ["m2"]);
        book.observe_update(&key, &view, &view, &written);
        assert_eq!(
            excluded_clusters(&book, &old),
            ["m1"],
            "the informer showed it"
        );
        enter(&mut book);
        book.forget(&key);
        assert_eq!(excluded_clusters(&book, &old), ["m1"]);
    }
}
