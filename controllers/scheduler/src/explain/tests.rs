//! Tests of explanations.

use serde_json::json;

use super::*;
use crate::core::{ClusterTrace, Failure};
use crate::foresight::tests::{binding, snapshot};

// proves: DCN-bounded
#[test]
fn an_explanation_of_any_failure_is_bounded() {
    let text = "x".repeat(5000);
    let failed = |index| crate::decide::FailedTerm {
        index,
        affinity_name: format!("term-{index}"),
        failure: Failure::NoFit(text.clone()),
    };
    let rows = (0..60).map(|n| ClusterTrace {
        name: format!("{n:0200}"),
        ..ClusterTrace::default()
    });
    let mut outcome = Outcome {
        lacking: Vec::new(),
        targets: Vec::new(),
        term: None,
        failure: Some(Failure::NoFit(text.clone())),
        failed_terms: (0..50).map(failed).collect(),
        trace: Trace {
            failure: Some(text.clone()),
            clusters: rows.collect(),
            ..Trace::default()
        },
    };
    let explanation = Explanation::of(&mut outcome, 1, false);
    assert!(explanation.size() <= LIMIT, "{}", explanation.size());
    assert_eq!(explanation.failed_terms.len(), TERMS);
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
    let explanation = explain(&binding, 3, &World::of(&clusters)).unwrap();
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
