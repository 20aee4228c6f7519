//! Decodes YAML in request bodies, with errors in the words of Go's parser.

use machinery::yaml;
use serde_json::Value;
use serde_saphyr::Error;

/// Go's text.
const EXCESSIVE_ALIASING: &str = "document contains excessive aliasing";

/// Decodes the body of an object.
pub(crate) fn decode_yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid UTF-8")?;
    yaml::from_str(text).map_err(|e| {
        let why = match is_excessive_aliasing(&e) {
            true => format!("yaml: {EXCESSIVE_ALIASING}"),
            false => e.to_string(),
        };
        format!("error converting YAML to JSON: {why}")
    })
}

fn is_excessive_aliasing(error: &Error) -> bool {
    let mut cause = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = cause {
        cause = error;
    }
    matches!(
        cause,
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. }
    )
}

/// The error of the YAML parser in the words of Go's, as far as they are known.
pub(crate) fn yaml_error_text(text: &str, error: &Error) -> String {
    if is_excessive_aliasing(error) {
        return format!("yaml: {EXCESSIVE_ALIASING}");
    }
    let error = error.to_string();
    let first = error.lines().next().unwrap_or_default();
    let located = first
        .strip_prefix("error: line ")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(line, rest)| Some((line.parse::<usize>().ok()?, rest.split_once(": ")?.1)));
    let Some((line, why)) = located else {
        return format!("yaml: {first}");
    };
    if let Some(key) = why
        .strip_prefix("duplicate mapping key: ")
        .and_then(|rest| rest.split_once(',').map(|(key, _)| key))
    {
        return format!("yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map");
    }
    if why.starts_with("unclosed bracket") {
        // Go's parser notices it at the end.
        let last = text.lines().count();
        return format!("yaml: line {last}: did not find expected node content");
    }
    match line {
        1 => format!("yaml: {why}"),
        _ => format!("yaml: line {line}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
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
            (
                format!("a: &a {{{keys}}}\nb:\n{aliases}"),
                EXCESSIVE_ALIASING,
            ),
            (
                format!("a: &a {{{keys}}}\nb:\n{merges}"),
                EXCESSIVE_ALIASING,
            ),
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
            let why = why(&text);
            assert!(why.contains(expected), "{why}");
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
