//! Validates Leases.

use machinery::FieldError;
use serde_json::Value;

use super::numbers::validate_non_negative;
use crate::unstructured::int;

pub(super) fn validate_lease(lease: &Value, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = int(lease, "/spec/leaseDurationSeconds")
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    validate_non_negative(lease, "spec.leaseTransitions", errors);
}
