//! The results of checks that could not read what they look at.

use crate::doctor::report::{CheckResult, CheckResults};

/// The results of a check that has no metrics to look at.
pub(super) fn without_metrics(check: &'static str, reason: &str) -> Vec<CheckResult> {
    let mut results = CheckResults::new(check);
    results.unknown(
        format!("the metrics cannot be read: {reason}"),
        "ask Flotilla itself, as a user who may get /metrics",
    );
    results.or_well("")
}

/// The results of a check that has no Clusters to look at.
pub(super) fn without_clusters(check: &'static str, reason: &str) -> Vec<CheckResult> {
    let mut results = CheckResults::new(check);
    results.unknown(
        format!("the clusters cannot be listed: {reason}"),
        "run the command as a user who may list clusters",
    );
    results.or_well("")
}
