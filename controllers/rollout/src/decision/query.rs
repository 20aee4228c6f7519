//! Judges the results of the query of a stage: a healthy cluster is done once the last result
//! satisfies the threshold. A member is untrusted: its results decide about its own cluster alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{ClusterQueryStatus, ClusterRolloutStatus, QueryGate, RolloutPhase};

use super::clusters::{ClusterState, StageGates, api_time};

/// Why a cluster has failed whose query was not satisfied.
const QUERY_FAILED: &str = "QueryFailed";

/// Whether a cluster is in a phase in which the query of its stage is asked.
pub(crate) fn awaits_query(cluster: &ClusterRolloutStatus) -> bool {
    match cluster.phase {
        RolloutPhase::Soaking => true,
        RolloutPhase::Failed => cluster.reason == QUERY_FAILED,
        _ => false,
    }
}

impl StageGates {
    /// How long a cluster may soak: beyond `healthyFor` a query may take as long as the health
    /// itself.
    fn query_deadline(&self) -> Duration {
        self.healthy_for.saturating_add(self.deadline)
    }

    /// When time alone ends a soak that has lasted for some time.
    pub(super) fn soak_limit(&self, elapsed: SignedDuration) -> Duration {
        let is_over =
            SignedDuration::try_from(self.healthy_for).is_ok_and(|limit| elapsed >= limit);
        match self.query {
            Some(_) if is_over => self.query_deadline(),
            _ => self.healthy_for,
        }
    }
}

impl ClusterState<'_> {
    /// The next phase of a healthy cluster. `next`: without the query.
    pub(super) fn judge_query<'r>(
        &mut self,
        query: &QueryGate,
        gates: &StageGates,
        next: (RolloutPhase, &'r str),
        now: Timestamp,
    ) -> (RolloutPhase, &'r str) {
        let failed = (RolloutPhase::Failed, QUERY_FAILED);
        let soaking = (RolloutPhase::Soaking, "");
        match self.status.phase {
            RolloutPhase::Done => return next,
            RolloutPhase::Soaking => {}
            // It soaks anew with the first result that satisfies the threshold.
            RolloutPhase::Failed if self.status.reason == QUERY_FAILED => {
                let is_satisfied = self.is_satisfied(query) == Some(true);
                return if is_satisfied { soaking } else { failed };
            }
            _ => return soaking,
        }
        let is_satisfied = self.is_satisfied(query) == Some(true);
        let is_done = next.0 == RolloutPhase::Done && is_satisfied;
        self.record_result(query, is_done);
        let failures = self.status.query.as_ref().map_or(0, |last| last.failures);
        let deadline = SignedDuration::try_from(gates.query_deadline());
        // A batch that is held has had a result that satisfies.
        let is_held = !self.status.reason.is_empty();
        let is_late = !is_held && deadline.is_ok_and(|deadline| self.elapsed(now) >= deadline);
        match () {
            () if failures > query.failure_limit => failed,
            () if is_done => next,
            () if is_late => failed,
            () => soaking,
        }
    }

    /// Whether the latest result satisfies the threshold; `None` without a result.
    fn is_satisfied(&self, query: &QueryGate) -> Option<bool> {
        let value = *self.observed?.query.as_ref()?.outcome.as_ref().ok()?;
        Some(query.operator.accepts(value, query.threshold))
    }

    /// Records a result that counts as a failure, or with which the outcome changes: a result like
    /// the one before is no write.
    fn record_result(&mut self, query: &QueryGate, is_done: bool) {
        let Some(observation) = self.observed.and_then(|target| target.query.as_ref()) else {
            return;
        };
        let Ok(value) = observation.outcome else {
            return;
        };
        let (time, last) = (api_time(observation.asked_at), self.status.query.as_ref());
        let satisfied = query.operator.accepts(value, query.threshold);
        // Both times have the same format, in which the later one is the greater text.
        let is_newer = last.is_none_or(|last| time > last.time);
        let is_change = last.is_none_or(|last| last.satisfied != satisfied);
        if !is_newer || satisfied && !is_change && !is_done {
            return;
        }
        let failures = last.map_or(0, |last| last.failures);
        self.status.query = Some(ClusterQueryStatus {
            time,
            value: number_text(value),
            satisfied,
            failures: failures + i64::from(!satisfied),
        });
    }

    /// Says how far the query of a cluster is. `previous`: the message of the step before, if the
    /// cluster has stayed in its phase.
    pub(super) fn explain_query(&mut self, query: &QueryGate, previous: Option<String>) {
        if !awaits_query(&self.status) {
            return;
        }
        let latest = self.observed.and_then(|target| target.query.as_ref());
        if let Some(previous) = previous.filter(|text| latest.is_none() && !text.is_empty()) {
            self.status.message = previous;
            return;
        }
        let error = latest.and_then(|latest| latest.outcome.as_ref().err());
        let threshold = number_text(query.threshold);
        let threshold = format!("{} {threshold}", query.operator.as_words());
        self.status.message = match (&self.status.query, error) {
            (_, Some(error)) => format!("the query has no result: {error}"),
            (None, None) => format!("awaits that the query is {threshold}"),
            (Some(last), None) if last.satisfied => {
                format!("the query is {}, {threshold}", last.value)
            }
            (Some(last), None) => format!(
                "the query is {}, not {threshold}: {} of at most {} failures",
                last.value, last.failures, query.failure_limit
            ),
        };
    }
}

/// A number in few characters: without an exponent, hundreds of digits may be zeros.
fn number_text(number: f64) -> String {
    let is_readable = number == 0.0 || (1e-6..1e15).contains(&number.abs());
    match is_readable || !number.is_finite() {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}
