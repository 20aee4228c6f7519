//! Native rules of PodDisruptionBudget and HorizontalPodAutoscaler, whose status consists of counters
//! that are summed over clusters.

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::native::conditions::{
    ConditionTimes, MemberCondition, TemplateCondition, bounded_message, bounded_reason,
    conditions_of, conjunction, reported_conditions, set_conditions,
};
use crate::native::{
    CollectedStatus, Error, NativeRules, collected_counter, counter, parse_collected_status,
    parse_object,
};

pub(crate) struct NativePodDisruptionBudgetRules;
pub(crate) struct NativeHorizontalPodAutoscalerRules;

const BUDGET_COUNTERS: [&str; 4] = [
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
];

/// The conditions of an autoscaler that hold where they hold in every cluster. An object of
/// `autoscaling/v1` has no conditions.
const AUTOSCALER_CONDITIONS: [&str; 2] = ["AbleToScale", "ScalingActive"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PdbOrHpaWithStatus {
    #[serde(default)]
    api_version: String,
    status: Option<Map<String, Value>>,
}

fn sum_counter<'a>(all: impl Iterator<Item = &'a Map<String, Value>>, field: &str) -> i64 {
    all.map(|status| counter(status, field))
        .fold(0, i64::saturating_add)
}

/// The statuses that clusters reported, with the names of the clusters.
type ReportedStatuses<'a> = Vec<(&'a str, Map<String, Value>)>;

/// Fails when a counter is not an integer; the error names the cluster.
fn parse_reported_statuses<'a>(
    items: &[CollectedStatus<'a>],
    counters: &[&str],
) -> Result<ReportedStatuses<'a>, Error> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        if let Some(status) = item.status {
            let status = parse_collected_status(item, status)?;
            for counter in counters {
                collected_counter(item, &status, counter)?;
            }
            all.push((item.cluster, status));
        }
    }
    Ok(all)
}

/// The summed counters of a budget. The Go type encodes them even when they are zero.
fn budget_status<'a>(
    all: impl Iterator<Item = &'a Map<String, Value>> + Clone,
) -> Map<String, Value> {
    let summed = |field: &str| (field.to_owned(), sum_counter(all.clone(), field).into());
    BUDGET_COUNTERS.into_iter().map(summed).collect()
}

fn disrupted_pods(status: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let pods = status.get("disruptedPods").and_then(Value::as_object);
    pods.into_iter().flatten()
}

impl NativeRules for NativePodDisruptionBudgetRules {
    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let budget: PdbOrHpaWithStatus = parse_object(observed, "health")?;
        let status = budget.status.unwrap_or_default();
        let healthy = counter(&status, "currentHealthy") >= counter(&status, "desiredHealthy");
        Ok(Some(healthy))
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        let observed: PdbOrHpaWithStatus = parse_object(observed, "status")?;
        Ok(observed.status.map(|status| {
            let mut out = budget_status(std::iter::once(&status));
            let pods: Map<_, _> = disrupted_pods(&status)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if !pods.is_empty() {
                out.insert("disruptedPods".into(), pods.into());
            }
            Value::Object(out)
        }))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let template: PdbOrHpaWithStatus = parse_object(template, "status")?;
        let all = parse_reported_statuses(items, &BUDGET_COUNTERS)?;
        let mut out = budget_status(all.iter().map(|(_, status)| status));
        let mut pods = Map::new();
        for (cluster, status) in &all {
            // Pods in different clusters may have the same name.
            let named = disrupted_pods(status)
                .map(|(pod, time)| (format!("{cluster}/{pod}"), time.clone()));
            pods.extend(named);
        }
        if !pods.is_empty() {
            out.insert("disruptedPods".into(), pods.into());
        }
        let condition = disruption_allowed(counter(&out, "disruptionsAllowed"));
        let old = conditions_of(template.status.as_ref());
        set_conditions(&mut out, old, vec![condition], &[], transition_time(now));
        Ok(Some(Value::Object(out)))
    }
}

fn transition_time(now: Timestamp) -> ConditionTimes {
    ConditionTimes {
        now,
        has_update_time: false,
    }
}

