//! Compares a binding with its updated form.

use serde_json::Value;

/// How an existing binding differs from the desired one.
#[derive(Debug, PartialEq)]
pub enum BindingDiff {
    Unchanged,
    /// Only the resourceVersion of the object that the binding refers to differs.
    ObjectVersion(Value),
    Changed(Value),
}

impl BindingDiff {
    /// Compares the existing binding with its desired form, which the difference then holds.
    pub fn between(existing: &Value, mut desired: Value) -> Self {
        if desired == *existing {
            return Self::Unchanged;
        }
        let version = "/spec/resource/resourceVersion";
        let now = desired.pointer(version).cloned();
        if let Some(slot) = desired.pointer_mut(version) {
            *slot = existing.pointer(version).cloned().unwrap_or(Value::Null);
        }
        let only_version = desired == *existing;
        if let (Some(slot), Some(now)) = (desired.pointer_mut(version), now) {
            *slot = now;
        }
        if only_version {
            Self::ObjectVersion(desired)
        } else {
            Self::Changed(desired)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_version_of_the_object_is_told_from_other_changes() {
        let binding = |version: Value, replicas: i64| json!({"spec": {"replicas": replicas, "resource": {"name": "a", "resourceVersion": version}}});
        let existing = binding("1".into(), 1);
        for (desired, expected) in [
            (binding("1".into(), 1), BindingDiff::Unchanged),
            (
                binding("2".into(), 1),
                BindingDiff::ObjectVersion(binding("2".into(), 1)),
            ),
            (
                binding("2".into(), 2),
                BindingDiff::Changed(binding("2".into(), 2)),
            ),
            (
                binding("1".into(), 2),
                BindingDiff::Changed(binding("1".into(), 2)),
            ),
        ] {
            assert_eq!(BindingDiff::between(&existing, desired), expected);
        }
        let unversioned = json!({"spec": {"replicas": 1, "resource": {"name": "a"}}});
        let changed = BindingDiff::between(&unversioned, existing.clone());
        assert_eq!(changed, BindingDiff::Changed(existing));
    }
}
