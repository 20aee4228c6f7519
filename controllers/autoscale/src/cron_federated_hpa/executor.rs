//! The executor of one CronFederatedHPA: its rules with their next times, and the executions that
//! its status lacks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use karmada_api::CronSchedule;
use karmada_api::cron_federated_hpa::{
    CronFederatedHpaRule, CronFederatedHpaSpec, ScaleTargetReference,
};

use super::history::RuleExecution;

/// Executions that wait for their status to be written, at most.
const MAX_UNRECORDED: usize = 64;

/// A rule that is not suspended.
#[derive(Debug)]
struct ScheduledRule {
    rule: CronFederatedHpaRule,
    schedule: CronSchedule,
    /// None: never.
    next: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct CronExecutor {
    uid: String,
    target: ScaleTargetReference,
    rules: BTreeMap<String, ScheduledRule>,
    unrecorded: Vec<RuleExecution>,
}

impl CronExecutor {
    /// Takes over the rules of the spec. A rule that has not changed keeps its next time, unless the
    /// target has changed. Returns the errors of schedules.
    pub(crate) fn sync(
        &mut self,
        uid: &str,
        spec: &CronFederatedHpaSpec,
        now: Timestamp,
    ) -> Vec<String> {
        if self.uid != uid || self.target != spec.scale_target_ref {
            self.rules.clear();
            if self.uid != uid {
                self.unrecorded.clear();
            }
            self.uid = uid.to_owned();
            self.target = spec.scale_target_ref.clone();
        }
        self.rules
            .retain(|_, scheduled| spec.rules.contains(&scheduled.rule));
        let mut errors = Vec::new();
        for rule in spec.rules.iter().filter(|rule| rule.suspend != Some(true)) {
            if self.rules.contains_key(&rule.name) {
                continue;
            }
            match CronSchedule::parse(&rule.schedule, rule.time_zone.as_deref()) {
                Ok(schedule) => {
                    let next = schedule.next_after(now);
                    let rule = rule.clone();
                    let scheduled = ScheduledRule {
                        rule,
                        schedule,
                        next,
                    };
                    self.rules.insert(scheduled.rule.name.clone(), scheduled);
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// The rules that are due at `now`, with the times for which they were scheduled. Each is
    /// returned once, however many of its times have passed, and gets its next time after `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<(CronFederatedHpaRule, Timestamp)> {
        let mut due = Vec::new();
        for scheduled in self.rules.values_mut() {
            if let Some(at) = scheduled.next.filter(|at| *at <= now) {
                scheduled.next = scheduled.schedule.next_after(now);
                due.push((scheduled.rule.clone(), at));
            }
        }
        due
    }

    /// The next time of a rule; none for one that is suspended or never due.
    pub(crate) fn next_time(&self, rule: &str) -> Option<Timestamp> {
        self.rules.get(rule)?.next
    }

    /// The next time of any rule.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.rules.values().filter_map(|rule| rule.next).min()
    }

    /// Keeps an execution until the status has it.
    pub(crate) fn record(&mut self, execution: RuleExecution) {
        if self.unrecorded.len() == MAX_UNRECORDED {
            self.unrecorded.remove(0);
        }
        self.unrecorded.push(execution);
    }

    pub(crate) fn unrecorded(&self) -> &[RuleExecution] {
        &self.unrecorded
    }

    /// The status has the first `count` executions.
    pub(crate) fn recorded(&mut self, count: usize) {
        self.unrecorded.drain(..count.min(self.unrecorded.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn rule(name: &str, schedule: &str) -> CronFederatedHpaRule {
        CronFederatedHpaRule {
            name: name.into(),
            schedule: schedule.into(),
            time_zone: Some("UTC".into()),
            ..CronFederatedHpaRule::default()
        }
    }

    fn spec(rules: &[CronFederatedHpaRule]) -> CronFederatedHpaSpec {
        CronFederatedHpaSpec {
            rules: rules.to_vec(),
            ..CronFederatedHpaSpec::default()
        }
    }

    // proves: CRH-once
    #[test]
    fn missed_times_count_once() {
        let mut executor = CronExecutor::default();
        let errors = executor.sync(
            "u",
            &spec(&[rule("r", "*/5 * * * *")]),
            at("2026-01-01T00:01:00Z"),
        );
        assert!(errors.is_empty());
        assert!(executor.take_due(at("2026-01-01T00:04:59Z")).is_empty());
        let due = executor.take_due(at("2026-01-01T00:17:00Z"));
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].1, at("2026-01-01T00:05:00Z"));
        assert_eq!(executor.earliest(), Some(at("2026-01-01T00:20:00Z")));
        assert!(executor.take_due(at("2026-01-01T00:17:00Z")).is_empty());
    }

    // proves: CRH-restart
    #[test]
    fn only_changed_rules_start_again() {
        let (start, later) = (at("2026-01-01T00:01:00Z"), at("2026-01-01T00:07:00Z"));
        let due = at("2026-01-01T00:05:00Z");
        let again = at("2026-01-01T00:10:00Z");
        let five = rule("r", "*/5 * * * *");
        let changed = CronFederatedHpaRule {
            target_replicas: Some(1),
            ..five.clone()
        };
        let suspended = CronFederatedHpaRule {
            suspend: Some(true),
            ..five.clone()
        };
        let moved = CronFederatedHpaSpec {
            scale_target_ref: ScaleTargetReference {
                name: "other".into(),
                ..ScaleTargetReference::default()
            },
            ..spec(std::slice::from_ref(&five))
        };
        for (uid, spec_after, expected) in [
            ("u", spec(std::slice::from_ref(&five)), Some(due)),
            (
                "u",
                spec(&[five.clone(), rule("s", "*/5 * * * *")]),
                Some(due),
            ),
            ("u", spec(&[changed]), Some(again)),
            ("u", spec(&[suspended]), None),
            ("u", spec(&[]), None),
            ("u", moved, Some(again)),
            ("v", spec(std::slice::from_ref(&five)), Some(again)),
        ] {
            let mut executor = CronExecutor::default();
            executor.sync("u", &spec(std::slice::from_ref(&five)), start);
            executor.sync(uid, &spec_after, later);
            assert_eq!(executor.next_time("r"), expected, "{uid} {spec_after:?}");
        }
    }

    #[test]
    fn errors_of_one_schedule_do_not_stop_the_others() {
        let mut executor = CronExecutor::default();
        let rules = [rule("bad", "x"), rule("good", "0 * * * *")];
        let errors = executor.sync("u", &spec(&rules), at("2026-01-01T00:01:00Z"));
        assert_eq!(errors.len(), 1);
        assert_eq!(executor.earliest(), Some(at("2026-01-01T01:00:00Z")));
    }
}
