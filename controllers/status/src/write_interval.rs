//! How often a status is written.

use std::time::Duration;

/// Minimum time between two writes of one status; the first is never delayed. Several
/// clusters often report within a few milliseconds.
pub(crate) const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(20);
/// A status that has an item for each cluster is written less often the more clusters it has: each
/// write has all items, so that to write one for each report would cost the square of the clusters.
const WRITE_INTERVAL_PER_CLUSTER: Duration = Duration::from_millis(10);
const MAX_WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Minimum time between two writes of a status with items for so many clusters.
pub(crate) fn write_interval(clusters: usize) -> Duration {
    let clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
    WRITE_INTERVAL_PER_CLUSTER
        .saturating_mul(clusters)
        .clamp(MIN_WRITE_INTERVAL, MAX_WRITE_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_many_clusters_is_written_less_often() {
        let millis = [0, 1, 3, 100, 5000].map(|clusters| write_interval(clusters).as_millis());
        assert_eq!(millis, [20, 20, 30, 1000, 2000]);
    }
}
