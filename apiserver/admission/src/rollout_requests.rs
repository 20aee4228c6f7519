//! Validates the requests of a Rollout. Does no I/O.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::get;

/// How much greater a number may be than the last one; enough for a time in milliseconds. The
/// greatest number would be the last request for good.
const MAX_STEP: i64 = 10_000_000_000_000;

/// The fields with a number, and their pointers.
const NUMBERS: [(&str, &str); 2] = [
    ("spec.retry.number", "/spec/retry/number"),
    ("spec.abort.number", "/spec/abort/number"),
];

/// The numbers of a retry and of an abort are near those that the Rollout has had.
pub(crate) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let number = |object: &Value, path: &str| get(object, path).as_i64().unwrap_or(0);
    let last = old.map_or(0, |old| {
        let numbers = NUMBERS.map(|(_, path)| number(old, path));
        let numbers = numbers
            .into_iter()
            .chain([number(old, "/status/handledRequest")]);
        numbers.max().unwrap_or(0)
    });
    let mut errors = Vec::new();
    for (field, path) in NUMBERS {
        if number(new, path).saturating_sub(last) > MAX_STEP {
            let detail = format!("must be at most {MAX_STEP} greater than the last one, {last}");
            errors.push(FieldError::invalid(field, get(new, path), detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-request-number
    #[test]
    fn a_number_leaves_room_for_later_ones() {
        let rollout = |retry: i64, abort: i64, handled: i64| {
            json!({"spec": {"retry": {"number": retry}, "abort": {"number": abort}},
                "status": {"handledRequest": handled}})
        };
        for (old, new, expected) in [
            (None, rollout(1, 0, 0), vec![]),
            (None, rollout(MAX_STEP, 0, 0), vec![]),
            (None, rollout(0, i64::MAX, 0), vec!["spec.abort.number"]),
            (Some(rollout(1, 2, 2)), rollout(3, 2, 2), vec![]),
            (
                Some(rollout(1, 2, 2)),
                rollout(i64::MAX, 2, 2),
                vec!["spec.retry.number"],
            ),
            (Some(rollout(1, 2, 7)), rollout(MAX_STEP + 7, 2, 7), vec![]),
            // One that is there already may stay.
            (
                Some(rollout(i64::MAX, 0, 0)),
                rollout(i64::MAX, 0, 0),
                vec![],
            ),
        ] {
            let errors = validate(&new, old.as_ref());
            let fields: Vec<String> = errors.iter().map(|error| error.field.clone()).collect();
            assert_eq!(fields, expected, "{new}");
        }
    }
}
