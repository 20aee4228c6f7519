//! Queries that have to be satisfied before a cluster is done.

use karmada_api::rollout::{ClusterRolloutStatus, PrometheusService, RolloutPhase};
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::decision::QueryObservation;

/// Two stages, whose first one has a query and soaks for a minute.
fn fleet(more: Value) -> Fleet {
    let query = json!({"expression": "errors", "threshold": 0.5, "failureLimit": 1});
    let stages = json!([{"name": "first", "gates": {"healthyFor": "1m", "query": query}}, {"name": "second"}]);
    let mut policy = json!({"stages": stages, "progressDeadline": "10m"});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let mut fleet = Fleet::new(json!({}), &[("a", 0), ("b", 0)]);
    fleet.cluster("b").stage = 1;
    fleet.policy = serde_json::from_value(policy).unwrap();
    "q".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    fleet.change("2");
    fleet
}

/// The member of the first stage answers now.
fn answer(fleet: &mut Fleet, outcome: Result<f64, &str>) {
    let query = QueryObservation {
        asked_at: fleet.now,
        outcome: outcome.map_err(str::to_owned),
    };
    fleet.cluster("a").query = Some(query);
    fleet.run_to_rest();
}

fn cluster(fleet: &Fleet) -> ClusterRolloutStatus {
    fleet.status.as_ref().unwrap().cluster("a").unwrap().clone()
}

// proves: ROL-query
#[test]
fn a_cluster_is_done_once_the_last_result_satisfies_the_threshold() {
    let mut fleet = fleet(json!({}));
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    assert_eq!(
        cluster(&fleet).message,
        "awaits that the query is at most 0.5"
    );
    fleet.pass(60);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    answer(&mut fleet, Ok(0.75));
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    let text = "the query is 0.75, not at most 0.5: 1 of at most 1 failures";
    assert_eq!(cluster(&fleet).message, text);
    // The same result, after a restart without it, and a member that does not answer change nothing
    // that counts.
    fleet.pass(10);
    fleet.cluster("a").query = None;
    fleet.run_to_rest();
    assert_eq!(cluster(&fleet).message, text);
    answer(&mut fleet, Err("no answer"));
    assert_eq!(
        cluster(&fleet).message,
        "the query has no result: no answer"
    );
    assert_eq!(cluster(&fleet).query.unwrap().failures, 1);
    fleet.pass(10);
    answer(&mut fleet, Ok(0.5));
    fleet.check("Completed: a=2 Done, b=2 Done");
    let query = cluster(&fleet).query.unwrap();
    assert_eq!(
        (&*query.value, query.satisfied, &*query.time),
        ("0.5", true, "2026-01-01T01:01:20Z")
    );
}

// proves: ROL-query
#[test]
fn results_while_the_cluster_soaks_end_it_no_earlier() {
    let mut fleet = fleet(json!({}));
    fleet.pass(1);
    answer(&mut fleet, Ok(0.0));
    let before = fleet.status.clone();
    fleet.pass(20);
    // A result like the one before is no write.
    answer(&mut fleet, Ok(0.25));
    assert_eq!(fleet.status, before);
    assert_eq!(cluster(&fleet).message, "the query is 0, at most 0.5");
    fleet.pass(38);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    fleet.pass(1);
    fleet.check("Completed: a=2 Done, b=2 Done");
    assert_eq!(cluster(&fleet).query.unwrap().value, "0.25");
    // Its query is not asked again, and does not count.
    answer(&mut fleet, Ok(9.0));
    fleet.check("Completed: a=2 Done, b=2 Done");
}

// proves: ROL-query-failed
#[test]
fn a_cluster_fails_after_too_many_failures_until_a_result_satisfies() {
    let mut fleet = fleet(json!({}));
    for _ in 0..2 {
        fleet.pass(10);
        answer(&mut fleet, Ok(1.0));
        // Each result counts once.
        fleet.pass(1);
    }
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked");
    let failed = cluster(&fleet);
    assert_eq!(
        (&*failed.reason, &*failed.message),
        (
            "QueryFailed",
            "the query is 1, not at most 0.5: 2 of at most 1 failures"
        )
    );
    fleet.pass(100_000);
    answer(&mut fleet, Err("no answer"));
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked");
    answer(&mut fleet, Ok(0.0));
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done");
}

// proves: ROL-query-failed
#[test]
fn a_query_without_result_fails_after_the_deadline() {
    let mut fleet = fleet(json!({"onFailure": "Rollback"}));
    answer(&mut fleet, Err("no answer"));
    fleet.pass(659);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    // Time alone leads to the end.
    fleet.pass_to_next();
    assert_eq!(fleet.now.to_string(), "2026-01-01T01:11:00Z");
    assert_eq!(fleet.status.as_ref().unwrap().state, "RolledBack");
    assert_eq!(cluster(&fleet).revision, "1");
    // Within the budget the others go on.
    let mut fleet = self::fleet(json!({"failureBudget": 1}));
    fleet.pass(660);
    fleet.check("Degraded: a=2 Failed, b=2 Done");
    // One that becomes unhealthy forgets its results.
    let mut fleet = self::fleet(json!({}));
    answer(&mut fleet, Ok(1.0));
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.run_to_rest();
    assert_eq!(fleet.phase("a"), Some(RolloutPhase::Updating));
    assert_eq!(cluster(&fleet).query, None);
}

// proves: ROL-query-control-plane
#[test]
fn a_stage_whose_query_nothing_answers_does_not_begin() {
    let mut fleet = fleet(json!({}));
    answer(&mut fleet, Ok(0.25));
    fleet.pass(60);
    answer(&mut fleet, Ok(0.25));
    fleet.check("Completed: a=2 Done, b=2 Done");
    fleet.has_prometheus = false;
    fleet.change("3");
    fleet.check("NoPrometheus: a=2 Blocked, b=2 Pending");
    let text = "the query names no Service, and the control plane has no --rollout-prometheus-url";
    assert_eq!(cluster(&fleet).message, text);
    // A Service in the member answers without it.
    let query = fleet.policy.stages[0].gates.query.as_mut().unwrap();
    query.prometheus = Some(PrometheusService::default());
    fleet.run_to_rest();
    fleet.check("Progressing: a=3 Soaking, b=2 Pending");
}
