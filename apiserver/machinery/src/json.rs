//! Reads JSON for every crate, up to a depth that the stack of every thread is sized for.
//!
//! `serde_json` alone stops at 127 levels. Here a text that it refuses for its depth is
//! measured without recursion, then read again. Invariant: no text is read deeper than
//! [`MAX_DEPTH`], so that no recursion over what was read needs more than
//! [`THREAD_STACK_BYTES`].

#![expect(clippy::disallowed_methods, reason = "the one place that calls them")]

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::de::{Deserializer, Read, SliceRead, StrRead};
use serde_json::{Result, Value};

/// How deep a stored object may be nested. Its `managedFields` are up to five levels deeper
/// than its own fields, and the manifest within a Work is four levels deeper than the template.
pub const MAX_OBJECT_DEPTH: usize = 1_024;

/// How deep JSON may be nested: objects within a list, a watch event, a review or an audit event.
pub const MAX_DEPTH: usize = 1_100;

/// The stack of each thread that reads objects, of which only the pages that are used take
/// memory. A debug build takes up to 3 KiB for each of [`MAX_DEPTH`] levels, for an apply.
pub const THREAD_STACK_BYTES: usize = 16 << 20;

/// As [`serde_json::from_slice`], for up to [`MAX_DEPTH`] levels.
pub fn from_slice<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T> {
    match read(Deserializer::from_slice(text)) {
        Err(error) if is_depth_error(&error) => read(deserializer(text)?),
        result => result,
    }
}

/// As [`serde_json::from_str`], for up to [`MAX_DEPTH`] levels.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T> {
    match read(Deserializer::from_str(text)) {
        Err(error) if is_depth_error(&error) => read(str_deserializer(text)?),
        result => result,
    }
}

/// A deserializer for a text, which is refused if it is nested deeper than [`MAX_DEPTH`].
pub fn deserializer(text: &[u8]) -> Result<Deserializer<SliceRead<'_>>> {
    check_depth(text)?;
    let mut deserializer = Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    Ok(deserializer)
}

/// As [`deserializer`].
pub fn str_deserializer(text: &str) -> Result<Deserializer<StrRead<'_>>> {
    check_depth(text.as_bytes())?;
    let mut deserializer = Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    Ok(deserializer)
}

fn read<'de, R: Read<'de>, T: Deserialize<'de>>(mut from: Deserializer<R>) -> Result<T> {
    let value = T::deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

fn is_depth_error(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

/// Fails if a text is nested deeper than [`MAX_DEPTH`]. What is skipped, or passed on as text, is not read
/// here, but by somebody else.
pub fn check_depth(text: &[u8]) -> Result<()> {
    if text_exceeds_depth(text, MAX_DEPTH) {
        return Err(serde_json::Error::custom(depth_error(MAX_DEPTH)));
    }
    Ok(())
}

/// The text of the error for what is nested deeper than `limit`.
pub fn depth_error(limit: usize) -> String {
    // The words of `sigs.k8s.io/json`, and the limit.
    format!("exceeded max depth: JSON may be nested {limit} levels deep")
}

/// Whether a JSON text, up to its first syntax error, is nested deeper than `limit`.
pub fn text_exceeds_depth(text: &[u8], limit: usize) -> bool {
    // Most texts have fewer objects and lists, which are counted many times as fast.
    let opened = text
        .iter()
        .filter(|byte| matches!(byte, b'{' | b'['))
        .count();
    if opened <= limit {
        return false;
    }
    let mut depth = 0_usize;
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => loop {
                match rest.next() {
                    None | Some(b'"') => break,
                    Some(b'\\') => drop(rest.next()),
                    Some(_) => {}
                }
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// How many objects and lists are nested in a value, counted without recursion.
pub fn depth(value: &Value) -> usize {
    let (mut deepest, mut open) = (0, vec![(value, 0)]);
    while let Some((value, outer)) = open.pop() {
        let level = outer + 1;
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, level))),
            _ => continue,
        }
        deepest = deepest.max(level);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn nested(depth: usize) -> String {
        let halves = (depth / 2, depth - depth / 2);
        let opened = format!("{}{}", "[".repeat(halves.0), r#"{"a":"#.repeat(halves.1));
        format!("{opened}1{}{}", "}".repeat(halves.1), "]".repeat(halves.0))
    }

    #[test]
    fn json_is_read_up_to_the_limit() {
        for depth in [1, 127, 128, 1_000, MAX_DEPTH] {
            let text = nested(depth);
            let value: Value = from_str(&text).unwrap();
            assert_eq!(super::depth(&value), depth);
            assert_eq!(value.to_string(), text);
            assert_eq!(from_slice::<Value>(text.as_bytes()).unwrap(), value.clone());
        }
        for depth in [MAX_DEPTH + 1, 100_000] {
            let text = nested(depth);
            let error = from_slice::<Value>(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), depth_error(MAX_DEPTH));
            assert!(deserializer(text.as_bytes()).is_err());
            assert!(str_deserializer(&text).is_err());
            // Nothing recurses over text that is not read.
            assert!(from_str::<&RawValue>(&text).is_ok());
        }
    }

    #[test]
    fn depth_is_that_of_the_structure() {
        for (text, depth) in [
            ("", 0),
            (r#""[[[[\"[[[""#, 0),
            (r#"{"[[[[":"{{{{\\"}"#, 1),
            (r#"[[],[[]],[[]],{"a":[[]]}]"#, 4),
            ("]]]][[", 2),
            (r#"["\"#, 1),
        ] {
            assert!(!text_exceeds_depth(text.as_bytes(), depth), "{text}");
            assert!(
                depth == 0 || text_exceeds_depth(text.as_bytes(), depth - 1),
                "{text}"
            );
        }
    }

    #[test]
    fn other_errors_stay() {
        let text = nested(200).replace('1', "x");
        let error = from_str::<Value>(&text).unwrap_err();
        assert!(error.to_string().starts_with("expected value"), "{error}");
    }
}
