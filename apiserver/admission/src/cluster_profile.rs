//! Validates updates of ClusterProfiles. Does no I/O.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::get;

/// A profile stays with its cluster manager, as the cluster inventory API has it.
pub(crate) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const MANAGER: &str = "/spec/clusterManager";
    match old {
        Some(old) if get(new, MANAGER) != get(old, MANAGER) => vec![FieldError::invalid(
            "spec.clusterManager",
            get(new, MANAGER),
            "ClusterManager is immutable",
        )],
        _ => Vec::new(),
    }
}
