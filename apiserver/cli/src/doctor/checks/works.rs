//! Checks of Works: those that members have not got.

use std::collections::BTreeMap;

use karmada_api::names;

use crate::doctor::observations::{ControlPlaneObservations, FailedWork};
use crate::doctor::report::{CheckResult, CheckResults};

/// One line for each cluster with Works that are not applied.
pub(super) fn check_works(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = CheckResults::new("works");
    let failed = match &observations.failed_works {
        Ok(failed) => failed,
        Err(reason) => {
            results.unknown(
                format!("the works cannot be listed: {reason}"),
                "run the command as a user who may list works",
            );
            return results.or_well("");
        }
    };
    let mut by_cluster: BTreeMap<&str, Vec<&FailedWork>> = BTreeMap::new();
    for work in failed {
        let cluster = names::cluster_of_execution_space(&work.namespace);
        let cluster = cluster.unwrap_or(&work.namespace);
        by_cluster.entry(cluster).or_default().push(work);
    }
    for (cluster, works) in by_cluster {
        let (count, first) = (works.len(), works[0]);
        let which = match count {
            1 => "1 work is".to_owned(),
            n => format!("{n} works are"),
        };
        let message = match first.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        results.warn(
            format!(
                "cluster {cluster}: {which} not applied, such as {}/{}{message}",
                first.namespace, first.name
            ),
            "ask `flotilla why` about the template, which the annotations of the work name",
        );
    }
    results.or_well("all works are applied")
}
