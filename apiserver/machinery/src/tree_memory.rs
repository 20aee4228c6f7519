//! Estimates what decoded JSON takes in memory: of small values it is many times their text.

use serde_json::Value;

/// The most that the tree of one request may take.
pub const MAX_TREE_BYTES: usize = 64 << 20;

/// A node of a map has room for 11 entries.
const MAP_NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
/// The entries of a node that are used in a large map.
const MAP_NODE_ENTRIES: usize = 6;
/// A YAML map of one field begins, has a key and a value, and ends.
const EVENTS_OF_MAP: usize = 4;
/// A list grows by doubling and keeps the room.
const LIST_ITEM_BYTES: usize = 2 * size_of::<Value>();

/// The bytes of a tree, roughly.
pub fn estimate_tree_bytes(tree: &Value) -> usize {
    let allocated = match tree {
        Value::String(text) => text.capacity(),
        Value::Array(items) => items.iter().map(estimate_tree_bytes).sum(),
        Value::Object(fields) => {
            let entry_bytes =
                |(key, value): (&String, &Value)| key.capacity() + estimate_tree_bytes(value);
            map_bytes(fields.len()) + fields.iter().map(entry_bytes).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + allocated
}

/// The bytes of a map beside its values and the texts of its keys.
fn map_bytes(entries: usize) -> usize {
    let nodes = entries.div_ceil(MAP_NODE_ENTRIES) * MAP_NODE_BYTES;
    nodes.saturating_sub(entries * size_of::<Value>())
}

/// At most what the tree of a JSON text takes, roughly; no tree is made. The text may be
/// malformed.
pub fn estimate_json_tree_bytes(json: &[u8]) -> usize {
    let counts = StructuralBytes::count(json);
    let maps = counts.objects + counts.colons / MAP_NODE_ENTRIES;
    let values = counts.commas + counts.objects + counts.arrays;
    json.len() + maps * MAP_NODE_BYTES + (values + 3 * counts.arrays) * LIST_ITEM_BYTES
}

/// As [`estimate_json_tree_bytes`], for YAML: each line may be a map of its own, and aliases
/// repeat parts of the text, within [`max_yaml_replays`] and [`max_yaml_scalar_bytes`].
pub fn estimate_yaml_tree_bytes(yaml: &[u8]) -> usize {
    let lines = yaml.iter().filter(|byte| **byte == b'\n').count();
    let colons = yaml.iter().filter(|byte| **byte == b':').count();
    let maps = lines.min(colons);
    let repeated = match yaml.contains(&b'*') {
        true => {
            let maps = max_yaml_replays(yaml.len()) / EVENTS_OF_MAP;
            maps * (MAP_NODE_BYTES + LIST_ITEM_BYTES) + max_yaml_scalar_bytes(yaml.len())
        }
        false => 0,
    };
    estimate_json_tree_bytes(yaml) + maps * MAP_NODE_BYTES + lines * LIST_ITEM_BYTES + repeated
}

/// How many events of a YAML text of this length its aliases may repeat: as many as its length
/// allows to write out, roughly.
pub fn max_yaml_replays(length: usize) -> usize {
    1_000 + length / 8
}

/// How many bytes the scalars of a YAML text of this length may have, with those that aliases
/// repeat.
pub fn max_yaml_scalar_bytes(length: usize) -> usize {
    (64 << 10) + 4 * length
}

/// How often the bytes that make values occur outside of strings.
#[derive(Default)]
struct StructuralBytes {
    /// Objects and arrays that are not empty.
    objects: usize,
    arrays: usize,
    commas: usize,
    colons: usize,
}

impl StructuralBytes {
    fn count(json: &[u8]) -> Self {
        let mut counts = Self::default();
        let (mut in_string, mut is_escaped) = (false, false);
        let mut last = b' ';
        for &byte in json {
            if in_string {
                in_string = is_escaped || byte != b'"';
                is_escaped = !is_escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'{' => counts.objects += 1,
                b'}' if last == b'{' => counts.objects -= 1,
                b'[' => counts.arrays += 1,
                b']' if last == b'[' => counts.arrays -= 1,
                b',' => counts.commas += 1,
                b':' => counts.colons += 1,
                b' ' | b'\n' | b'\r' | b'\t' => continue,
                _ => {}
            }
            last = byte;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_tree_takes_at_least_its_text() {
        let text = "x".repeat(1 << 20);
        let tree = json!({"data": {"k": text}, "list": [1, 2, null]});
        assert!((1 << 20..(1 << 20) + 2000).contains(&estimate_tree_bytes(&tree)));
    }

    #[test]
    fn strings_and_empty_values_have_no_nodes() {
        for (json, bytes) in [
            (r#""{[,:""#, 6),
            (r#""\"{[""#, 6),
            ("{}", 2),
            ("[ ]", 3),
            ("[1]", 3 + 4 * LIST_ITEM_BYTES),
            (r#"{"a":1}"#, 7 + MAP_NODE_BYTES + LIST_ITEM_BYTES),
        ] {
            assert_eq!(estimate_json_tree_bytes(json.as_bytes()), bytes, "{json}");
        }
    }

    proptest! {
        #[test]
        fn the_text_is_estimated_at_least_as_high_as_its_tree(
            json in r#"(\{"a":|\[|1,|"b",|\{\},|\[\],|\}|\]){1,40}"#,
        ) {
            if let Ok(tree) = crate::json::from_str::<Value>(&json) {
                let tree = estimate_tree_bytes(&tree) - size_of::<Value>();
                prop_assert!(estimate_json_tree_bytes(json.as_bytes()) + 64 >= tree);
            }
        }
    }
}
