//! Decodes YAML in request bodies.

use machinery::yaml;
use serde_json::Value;
use serde_saphyr::Error;

/// Decodes the body of an object.
pub(crate) fn decode_yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid UTF-8")?;
    yaml::from_str(text).map_err(|e| conversion_error(&e))
}

/// Says why a text is not YAML.
pub(crate) fn conversion_error(error: &Error) -> String {
    format!("error converting YAML to JSON: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_error(text: &str) -> String {
        decode_yaml(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn documents_that_repeat_themselves_are_bounded() {
        let keys: Vec<String> = (0..2_000).map(|i| format!("k{i}: 1")).collect();
        let keys = keys.join(", ");
        let aliases = "- *a\n".repeat(200);
        let merges = "- <<: *a\n".repeat(50);
        let nested = format!("{}{keys}{}", "<<: {".repeat(50), "}".repeat(50));
        let large: Vec<String> = (0..30_000).map(|i| format!("k{i}: 1")).collect();
        for (text, expected) in [
            (format!("a: &a {{{keys}}}\nb:\n{aliases}"), "alias replay"),
            (format!("a: &a {{{keys}}}\nb:\n{merges}"), "alias replay"),
            (
                format!("a: &a {}\nb:\n{aliases}", "x".repeat(50_000)),
                "budget",
            ),
            (
                format!("{}\nb: {{<<: {{c: 1}}}}\n", large.join("\n")),
                "budget",
            ),
            (format!("a:\n{}", "- <<: {b: 1}\n".repeat(1_001)), "budget"),
        ] {
            let message = decode_error(&text);
            assert!(message.contains(expected), "{message}");
        }
        // As deep as documents may be nested, with few nodes.
        decode_yaml(format!("a: {{{nested}}}").as_bytes()).unwrap();
        decode_yaml(large.join("\n").as_bytes()).unwrap();
    }

    #[test]
    fn aliases_and_merges_are_resolved() {
        let text = "a: &a {x: 1}\nb: *a\nc: {<<: *a, z: 2}\n";
        let expected = serde_json::json!({"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "z": 2}});
        assert_eq!(decode_yaml(text.as_bytes()).unwrap(), expected);
    }
}
