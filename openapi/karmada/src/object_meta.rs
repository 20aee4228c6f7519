//! The metadata and the conditions that all of Karmada's kinds have.

use std::collections::BTreeMap;

use machinery::conditions::ConditionAccessor;
use serde::{Deserialize, Serialize};

/// The fields of `metadata` that [`machinery::ObjectMeta`] does not have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KarmadaObjectMeta {
    pub annotations: BTreeMap<String, String>,
    pub finalizers: Vec<String>,
    pub generation: i64,
}

/// `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub condition_type: String,
    pub status: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

impl ConditionAccessor for Condition {
    fn condition_type(&self) -> &str {
        &self.condition_type
    }

    fn status(&self) -> &str {
        &self.status
    }

    fn keep_transition_time(&mut self, old: &Self) {
        self.last_transition_time
            .clone_from(&old.last_transition_time);
    }
}

pub(super) fn is_zero(n: &i64) -> bool {
    *n == 0
}