/// Says what the summed counter says.
fn disruption_allowed(allowed: i64) -> TemplateCondition {
    let (status, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let message = format!("{allowed} disruptions are allowed in all clusters");
    TemplateCondition::new("DisruptionAllowed", status, reason, message)
}

/// The conditions of an autoscaler as they are collected: reasons and messages change often, and
/// count only where the condition does not hold.
fn reflected_autoscaler_conditions(status: &Map<String, Value>) -> Vec<Value> {
    let reflected = AUTOSCALER_CONDITIONS.into_iter().filter_map(|kind| {
        let condition = MemberCondition::find(status, kind)?;
        if condition.is_true() {
            return Some(json!({"type": kind, "status": "True"}));
        }
        Some(json!({"type": kind, "status": condition.status_word(),
            "reason": bounded_reason(condition.reason, "Unknown"),
            "message": bounded_message(condition.message)}))
    });
    reflected.collect()
}

fn autoscaler_conditions(items: &[CollectedStatus<'_>]) -> Vec<TemplateCondition> {
    let conditions = AUTOSCALER_CONDITIONS.into_iter();
    conditions
        .filter_map(|kind| conjunction(kind, &reported_conditions(items, kind)))
        .collect()
}

/// Encoded like the Go type: `currentMetrics` is present (null) although it is not collected.
fn autoscaler_status<'a>(
    all: impl Iterator<Item = &'a Map<String, Value>> + Clone,
) -> Map<String, Value> {
    let mut out = Map::new();
    let current = sum_counter(all.clone(), "currentReplicas");
    if current != 0 {
        out.insert("currentReplicas".into(), current.into());
    }
    out.insert(
        "desiredReplicas".into(),
        sum_counter(all, "desiredReplicas").into(),
    );
    out.insert("currentMetrics".into(), Value::Null);
    out
}

impl NativeRules for NativeHorizontalPodAutoscalerRules {
    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        let observed: PdbOrHpaWithStatus = parse_object(observed, "status")?;
        Ok(observed.status.map(|status| {
            let mut reflected = autoscaler_status(std::iter::once(&status));
            let conditions = reflected_autoscaler_conditions(&status);
            if !conditions.is_empty() {
                reflected.insert("conditions".into(), conditions.into());
            }
            Value::Object(reflected)
        }))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let template: PdbOrHpaWithStatus = parse_object(template, "status")?;
        let all = parse_reported_statuses(items, &["currentReplicas", "desiredReplicas"])?;
        let mut out = autoscaler_status(all.iter().map(|(_, status)| status));
        if template.api_version != "autoscaling/v1" {
            let conditions = autoscaler_conditions(items);
            let old = conditions_of(template.status.as_ref());
            let times = transition_time(now);
            set_conditions(&mut out, old, conditions, &AUTOSCALER_CONDITIONS, times);
        }
        Ok(Some(Value::Object(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::{aggregate_statuses, object};
    use serde_json::json;

    fn budget_fixture(current: i64, desired: i64, pods: Value) -> Value {
        json!({"disruptionsAllowed": 1, "currentHealthy": current, "desiredHealthy": desired,
               "expectedPods": 3, "disruptedPods": pods})
    }

    // proves: NAT-budget
    #[test]
    fn budgets_add_up() {
        let bare = json!({"metadata": {"name": "b"}});
        let observed = json!({"metadata": {"name": "b"}, "status": {"observedGeneration": 2,
            "currentHealthy": 2, "desiredHealthy": 2, "conditions": [], "disruptedPods": {}}});
        assert_eq!(
            NativePodDisruptionBudgetRules
                .reflect_status(&object(observed.clone()))
                .unwrap(),
            Some(
                json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 0})
            )
        );
        assert_eq!(
            NativePodDisruptionBudgetRules
                .reflect_status(&object(bare.clone()))
                .unwrap(),
            None
        );
        assert_eq!(
            NativePodDisruptionBudgetRules
                .interpret_health(&object(observed))
                .unwrap(),
            Some(true)
        );
        let short = json!({"metadata": {"name": "b"}, "status": {"currentHealthy": 1, "desiredHealthy": 2}});
        assert_eq!(
            NativePodDisruptionBudgetRules
                .interpret_health(&object(short))
                .unwrap(),
            Some(false)
        );
        let items = [
            budget_fixture(2, 1, json!({"p": "t1"})),
            Value::Null,
            budget_fixture(3, 2, json!({"p": "t2"})),
        ];
        let counters = |items: &[Value]| {
            let mut status = aggregate_statuses(&NativePodDisruptionBudgetRules, &bare, items)?;
            status.as_object_mut()?.remove("conditions");
            Some(status)
        };
        assert_eq!(
            counters(&items),
            Some(
                json!({"disruptionsAllowed": 2, "currentHealthy": 5, "desiredHealthy": 3, "expectedPods": 6,
                "disruptedPods": {"a/p": "t1", "c/p": "t2"}})
            )
        );
        assert_eq!(
            counters(&[]),
            Some(
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
            )
        );
    }

    // proves: NAT-hpa
    #[test]
    fn replicas_of_autoscalers_add_up() {
        let observed = json!({"metadata": {"name": "h"}, "status": {"currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [{"type": "Resource"}], "conditions": [{"type": "ScalingLimited", "status": "True"}]}});
        let one = NativeHorizontalPodAutoscalerRules
            .reflect_status(&object(observed))
            .unwrap()
            .unwrap();
        assert_eq!(
            one,
            json!({"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": null})
        );
        let bare = json!({"metadata": {"name": "h"}});
        assert_eq!(
            NativeHorizontalPodAutoscalerRules
                .reflect_status(&object(bare.clone()))
                .unwrap(),
            None
        );
        assert_eq!(
            aggregate_statuses(
                &NativeHorizontalPodAutoscalerRules,
                &bare,
                &[one.clone(), Value::Null, one]
            ),
            Some(json!({"currentReplicas": 4, "desiredReplicas": 6, "currentMetrics": null}))
        );
        assert_eq!(
            aggregate_statuses(&NativeHorizontalPodAutoscalerRules, &bare, &[]),
            Some(json!({"desiredReplicas": 0, "currentMetrics": null}))
        );
    }
}
