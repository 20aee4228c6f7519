//! The strategy of Secrets: moves the write-only `stringData` into `data` (contract F1.6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{DEFAULT_STRATEGY, RestStrategy};

pub(super) static STRATEGY: RestStrategy = RestStrategy {
    create: merge_string_data,
    update: |new, _| merge_string_data(new),
    ..DEFAULT_STRATEGY
};

fn merge_string_data(new: &mut Value) {
    let Some(secret) = new.as_object_mut() else {
        return;
    };
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    let data = secret
        .entry("data")
        .or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            let text = text.as_str().unwrap_or("");
            data.insert(key, STANDARD.encode(text).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"a": "hi"}});
        merge_string_data(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "aGk=", "b": "eA=="}}));
    }
}
