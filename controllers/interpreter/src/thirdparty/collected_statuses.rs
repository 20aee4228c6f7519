//! The statuses that the clusters reported, in order, and the merging of conditions.

use serde_json::Value;

use super::json_map::{
    Error, json_number, list_at, non_empty_string_at, number_or_zero, set_field, string_at,
    value_at,
};
use crate::native::CollectedStatus;

pub(super) struct CollectedStatuses<'a>(pub(super) &'a [CollectedStatus<'a>]);

impl<'a> CollectedStatuses<'a> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The status of each cluster; `None` for one that reports none.
    pub(super) fn statuses(&self) -> impl DoubleEndedIterator<Item = Option<&'a Value>> {
        let status = |item: &CollectedStatus<'a>| item.status.filter(|s| !s.is_null());
        self.0.iter().map(status)
    }

    /// The clusters that report a status.
    pub(super) fn reported(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let clusters = self.0.iter().map(|item| item.cluster);
        clusters
            .zip(self.statuses())
            .filter_map(|(cluster, status)| Some((cluster, status?)))
    }

    pub(super) fn first(&self, pointer: &str) -> Option<&'a Value> {
        self.statuses()
            .flatten()
            .find_map(|status| value_at(status, pointer))
    }

    pub(super) fn last(&self, pointer: &str) -> Option<&'a Value> {
        let mut latest_first = self.statuses().rev().flatten();
        latest_first.find_map(|status| value_at(status, pointer))
    }

    /// The last value that is neither absent nor an empty string.
    pub(super) fn last_non_empty(&self, pointer: &str) -> Option<&'a Value> {
        let mut latest_first = self.statuses().rev().flatten();
        latest_first.find_map(|status| value_at(status, pointer).filter(|value| *value != ""))
    }

    pub(super) fn sum(&self, pointer: &str) -> Result<Value, Error> {
        let each = self.statuses().flatten();
        let sum: Result<f64, Error> = each.map(|status| number_or_zero(status, pointer)).sum();
        Ok(json_number(sum?))
    }

    /// The elements of the lists of all clusters.
    pub(super) fn concatenated(&self, pointer: &str) -> Vec<Value> {
        let lists = self.reported();
        lists
            .flat_map(|(_, status)| list_at(status, pointer))
            .cloned()
            .collect()
    }

    /// Times in RFC 3339 and UTC: comparing the texts compares the times.
    pub(super) fn times(&self, pointer: &str) -> impl Iterator<Item = &'a str> {
        let each = self.statuses().flatten();
        each.filter_map(move |status| string_at(status, pointer))
    }

    pub(super) fn latest(&self, pointer: &str) -> Option<Value> {
        self.times(pointer).max().map(Value::from)
    }

    /// The status with the highest rank, the first among equals. A status without a rank is
    /// ignored.
    pub(super) fn highest_ranked<T: PartialOrd>(
        &self,
        rank: impl Fn(&'a Value) -> Result<Option<T>, Error>,
    ) -> Result<Option<&'a Value>, Error> {
        let mut worst: Option<(T, &Value)> = None;
        for status in self.statuses().flatten() {
            let Some(rank) = rank(status)? else { continue };
            if worst.as_ref().is_none_or(|(so_far, _)| rank > *so_far) {
                worst = Some((rank, status));
            }
        }
        Ok(worst.map(|(_, status)| status))
    }
}

/// Whether a condition has this type and this status.
pub(super) fn condition_is(condition: &Value, kind: &str, status: &str) -> bool {
    string_at(condition, "/type") == Some(kind) && string_at(condition, "/status") == Some(status)
}

/// Whether the status of an object has a condition of this type with status True and one of these
/// reasons (any reason if the list is empty).
pub(super) fn has_true_condition(object: &Value, kind: &str, reasons: &[&str]) -> bool {
    let for_reason = |condition: &Value| {
        let reason = non_empty_string_at(condition, "/reason");
        reasons.is_empty() || reason.is_some_and(|reason| reasons.contains(&reason))
    };
    let mut conditions = list_at(object, "/status/conditions").iter();
    conditions.any(|condition| condition_is(condition, kind, "True") && for_reason(condition))
}

