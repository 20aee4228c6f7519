//! Tests of explanations.

use serde_json::json;

use super::*;
use crate::core::{ClusterTrace, SchedulingFailure};
use crate::simulation::tests::{binding, snapshot};

// proves: DCN-bounded
#[test]
fn an_explanation_of_any_failure_is_bounded() {
    let text = "x".repeat(5000);
    let failed = |index| crate::reconcile::FailedAffinityTerm {
        index,
        affinity_name: format!("term-{index}"),
        failure: SchedulingFailure::NoFit(text.clone()),
    };
    let rows = (0..60).map(|n| ClusterTrace {
        name: format!("{n:0200}"),
        ..ClusterTrace::default()
    });
    let mut outcome = ScheduleResult {
        unestimated_clusters: Vec::new(),
        targets: Vec::new(),
        term: None,
        failure: Some(SchedulingFailure::NoFit(text.clone())),
        failed_terms: (0..50).map(failed).collect(),
        trace: DecisionTrace {
            failure: Some(text.clone()),
            clusters: rows.collect(),
            ..DecisionTrace::default()
        },
    };
    let explanation = DecisionExplanation::from_result(&mut outcome, 1, false);
    assert!(
        explanation.encoded_len() <= MAX_EXPLANATION_BYTES,
        "{}",
        explanation.encoded_len()
    );
    assert_eq!(explanation.failed_terms.len(), MAX_FAILED_TERMS);
    let rows = explanation.trace.clusters.len();
    assert!(
        rows > 0 && rows + explanation.trace.omitted_clusters == 60,
        "{rows}"
    );
}

// proves: DCN-terms
#[test]
fn failed_terms_are_listed_beside_the_successful_one() {
    let terms = json!([{"affinityName": "a", "clusterNames": ["m9"]}, {"affinityName": "b", "clusterNames": ["m2"]}]);
    let binding = binding(
        json!({"placement": {"clusterAffinities": terms}}),
        json!({}),
    );
    let clusters = snapshot(2);
    let explanation = explain(&binding, 3, &SchedulingContext::from_snapshot(&clusters)).unwrap();
    let explanation = serde_json::to_value(explanation).unwrap();
    assert_eq!(explanation["failedTerms"][0]["affinityName"], "a");
    assert!(
        explanation["failedTerms"][0]["failure"]
            .as_str()
            .unwrap()
            .starts_with("0/2 clusters"),
        "{explanation}"
    );
    assert_eq!(
        (&explanation["affinityName"], &explanation["generation"]),
        (&json!("b"), &json!(3))
    );
}
