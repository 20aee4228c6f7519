//! Workloads that are kept together, or apart: what the other bindings of a group
//! allow.
//!
//! Enters: the binding's groups, and the other bindings with where they are. Leaves:
//! the clusters that are open to it. Source: Karmada's
//! `pkg/scheduler/framework/plugins/workload{affinity,antiaffinity}`.

use std::collections::BTreeSet;

use openapi::karmada::binding::AffinityGroups;

/// Another binding, as it is or as it was just decided.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub groups: Option<&'a AffinityGroups>,
}

/// Which clusters the others of a binding's groups leave open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Where all that it belongs with are; `None` when none is anywhere.
    together: Option<BTreeSet<String>>,
    /// Where one is that it stays apart from.
    apart: BTreeSet<String>,
}

impl Peers {
    /// Of a binding that belongs to no group.
    pub const NONE: &'static Self = &Self {
        together: None,
        apart: BTreeSet::new(),
    };

    /// Takes the others one by one, each with the clusters that it has.
    pub fn new<'a, C: IntoIterator<Item = &'a str>>(
        own: Peer<'_>,
        others: impl IntoIterator<Item = (Peer<'a>, C)>,
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
            let here: BTreeSet<String> = clusters.into_iter().map(str::to_owned).collect();
            if against {
                peers.apart.extend(here.iter().cloned());
            }
            // One that is nowhere yet goes where this one went.
            if with && !here.is_empty() {
                peers.together = Some(match peers.together.take() {
                    Some(common) => common.intersection(&here).cloned().collect(),
                    None => here,
                });
            }
        }
        peers
    }

    /// Whether all that it belongs with are on a cluster.
    pub(crate) fn all_on(&self, cluster: &str) -> bool {
        self.together
            .as_ref()
            .is_none_or(|common| common.contains(cluster))
    }

    /// Whether one that it stays apart from is on a cluster.
    pub(crate) fn any_on(&self, cluster: &str) -> bool {
        self.apart.contains(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(with: &str, against: &str) -> AffinityGroups {
        AffinityGroups {
            affinity_group: with.into(),
            anti_affinity_group: against.into(),
        }
    }

    fn peer<'a>(name: &'a str, groups: &'a AffinityGroups) -> Peer<'a> {
        Peer {
            namespace: "n",
            name,
            groups: Some(groups),
        }
    }

    #[test]
    fn only_others_of_the_same_group_and_namespace_count() {
        let (own, other) = (groups("app=a", "tier=x"), groups("app=b", "tier=y"));
        let elsewhere = Peer {
            namespace: "m",
            ..peer("c", &own)
        };
        let ungrouped = Peer {
            groups: None,
            ..peer("d", &own)
        };
        let others = [peer("own", &own), peer("b", &other), elsewhere, ungrouped];
        let peers = Peers::new(peer("own", &own), others.map(|p| (p, ["m1"])));
        assert_eq!(peers, Peers::default());
        assert!(peers.all_on("m9") && !peers.any_on("m1"));
    }

    // proves: SCH-workload-affinity
    #[test]
    fn together_is_where_all_are_and_apart_is_where_one_is() {
        let own = groups("app=a", "tier=x");
        let others = [
            (peer("a", &own), vec!["m1", "m2"]),
            (peer("b", &own), vec!["m2", "m3"]),
            (peer("c", &own), vec![]),
        ];
        let peers = Peers::new(peer("own", &own), others);
        let on = |test: &dyn Fn(&str) -> bool| ["m1", "m2", "m3", "m4"].map(test);
        assert_eq!(on(&|m| peers.all_on(m)), [false, true, false, false]);
        assert_eq!(on(&|m| peers.any_on(m)), [true, true, true, false]);
    }
}
