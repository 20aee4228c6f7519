//! Reports the rollouts of the current leader term: how many are in which state, and how the
//! slowest of them are. Each scrape reads the Rollouts; without any, it costs nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Once};

use client::ShutdownToken;
use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType, CallbackMetricWriter};
use jiff::Timestamp;
use karmada_api::Rollout;
use karmada_api::rollout::{ClusterRolloutStatus, RolloutPhase, RolloutPolicySpec, RolloutStatus};
use machinery::time::Clock;
use machinery::{duration, time};
use parking_lot::Mutex;

use crate::decision::failure_budget;
use crate::resolver::RevisionResolver;

const ROLLOUTS: &str = "flotilla_rollouts";
const STUCK: &str = "flotilla_rollout_stage_stuck_seconds";
const BUDGET_USED: &str = "flotilla_rollout_failure_budget_used_ratio";
const SOAK_REMAINING: &str = "flotilla_rollout_soak_remaining_seconds";
/// The state of a rollout whose clusters begin.
const PROGRESSING: &str = "Progressing";

const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> CallbackMetricDesc {
    CallbackMetricDesc::new(name, help, CallbackMetricType::Gauge, labels)
}

const DESCRIPTIONS: [CallbackMetricDesc; 4] = [
    gauge(
        ROLLOUTS,
        "Staged rollouts by state: those that wait for a gate have its state.",
        &["state"],
    ),
    gauge(
        STUCK,
        "How long no cluster of a progressing rollout has entered another phase, of the rollout for which that is longest; soaking is none.",
        &[],
    ),
    gauge(
        BUDGET_USED,
        "The part of the failure budget that is used, of the rollout with the largest; 1 or more if it is exceeded.",
        &[],
    ),
    gauge(
        SOAK_REMAINING,
        "How long clusters have to be healthy yet until they are done, of the cluster for which that is longest.",
        &[],
    ),
];

/// The Rollouts of a leader term, and the token that ends it.
#[derive(Clone)]
struct ReportedRollouts {
    resolver: RevisionResolver,
    clock: Arc<dyn Clock>,
    ended: ShutdownToken,
}

static REPORTED: Mutex<Option<ReportedRollouts>> = Mutex::new(None);

/// Reports the Rollouts until the token is triggered.
pub(crate) fn report_rollouts(
    resolver: &RevisionResolver,
    clock: &Arc<dyn Clock>,
    ended: &ShutdownToken,
) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        flotilla_metrics::process_registry().register_callback(&DESCRIPTIONS, |readings| {
            let reported = REPORTED.lock().clone();
            if let Some(reported) = reported
                && !reported.ended.is_triggered()
            {
                reported.summarize().report(readings);
            }
        });
    });
    *REPORTED.lock() = Some(ReportedRollouts {
        resolver: resolver.clone(),
        clock: Arc::clone(clock),
        ended: ended.clone(),
    });
}

impl ReportedRollouts {
    fn summarize(&self) -> RolloutsSummary {
        let mut summary = RolloutsSummary::default();
        let now = self.clock.now();
        for object in self.resolver.rollouts.list() {
            let Ok(view) = object.decode::<Rollout>() else {
                continue;
            };
            if let Some(status) = &view.status {
                let policies = &self.resolver.policies;
                let policy = policies.by_id(object.namespace(), &status.policy);
                summary.add(status, policy.as_ref().map(|policy| &policy.spec), now);
            }
        }
        summary
    }
}

#[derive(Debug, Default, PartialEq)]
struct RolloutsSummary {
    by_state: BTreeMap<String, u64>,
    stuck_seconds: f64,
    budget_used: f64,
    soak_remaining: f64,
}