/// Merges the conditions of all clusters that have the same type, status and reason; the messages
/// are prefixed with the names of the clusters.
pub(super) fn merged_conditions(items: &CollectedStatuses<'_>) -> Result<Value, Error> {
    let mut merged: Vec<Value> = Vec::new();
    for (cluster, status) in items.reported() {
        for condition in list_at(status, "/conditions") {
            let message = string_at(condition, "/message").ok_or_else(|| Error::Field {
                path: format!("status.conditions of cluster {cluster}"),
                expected: "a message in each of them",
            })?;
            let message = format!("{cluster}={message}");
            let agrees = |other: &&mut Value| {
                ["/type", "/status", "/reason"]
                    .iter()
                    .all(|pointer| value_at(other, pointer) == value_at(condition, pointer))
            };
            match merged.iter_mut().find(agrees) {
                Some(same) => {
                    let all = format!("{}, {message}", string_at(same, "/message").unwrap_or(""));
                    set_field(same, "message", all.into());
                }
                None => {
                    let mut condition = condition.clone();
                    set_field(&mut condition, "message", message.into());
                    merged.push(condition);
                }
            }
        }
    }
    Ok(merged.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_statuses<T>(statuses: &[Value], f: impl FnOnce(&CollectedStatuses<'_>) -> T) -> T {
        let names = ["a", "b", "c", "d"];
        let items: Vec<CollectedStatus<'_>> = names
            .into_iter()
            .zip(statuses)
            .map(|(cluster, status)| CollectedStatus::new(cluster, Some(status)))
            .collect();
        f(&CollectedStatuses(&items))
    }

    #[test]
    fn clusters_without_a_status_are_ignored() {
        let all = [
            json!({"n": 1, "t": "x"}),
            Value::Null,
            json!({"n": 2, "t": ""}),
            json!({}),
        ];
        with_statuses(&all, |items| {
            assert_eq!(items.len(), 4);
            assert_eq!(items.reported().count(), 3);
            assert_eq!(items.sum("/n").unwrap(), json!(3));
            assert_eq!(items.first("/n"), Some(&json!(1)));
            assert_eq!(items.last("/n"), Some(&json!(2)));
            assert_eq!(items.last("/t"), Some(&json!("")));
            assert_eq!(items.last_non_empty("/t"), Some(&json!("x")));
            assert_eq!(items.last("/none"), None);
        });
        with_statuses(&[json!({"n": "many"})], |items| {
            assert_eq!(
                items.sum("/n").unwrap_err().to_string(),
                "n: a number is needed"
            );
        });
    }

    // proves: CRD-conditions
    #[test]
    fn conditions_are_merged_where_they_agree() {
        let one = |status: &str, reason: &str, message: &str, at: i64| json!({"type": "Ready", "status": status, "reason": reason, "message": message, "at": at});
        let all = [
            json!({"conditions": [one("True", "Ok", "fine", 1), one("False", "Ok", "odd", 2)]}),
            Value::Null,
            json!({"conditions": [one("True", "Other", "", 3), one("True", "Ok", "good", 4)]}),
        ];
        with_statuses(&all, |items| {
            assert_eq!(
                merged_conditions(items).unwrap(),
                json!([
                    one("True", "Ok", "a=fine, c=good", 1),
                    one("False", "Ok", "a=odd", 2),
                    one("True", "Other", "c=", 3)
                ])
            );
        });
        with_statuses(&[json!({"conditions": [{"type": "Ready"}]})], |items| {
            let error = merged_conditions(items).unwrap_err().to_string();
            assert!(error.contains("cluster a"), "{error}");
        });
    }
}
