//! Decides which informer events a controller handles (controller-runtime's `pkg/predicate`).

use machinery::Object;

/// Whether the spec of an object has changed, its deletion has begun, or another object has its
/// name now: a change of its status or its metadata alone is none of these.
pub fn is_generation_or_deletion_changed(old: &Object, new: &Object) -> bool {
    let is_replaced = old.uid() != new.uid();
    let (old, new) = (old.meta(), new.meta());
    is_replaced || (old.generation, old.deleting) != (new.generation, new.deleting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_or_a_label_is_no_change_and_another_object_is() {
        let object = |metadata, status| {
            Object::from_value(&json!({"metadata": metadata, "status": status})).unwrap()
        };
        let first = object(json!({"name": "a", "generation": 1}), 1);
        let deletion = "2026-01-01T00:00:00Z";
        for (metadata, changed) in [
            (json!({"name": "a", "generation": 1}), false),
            (
                json!({"name": "a", "generation": 1, "labels": {"a": "b"}}),
                false,
            ),
            (json!({"name": "a", "generation": 2}), true),
            (
                json!({"name": "a", "generation": 1, "deletionTimestamp": deletion}),
                true,
            ),
            (json!({"name": "a", "generation": 1, "uid": "b"}), true),
        ] {
            let new = object(metadata, 2);
            assert_eq!(
                is_generation_or_deletion_changed(&first, &new),
                changed,
                "{new:?}"
            );
        }
    }
}
