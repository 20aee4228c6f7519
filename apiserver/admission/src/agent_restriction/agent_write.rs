//! A write as the rules for agents see it, and how their errors repeat its values.

use serde_json::Value;

use crate::attributes::AdmissionOperation;

/// The most characters of a value that an error repeats.
const MAX_SHOWN_CHARS: usize = 64;
/// A write, as the rules for agents see it.
pub(crate) struct AgentWrite<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) operation: AdmissionOperation,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Null for a deletion.
    pub(crate) new: &'a Value,
    /// Null for a creation.
    pub(crate) old: &'a Value,
}

/// A value of a request, as an error repeats it.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}
