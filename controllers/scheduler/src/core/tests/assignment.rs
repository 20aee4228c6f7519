//! The assignment of replicas when no cluster was chosen.

use super::super::assignment::assign_replicas;
use super::super::{
    AssignmentStrategy, ClusterSnapshot, ScheduleRequest, SchedulingContext, SchedulingFailure,
};
use super::decision_table::{parse_binding, placement};

// proves: SCH-nothing-chosen
#[test]
fn replicas_without_clusters_are_an_error() {
    let (parsed_binding, placement, snapshot) = (
        parse_binding("n:2"),
        placement("dyn"),
        ClusterSnapshot::default(),
    );
    let request = ScheduleRequest {
        spec: &parsed_binding.binding.spec,
        placement: &placement,
        term: None,
        fresh: false,
    };
    let strategy = AssignmentStrategy::from_placement(&placement);
    let divided = assign_replicas(
        &request,
        &SchedulingContext::from_snapshot(&snapshot),
        strategy,
        &[],
    );
    let nowhere = SchedulingFailure::Error("no clusters available to schedule".into());
    assert_eq!(divided.map(|d| d.rule), Err(nowhere));
}
