//! Validates PodDisruptionBudget.

use machinery::FieldError;
use serde_json::Value;

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::numbers::{validate_at_most_100_percent, validate_int_or_percent};
use crate::unstructured::{get, has};

const EVICTION_POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

pub(super) fn validate(budget: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(budget, "/spec");
    if has(spec, "/minAvailable") && has(spec, "/maxUnavailable") {
        errors.push(FieldError::invalid(
            "spec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for side in ["minAvailable", "maxUnavailable"] {
        let (field, value) = (format!("spec.{side}"), get(spec, &format!("/{side}")));
        validate_int_or_percent(&field, value, errors);
        validate_at_most_100_percent(&field, value, errors);
    }
    let values = SelectorValues::of_old(old.map(|old| get(old, "/spec/selector")));
    validate_label_selector("spec.selector", get(spec, "/selector"), values, errors);
    let eviction = get(spec, "/unhealthyPodEvictionPolicy");
    if !eviction.is_null()
        && !EVICTION_POLICIES
            .iter()
            .any(|supported_policy| eviction == supported_policy)
    {
        errors.push(FieldError::not_supported(
            "spec.unhealthyPodEvictionPolicy",
            eviction,
            &EVICTION_POLICIES,
        ));
    }
}
