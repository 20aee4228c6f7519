//! Computes the status of a CronFederatedHPA: the histories of its rules.

use jiff::Timestamp;
use karmada_api::cron_federated_hpa::{
    CronFederatedHpaRule, CronFederatedHpaStatus, ExecutionHistory, FailedExecution,
    SuccessfulExecution,
};
use machinery::time::rfc3339_seconds;

/// Executions that are kept when the rule does not say how many.
const DEFAULT_HISTORY_LIMIT: usize = 3;

/// One execution of a rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleExecution {
    /// The rule as it was executed.
    pub(crate) rule: CronFederatedHpaRule,
    pub(crate) scheduled: Timestamp,
    pub(crate) executed: Timestamp,
    /// The error's text.
    pub(crate) outcome: Result<(), String>,
}

/// The status after some executions. `rules` are those of the spec, each with its next time.
/// Histories of other rules are dropped.
pub(crate) fn updated_status(
    observed: &CronFederatedHpaStatus,
    rules: &[(&CronFederatedHpaRule, Option<Timestamp>)],
    executions: &[RuleExecution],
) -> CronFederatedHpaStatus {
    let mut histories: Vec<ExecutionHistory> = observed.execution_histories.clone();
    histories.retain(|history| rules.iter().any(|(rule, _)| rule.name == history.rule_name));
    for (rule, next) in rules {
        let at = histories
            .iter()
            .position(|history| history.rule_name == rule.name);
        let at = at.unwrap_or_else(|| {
            histories.push(ExecutionHistory {
                rule_name: rule.name.clone(),
                ..ExecutionHistory::default()
            });
            histories.len() - 1
        });
        let history = &mut histories[at];
        history.next_execution_time = next.map(rfc3339_seconds);
        for execution in executions.iter().filter(|e| e.rule.name == rule.name) {
            add_execution(history, execution);
        }
    }
    CronFederatedHpaStatus {
        execution_histories: histories,
    }
}

fn add_execution(history: &mut ExecutionHistory, execution: &RuleExecution) {
    let rule = &execution.rule;
    let schedule_time = rfc3339_seconds(execution.scheduled);
    let execution_time = rfc3339_seconds(execution.executed);
    match &execution.outcome {
        Ok(()) => {
            let latest = SuccessfulExecution {
                schedule_time,
                execution_time,
                applied_replicas: rule.target_replicas,
                applied_max_replicas: rule.target_max_replicas,
                applied_min_replicas: rule.target_min_replicas,
            };
            let limit = rule.successful_history_limit;
            prepend(&mut history.successful_executions, latest, limit);
        }
        Err(message) => {
            let latest = FailedExecution {
                schedule_time,
                execution_time,
                message: message.clone(),
            };
            prepend(
                &mut history.failed_executions,
                latest,
                rule.failed_history_limit,
            );
        }
    }
}

/// A limit of zero keeps nothing; Karmada's controller panics there.
fn prepend<T>(executions: &mut Vec<T>, latest: T, limit: Option<usize>) {
    executions.insert(0, latest);
    executions.truncate(limit.unwrap_or(DEFAULT_HISTORY_LIMIT));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, successful: Option<usize>, failed: Option<usize>) -> CronFederatedHpaRule {
        CronFederatedHpaRule {
            name: name.into(),
            target_replicas: Some(7),
            successful_history_limit: successful,
            failed_history_limit: failed,
            ..CronFederatedHpaRule::default()
        }
    }

    fn execution(rule: &CronFederatedHpaRule, minute: i64, error: Option<&str>) -> RuleExecution {
        let scheduled = Timestamp::from_second(minute * 60).unwrap();
        RuleExecution {
            rule: rule.clone(),
            scheduled,
            executed: scheduled + jiff::SignedDuration::from_secs(1),
            outcome: error.map_or(Ok(()), |text| Err(text.into())),
        }
    }

    // proves: CRH-history
    #[test]
    fn histories_keep_the_latest_executions() {
        for (limit, kept) in [(None, 3), (Some(1), 1), (Some(5), 5), (Some(0), 0)] {
            let rule = rule("r", limit, limit);
            let mut status = CronFederatedHpaStatus::default();
            for minute in 1..=6 {
                for error in [None, Some("no")] {
                    let executions = [execution(&rule, minute, error)];
                    status = updated_status(&status, &[(&rule, None)], &executions);
                }
            }
            let [history] = &status.execution_histories[..] else {
                panic!("{status:?}");
            };
            let latest: Vec<String> = (1..=6)
                .rev()
                .take(kept)
                .map(|minute| format!("1970-01-01T00:0{minute}:00Z"))
                .collect();
            let successful = history.successful_executions.iter();
            let times: Vec<&String> = successful.map(|e| &e.schedule_time).collect();
            assert_eq!(times, latest.iter().collect::<Vec<_>>());
            let failed = history.failed_executions.iter();
            let times: Vec<&String> = failed.map(|e| &e.schedule_time).collect();
            assert_eq!(times, latest.iter().collect::<Vec<_>>());
        }
    }

    // proves: CRH-history
    #[test]
    fn histories_are_those_of_the_rules() {
        let (kept, gone, added) = (
            rule("kept", None, None),
            rule("gone", None, None),
            rule("added", None, None),
        );
        let next = Timestamp::from_second(3600).unwrap();
        let before = updated_status(
            &CronFederatedHpaStatus::default(),
            &[(&gone, Some(next)), (&kept, Some(next))],
            &[execution(&kept, 1, None), execution(&gone, 1, None)],
        );
        let after = updated_status(&before, &[(&added, Some(next)), (&kept, None)], &[]);
        let actual = after.execution_histories.iter().map(|history| {
            let next = history.next_execution_time.as_deref();
            (
                &*history.rule_name,
                next,
                history.successful_executions.len(),
            )
        });
        let actual: Vec<_> = actual.collect();
        assert_eq!(
            actual,
            [
                ("kept", None, 1),
                ("added", Some("1970-01-01T01:00:00Z"), 0)
            ]
        );
        assert_eq!(
            after.execution_histories[0].successful_executions[0].applied_replicas,
            Some(7)
        );
    }
}