impl RolloutsSummary {
    fn add(&mut self, status: &RolloutStatus, policy: Option<&RolloutPolicySpec>, now: Timestamp) {
        *self.by_state.entry(status.state.clone()).or_default() += 1;
        if matches!(&*status.state, "Completed" | "RolledBack") {
            return;
        }
        let clusters = || status.stages.iter().flat_map(|stage| &stage.clusters);
        let in_phase = |phase: RolloutPhase| clusters().filter(move |c| c.phase == phase);
        if status.state == PROGRESSING && in_phase(RolloutPhase::Soaking).next().is_none() {
            let quiet = clusters().filter_map(|c| elapsed(c, now));
            let quiet = quiet.min_by(f64::total_cmp).unwrap_or_default();
            self.stuck_seconds = self.stuck_seconds.max(quiet);
        }
        let Some(policy) = policy else { return };
        let failed = clusters().filter(|c| c.counts_as_failed()).count();
        let budget = failure_budget(policy, status.budget_base);
        let used = failed as f64 / (budget as f64 + 1.0);
        self.budget_used = self.budget_used.max(used);
        for stage in &status.stages {
            let mut stages = policy.stages.iter();
            let gates = stages.find(|s| s.name == stage.name).map(|s| &s.gates);
            let soak = gates.and_then(|gates| duration::parse(&gates.healthy_for).ok());
            let soaking = stage.clusters.iter();
            for cluster in soaking.filter(|c| c.phase == RolloutPhase::Soaking) {
                let soak = soak.unwrap_or_default().as_secs_f64();
                let remaining = soak - elapsed(cluster, now).unwrap_or_default();
                self.soak_remaining = self.soak_remaining.max(remaining);
            }
        }
    }

    fn report(&self, readings: &mut CallbackMetricWriter<'_>) {
        for (state, count) in &self.by_state {
            readings.set(ROLLOUTS, &[state], *count as f64);
        }
        readings.set(STUCK, &[], self.stuck_seconds);
        readings.set(BUDGET_USED, &[], self.budget_used);
        readings.set(SOAK_REMAINING, &[], self.soak_remaining);
    }
}

/// For how many seconds a cluster has been in its phase.
fn elapsed(cluster: &ClusterRolloutStatus, now: Timestamp) -> Option<f64> {
    let since = time::parse(&cluster.since).ok()?;
    Some(now.duration_since(since).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn summary(rollouts: &[(&str, Value)], policy: Value) -> RolloutsSummary {
        let policy: RolloutPolicySpec = serde_json::from_value(policy).unwrap();
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut summary = RolloutsSummary::default();
        for (state, clusters) in rollouts {
            let status =
                json!({"state": state, "stages": [{"name": "first", "clusters": clusters}]});
            let status: RolloutStatus = serde_json::from_value(status).unwrap();
            summary.add(&status, Some(&policy), now);
        }
        summary
    }

    // proves: ROL-metrics
    #[test]
    fn the_slowest_rollouts_count() {
        let cluster = |phase: &str, minute: u32| json!({"name": "m", "phase": phase, "since": format!("2026-01-01T00:{minute:02}:00Z")});
        let policy = json!({"failureBudget": 1,
            "stages": [{"name": "first", "gates": {"healthyFor": "5m"}}]});
        let rollouts = [
            (
                "Completed",
                json!([cluster("Done", 0), cluster("Failed", 0)]),
            ),
            (
                "Progressing",
                json!([cluster("Updating", 4), cluster("Done", 1)]),
            ),
            (
                "Progressing",
                json!([cluster("Soaking", 8), cluster("Failed", 0)]),
            ),
            ("AwaitingApproval", json!([cluster("Blocked", 0)])),
        ];
        let expected = RolloutsSummary {
            by_state: [
                ("AwaitingApproval", 1),
                ("Completed", 1),
                ("Progressing", 2),
            ]
            .map(|(state, count)| (state.to_owned(), count))
            .into(),
            stuck_seconds: 360.0,
            budget_used: 0.5,
            soak_remaining: 180.0,
        };
        assert_eq!(summary(&rollouts, policy), expected);
        let failed = json!([cluster("Failed", 0)]);
        let exceeded = summary(&[("FailureBudgetExceeded", failed)], json!({}));
        assert!(exceeded.budget_used >= 1.0);
        assert_eq!(summary(&[], json!({})), RolloutsSummary::default());
    }
}
