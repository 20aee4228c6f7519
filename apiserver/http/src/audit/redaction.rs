//! The bodies of requests and responses as an event may contain them: without tokens,
//! and without managedFields if the policy says so.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Replaces a token.
const REDACTED: &str = "REDACTED";

/// The parts that are removed from the bodies of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyRedaction {
    pub(super) managed_fields: bool,
    /// Set for TokenRequests and TokenReviews.
    pub(super) tokens: bool,
}

impl BodyRedaction {
    /// Encodes an object for an event.
    pub(super) fn encode_value(self, object: &Value) -> Option<Box<RawValue>> {
        if self.is_empty() {
            return to_raw_value(object).ok();
        }
        self.encode_changed(object.clone())
    }

    /// Like [`BodyRedaction::encode_value`], of an encoded object.
    pub(super) fn encode_text(self, text: String) -> Option<Box<RawValue>> {
        if self.is_empty() {
            return RawValue::from_string(text).ok();
        }
        self.encode_changed(machinery::json::from_str(&text).ok()?)
    }

    fn is_empty(self) -> bool {
        !self.managed_fields && !self.tokens
    }

    fn encode_changed(self, mut object: Value) -> Option<Box<RawValue>> {
        if self.managed_fields {
            remove_managed_fields(&mut object);
            let items = object.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(remove_managed_fields);
        }
        if self.tokens {
            for pointer in ["/spec/token", "/status/token"] {
                if let Some(token) = object.pointer_mut(pointer) {
                    *token = REDACTED.into();
                }
            }
        }
        to_raw_value(&object).ok()
    }
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_and_managed_fields_are_removed() {
        let encoded = |object: &Value, managed_fields: bool, tokens: bool| {
            let redaction = BodyRedaction {
                managed_fields,
                tokens,
            };
            let direct = redaction.encode_value(object).unwrap();
            let text = redaction.encode_text(object.to_string()).unwrap();
            assert_eq!(direct.get(), text.get());
            machinery::json::from_str::<Value>(direct.get()).unwrap()
        };
        let token = |text: &str| json!({"spec": {"token": text}, "status": {"token": text}});
        assert_eq!(encoded(&token("secret"), false, true), token(REDACTED));
        let managed = json!({"metadata": {"name": "a", "managedFields": [{}]}});
        let list = json!({"items": [managed]});
        assert_eq!(encoded(&list, false, false), list);
        let stripped = json!({"items": [{"metadata": {"name": "a"}}]});
        assert_eq!(encoded(&list, true, false), stripped);
    }
}
