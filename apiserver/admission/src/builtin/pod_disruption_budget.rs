//! Validates PodDisruptionBudget.

use machinery::FieldError;
use serde_json::Value;

use super::workloads::validate_int_or_percent;
use crate::cluster_affinity;
use crate::unstructured::{get, has, text};

const EVICTION_POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

pub(super) fn validate(budget: &Value, errors: &mut Vec<FieldError>) {
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
        let percent = value.as_str().and_then(|s| s.strip_suffix('%'));
        if percent
            .and_then(|s| s.parse::<u32>().ok())
            .is_some_and(|n| n > 100)
        {
            errors.push(FieldError::invalid(
                field,
                value,
                "must not be greater than 100%",
            ));
        }
    }
    let eviction = text(spec, "/unhealthyPodEvictionPolicy");
    if !eviction.is_empty() && !EVICTION_POLICIES.contains(&eviction) {
        errors.push(FieldError::not_supported(
            "spec.unhealthyPodEvictionPolicy",
            &eviction.into(),
            &EVICTION_POLICIES,
        ));
    }
    cluster_affinity::validate_label_selector("spec.selector", get(spec, "/selector"), errors);
}
