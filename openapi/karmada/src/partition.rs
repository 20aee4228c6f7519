//! The kinds of workloads with a partition: the number of replicas that keep the older revision.

/// The path of the partition in the spec of a kind; `None` if the kind has none.
pub fn partition_path(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (group, kind) {
        ("apps" | "apps.kruise.io", "StatefulSet") => {
            Some(&["updateStrategy", "rollingUpdate", "partition"])
        }
        ("apps.kruise.io", "CloneSet") => Some(&["updateStrategy", "partition"]),
        _ => None,
    }
}

/// The replicas of a batch with a percentage of them, rounded up.
pub fn replicas_of_batch(replicas: u64, percent: u64) -> u64 {
    let hundredths = u128::from(replicas) * u128::from(percent.min(100));
    u64::try_from(hundredths.div_ceil(100)).unwrap_or(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_rounded_up() {
        for (replicas, percent, expected) in [
            (10, 10, 1),
            (10, 11, 2),
            (3, 1, 1),
            (3, 100, 3),
            (3, 200, 3),
            (0, 50, 0),
            (u64::MAX, 100, u64::MAX),
        ] {
            assert_eq!(replicas_of_batch(replicas, percent), expected);
        }
    }
}
