//! Objects and aggregations for tests of the rules.

use jiff::Timestamp;
use machinery::Object;
use serde_json::Value;

use super::rules::{CollectedStatus, NativeRules};

pub(crate) fn object(value: Value) -> Object {
    Object::from_value(&value).unwrap()
}

/// Aggregates the statuses of clusters a, b, c; null stands for a status not collected.
pub(crate) fn aggregate_statuses(
    rules: &dyn NativeRules,
    template: &Value,
    all: &[Value],
) -> Option<Value> {
    let items: Vec<CollectedStatus<'_>> = ["a", "b", "c"]
        .into_iter()
        .zip(all)
        .map(|(cluster, status)| {
            CollectedStatus::new(cluster, (!status.is_null()).then_some(status))
        })
        .collect();
    let now = Timestamp::UNIX_EPOCH;
    rules
        .aggregate_status(&object(template.clone()), &items, now)
        .unwrap()
}
