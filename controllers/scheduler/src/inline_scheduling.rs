//! Scheduling by a caller that writes the result in the same request as its own change to the
//! binding, so that the scheduler does not have to write the binding once more.

use std::time::Instant;

use crate::core::{self, ClusterSnapshot, ScheduleRequest, SchedulingContext, SchedulingDecision};
use crate::metrics::{self, ScheduleType};

/// The decision cannot be made inline; the scheduler decides or reports the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decision is left to the scheduler")]
pub struct DeferredToSchedulerError;

/// [`core::make_decision`] for a caller that writes the result together with its own change;
/// counted as one attempt. `scaled`: only the number of replicas has changed.
pub fn schedule_inline<'a>(
    request: &ScheduleRequest<'a>,
    snapshot: &'a ClusterSnapshot,
    scaled: bool,
) -> Result<SchedulingDecision<'a>, DeferredToSchedulerError> {
    // Only the scheduler knows the latest results of other bindings and asks estimators.
    let settings = snapshot.settings();
    let has_affinity_groups = request.spec.workload_affinity_groups.is_some();
    let needs_estimator = settings.estimators && core::is_estimated(request.spec);
    if needs_estimator
        || (settings.reserve && request.spec.is_workload())
        || (settings.uses_workload_affinity() && has_affinity_groups)
    {
        return Err(DeferredToSchedulerError);
    }
    let start = Instant::now();
    let decision = core::make_decision(
        request,
        &SchedulingContext::from_snapshot(snapshot),
        &mut metrics::step_observer(),
    );
    // The scheduler repeats a failed decision, and counts it.
    if decision.failure().is_some() {
        return Err(DeferredToSchedulerError);
    }
    metrics::record_attempt(true, ScheduleType::from_scale(scaled), start.elapsed());
    Ok(decision)
}

#[cfg(test)]
mod tests {
    use karmada_api::{FeatureGates, KarmadaFeature};

    use super::*;
    use crate::core::tests::cluster;
    use crate::core::tests::decision_table::{parse_binding, placement};
    use crate::core::{SchedulerPluginSet, SchedulingSettings};

    #[test]
    fn decisions_that_depend_on_other_bindings_are_deferred_to_the_scheduler() {
        let mut grouped = parse_binding("n:2").binding.spec;
        grouped.workload_affinity_groups = Some(Default::default());
        let single = parse_binding("n:2").binding.spec;
        let placement = placement("");
        let under = |spec, gate, asking| {
            let gates = FeatureGates::default().with_feature(gate, true);
            let rules = SchedulingSettings::new(gates, SchedulerPluginSet::default(), false)
                .with_estimators(asking);
            let member = cluster("a", 10, serde_json::json!({}));
            let request = ScheduleRequest {
                spec,
                placement: &placement,
                term: None,
                fresh: false,
            };
            schedule_inline(
                &request,
                &ClusterSnapshot::new([member]).with_settings(rules),
                false,
            )
            .is_ok()
        };
        let ahead = |spec, gate| under(spec, gate, false);
        assert!(ahead(&grouped, KarmadaFeature::PriorityBasedScheduling));
        assert!(!ahead(&grouped, KarmadaFeature::WorkloadAffinity));
        assert!(ahead(&single, KarmadaFeature::WorkloadAffinity));
        assert!(!ahead(
            &single,
            KarmadaFeature::SchedulingOvercommitProtection
        ));
        let nothing = parse_binding("").binding.spec;
        let asking = |spec| under(spec, KarmadaFeature::PriorityBasedScheduling, true);
        assert!(!asking(&single) && asking(&nothing));
    }
}
