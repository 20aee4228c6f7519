//! Workload affinity and anti-affinity: the clusters that the other bindings of a group
//! permit.
//!
//! Source: Karmada's `pkg/scheduler/framework/plugins/workload{affinity,antiaffinity}`.

use std::collections::BTreeSet;

use karmada_api::binding::WorkloadAffinityGroups;

/// A binding and its affinity groups.
#[derive(Clone, Copy, Debug)]
pub struct BindingWithAffinityGroups<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub groups: Option<&'a WorkloadAffinityGroups>,
}

/// The clusters that the other bindings of a binding's groups permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffinityPeerClusters {
    /// Clusters where all affinity peers are; `None` if none of them is scheduled.
    affinity_clusters: Option<BTreeSet<String>>,
    /// Clusters where some anti-affinity peer is.
    anti_affinity_clusters: BTreeSet<String>,
}

impl AffinityPeerClusters {
    /// For a binding without groups.
    pub const NONE: &'static Self = &Self {
        affinity_clusters: None,
        anti_affinity_clusters: BTreeSet::new(),
    };

    /// Combines the other bindings, each with its present clusters.
    pub fn new<'a, C: IntoIterator<Item = &'a str>>(
        own: BindingWithAffinityGroups<'_>,
        others: impl IntoIterator<Item = (BindingWithAffinityGroups<'a>, C)>,
    ) -> Self {
        let mut peers = Self::default();
        let Some(groups) = own.groups else {
            return peers;
        };
        for (peer, clusters) in others {
            if peer.namespace != own.namespace || peer.name == own.name {
                continue;
            }
            let Some(of) = peer.groups else { continue };
            let with =
                !groups.affinity_group.is_empty() && of.affinity_group == groups.affinity_group;
            let against = !groups.anti_affinity_group.is_empty()
                && of.anti_affinity_group == groups.anti_affinity_group;
            if !with && !against {
                continue;
            }
            let present: BTreeSet<String> = clusters.into_iter().map(str::to_owned).collect();
            if against {
                peers.anti_affinity_clusters.extend(present.iter().cloned());
            }
            // A peer that is not scheduled yet will follow this binding.
            if with && !present.is_empty() {
                peers.affinity_clusters = Some(match peers.affinity_clusters.take() {
                    Some(common) => common.intersection(&present).cloned().collect(),
                    None => present,
                });
            }
        }
        peers
    }

    /// Whether all affinity peers are on a cluster.
    pub(crate) fn affinity_allows(&self, cluster: &str) -> bool {
        self.affinity_clusters
            .as_ref()
            .is_none_or(|common| common.contains(cluster))
    }

    /// Whether an anti-affinity peer is on a cluster.
    pub(crate) fn anti_affinity_forbids(&self, cluster: &str) -> bool {
        self.anti_affinity_clusters.contains(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(with: &str, against: &str) -> WorkloadAffinityGroups {
        WorkloadAffinityGroups {
            affinity_group: with.into(),
            anti_affinity_group: against.into(),
        }
    }

    fn peer<'a>(
        name: &'a str,
        groups: &'a WorkloadAffinityGroups,
    ) -> BindingWithAffinityGroups<'a> {
        BindingWithAffinityGroups {
            namespace: "n",
            name,
            groups: Some(groups),
        }
    }

    #[test]
    fn only_others_of_the_same_group_and_namespace_count() {
        let (own, other) = (groups("app=a", "tier=x"), groups("app=b", "tier=y"));
        let elsewhere = BindingWithAffinityGroups {
            namespace: "m",
            ..peer("c", &own)
        };
        let ungrouped = BindingWithAffinityGroups {
            groups: None,
            ..peer("d", &own)
        };
        let others = [peer("own", &own), peer("b", &other), elsewhere, ungrouped];
        let peers = AffinityPeerClusters::new(peer("own", &own), others.map(|p| (p, ["m1"])));
        assert_eq!(peers, AffinityPeerClusters::default());
        assert!(peers.affinity_allows("m9") && !peers.anti_affinity_forbids("m1"));
    }

    // proves: SCH-workload-affinity
    #[test]
    fn affinity_intersects_clusters_and_anti_affinity_unites_them() {
        let own = groups("app=a", "tier=x");
        let others = [
            (peer("a", &own), vec!["m1", "m2"]),
            (peer("b", &own), vec!["m2", "m3"]),
            (peer("c", &own), vec![]),
        ];
        let peers = AffinityPeerClusters::new(peer("own", &own), others);
        let on = |test: &dyn Fn(&str) -> bool| ["m1", "m2", "m3", "m4"].map(test);
        assert_eq!(
            on(&|m| peers.affinity_allows(m)),
            [false, true, false, false]
        );
        assert_eq!(
            on(&|m| peers.anti_affinity_forbids(m)),
            [true, true, true, false]
        );
    }
}
