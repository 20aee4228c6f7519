//! Makes the aggregated conditions of a template such that clients can wait for them: one condition
//! of each type, true only where every cluster reports it, with a time that moves with its status.

use serde_json::Value;

use super::collected_statuses::condition_is;
use super::json_map::{list_at, set_field, string_at, value_at};
use crate::native::CollectedStatus;
use crate::native::conditions::{STATUS_NOT_REPORTED, bounded_message, waiting_for};

/// Conditions that no template has while a cluster has not reported.
const READINESS: [&str; 2] = ["Ready", "Available"];
const TIMES: [&str; 3] = ["lastTransitionTime", "lastUpdateTime", "lastProbeTime"];

/// Settles the conditions that a rule has set in `result`. Conditions without a type stay as they
/// are.
pub(super) fn settle_conditions(
    result: &mut Value,
    template: &Value,
    items: &[CollectedStatus<'_>],
) {
    let Some(Value::Array(all)) = result.pointer_mut("/status/conditions") else {
        return;
    };
    let mut settled = merge_types(std::mem::take(all));
    let is_silent =
        |item: &&CollectedStatus<'_>| !item.leaving && item.status.is_none_or(Value::is_null);
    let silent = items.iter().filter(is_silent).map(|item| item.cluster);
    if let Some(message) = waiting_for(silent) {
        for condition in &mut settled {
            if READINESS
                .iter()
                .any(|kind| condition_is(condition, kind, "True"))
            {
                set_field(condition, "status", "False".into());
                set_field(condition, "reason", STATUS_NOT_REPORTED.into());
                set_field(condition, "message", message.clone().into());
            }
        }
    }
    for condition in &mut settled {
        keep_times(condition, list_at(template, "/status/conditions"));
    }
    *all = settled;
}

/// Keeps one condition of each type: the first of those that are furthest from ready, with the
/// messages of the others appended.
fn merge_types(all: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for condition in all {
        let Some(kind) = string_at(&condition, "/type") else {
            merged.push(condition);
            continue;
        };
        let same_type = |other: &&mut Value| string_at(other, "/type") == Some(kind);
        match merged.iter_mut().find(same_type) {
            None => merged.push(condition),
            Some(kept) => {
                let mut condition = condition;
                if distance_from_ready(&condition) > distance_from_ready(kept) {
                    std::mem::swap(kept, &mut condition);
                }
                append_message(kept, &condition);
            }
        }
    }
    merged
}

fn append_message(condition: &mut Value, other: &Value) {
    let [own, added] = [&*condition, other].map(|c| string_at(c, "/message").unwrap_or(""));
    if added.is_empty() || own == added {
        return;
    }
    let separator = if own.is_empty() { "" } else { ", " };
    let message = format!("{own}{separator}{added}");
    set_field(condition, "message", bounded_message(&message).into());
}

/// How far a condition is from saying that the object is ready.
fn distance_from_ready(condition: &Value) -> u8 {
    let kind = string_at(condition, "/type").unwrap_or("");
    let tells_failure = kind.contains("Fail")
        || kind.contains("Error")
        || matches!(kind, "Stalled" | "Reconciling" | "Suspended" | "Suspending");
    match (string_at(condition, "/status"), tells_failure) {
        (Some("True"), false) | (Some("False"), true) => 0,
        (Some("True"), true) | (Some("False"), false) => 2,
        _ => 1,
    }
}

/// A condition that keeps its status keeps its `lastTransitionTime`; one that says the same keeps
/// all times.
fn keep_times(condition: &mut Value, old: &[Value]) {
    let status = string_at(condition, "/status").unwrap_or("").to_owned();
    let Some(kind) = string_at(condition, "/type").map(str::to_owned) else {
        return;
    };
    let Some(old) = old.iter().find(|old| condition_is(old, &kind, &status)) else {
        return;
    };
    let same = ["/reason", "/message"]
        .iter()
        .all(|text| value_at(old, text) == value_at(condition, text));
    for time in &TIMES[..if same { TIMES.len() } else { 1 }] {
        if let (Some(_), Some(before)) = (condition.get(*time), old.get(*time)) {
            let before = before.clone();
            set_field(condition, time, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(kind: &str, status: &str, message: &str, time: &str) -> Value {
        json!({"type": kind, "status": status, "message": message, "lastTransitionTime": time})
    }

    fn settled(new: Value, old: Value, items: &[CollectedStatus<'_>]) -> Value {
        let template = json!({"status": {"conditions": old}});
        let mut result = json!({"status": {"conditions": new}});
        settle_conditions(&mut result, &template, items);
        result["status"]["conditions"].take()
    }

    #[test]
    fn one_condition_of_a_type_stays_the_one_furthest_from_ready() {
        for (statuses, expected) in [
            (["True", "False", "Unknown"], "False"),
            (["True", "Unknown", "True"], "Unknown"),
            (["True", "True", "True"], "True"),
        ] {
            let all = statuses.map(|status| condition("Ready", status, status, "t"));
            let merged = settled(json!(all), json!([]), &[]);
            assert_eq!(merged.as_array().unwrap().len(), 1);
            assert_eq!(merged[0]["status"], expected, "{statuses:?}");
        }
        let stalled = ["False", "True"].map(|status| condition("Stalled", status, "", "t"));
        assert_eq!(settled(json!(stalled), json!([]), &[])[0]["status"], "True");
        let untyped = json!([{"status": "Running"}, {"status": "Running"}]);
        assert_eq!(settled(untyped.clone(), json!([]), &[]), untyped);
    }

    #[test]
    fn nothing_is_ready_while_a_cluster_has_not_reported() {
        let ready = json!([condition("Ready", "True", "a=fine", "t1")]);
        let reported = json!({});
        let items = [
            CollectedStatus::new("a", Some(&reported)),
            CollectedStatus::new("b", None),
        ];
        let waiting = settled(ready.clone(), json!([]), &items);
        assert_eq!(waiting[0]["status"], "False");
        let message = "waiting for the status in clusters: b";
        assert_eq!(waiting[0]["message"], message);
        assert_eq!(settled(ready.clone(), json!([]), &items[..1]), ready);
    }

    #[test]
    fn times_stay_with_the_status() {
        let old = json!([condition("Ready", "True", "a", "t1")]);
        let time_of = |status: &str| {
            let new = json!([condition("Ready", status, "a", "t2")]);
            settled(new, old.clone(), &[])[0]["lastTransitionTime"].take()
        };
        assert_eq!(time_of("True"), "t1");
        assert_eq!(time_of("False"), "t2");
    }
}
