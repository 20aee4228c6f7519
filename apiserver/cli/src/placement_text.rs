//! Formats the clusters of a placement for people.

use karmada_api::TargetCluster;

/// The most clusters of a placement that are printed without `-o wide`.
const MAX_PRINTED_CLUSTERS: usize = 6;

/// The targets in the order of their names.
pub(crate) fn sort_by_name(targets: &[TargetCluster]) -> Vec<&TargetCluster> {
    let mut targets: Vec<&TargetCluster> = targets.iter().collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// `member1:2, member2:3`; without numbers for objects without replicas.
pub fn format_clusters(targets: &[TargetCluster], wide: bool) -> String {
    if targets.is_empty() {
        return "nowhere".into();
    }
    let limit = if wide {
        targets.len()
    } else {
        MAX_PRINTED_CLUSTERS
    };
    let all = sort_by_name(targets);
    let name = |t: &&TargetCluster| match t.replicas {
        0 => t.name.clone(),
        n => format!("{}:{n}", t.name),
    };
    let mut text = all
        .iter()
        .take(limit)
        .map(name)
        .collect::<Vec<_>>()
        .join(", ");
    if all.len() > limit {
        text.push_str(&format!(", and {} more", all.len() - limit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(clusters: &[(&str, i64)]) -> Vec<TargetCluster> {
        let target = |(name, replicas): &(&str, i64)| TargetCluster {
            name: (*name).to_owned(),
            replicas: *replicas,
            ..TargetCluster::default()
        };
        clusters.iter().map(target).collect()
    }

    #[test]
    fn a_placement_is_abbreviated() {
        let many: Vec<(String, i64)> = (1..=8).map(|n| (format!("m{n}"), 1)).collect();
        let many: Vec<(&str, i64)> = many.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        for (targets, wide, text) in [
            (&[][..], false, "nowhere"),
            (&[("b", 2), ("a", 1)], false, "a:1, b:2"),
            (&[("a", 0)], false, "a"),
            (
                &many,
                false,
                "m1:1, m2:1, m3:1, m4:1, m5:1, m6:1, and 2 more",
            ),
            (
                &many,
                true,
                "m1:1, m2:1, m3:1, m4:1, m5:1, m6:1, m7:1, m8:1",
            ),
        ] {
            assert_eq!(format_clusters(&to(targets), wide), text);
        }
    }
}
