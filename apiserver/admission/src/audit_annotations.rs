//! The audit annotations that admission adds to the events of a request.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Annotations by key. The first value of a key stays.
#[derive(Debug, Default)]
pub struct AuditAnnotations(Mutex<BTreeMap<String, String>>);

impl AuditAnnotations {
    pub fn add(&self, key: String, value: String) {
        self.0.lock().entry(key).or_insert(value);
    }

    /// The annotations so far.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.0.lock().clone()
    }
}
