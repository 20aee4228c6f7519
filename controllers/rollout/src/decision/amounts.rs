//! Resolves amounts that are a number or a percentage.

use karmada_api::rollout::RolloutPolicySpec;
use serde_json::Value;

/// How many clusters may fail; a percentage is of `base` clusters.
pub(crate) fn failure_budget(policy: &RolloutPolicySpec, base: i64) -> usize {
    let budget = policy.failure_budget.as_ref();
    let base = usize::try_from(base).unwrap_or(0);
    budget.map_or(0, |budget| amount_rounded_down(budget, base))
}

/// The amount of `total`; a percentage is rounded down.
fn amount_rounded_down(amount: &Value, total: usize) -> usize {
    match percent(amount) {
        Some(percent) => total.saturating_mul(percent) / 100,
        None => number(amount),
    }
}

/// The amount of `total`; a percentage is rounded up.
pub(super) fn amount_rounded_up(amount: &Value, total: usize) -> usize {
    match percent(amount) {
        Some(percent) => total.saturating_mul(percent).div_ceil(100),
        None => number(amount),
    }
}

fn percent(amount: &Value) -> Option<usize> {
    amount.as_str()?.strip_suffix('%')?.parse().ok()
}

fn number(amount: &Value) -> usize {
    let number = amount.as_u64().unwrap_or(0);
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_are_rounded() {
        for (amount, total, down, up) in [
            (json!(2), 1, 2, 2),
            (json!("50%"), 3, 1, 2),
            (json!("100%"), 3, 3, 3),
            (json!("1%"), 0, 0, 0),
            (json!("many"), 3, 0, 0),
        ] {
            assert_eq!(amount_rounded_down(&amount, total), down, "{amount}");
            assert_eq!(amount_rounded_up(&amount, total), up, "{amount}");
        }
    }
}
