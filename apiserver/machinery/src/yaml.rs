//! Reads YAML into the value that `sigs.k8s.io/yaml` makes of it: YAML 1.1, whose keys become
//! strings in the form of their values (`n` becomes `false`, `0x10` becomes `16`).
//!
//! Aliases and merges repeat parts of a document: the work and the memory that they come to are
//! bounded by the length of the text.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, alias_limits, budget, options};

use crate::json::{MAX_DEPTH, depth_error};
use crate::tree_memory::{max_yaml_replays, max_yaml_scalar_bytes};
use crate::value_visitor::{CompoundReader, ValueVisitor};

type Result<T, E = serde_saphyr::Error> = std::result::Result<T, E>;

/// The stack on which deep YAML is read: `serde_saphyr` takes up to 24 KiB for each level, in a debug
/// build, which is ten times as much as anything else does with an object.
const STACK_BYTES: usize = 64 << 20;
/// How deep a text may be that is read on the stack of the caller: in a debug build within a megabyte.
const MAX_CALLER_DEPTH: usize = 40;
/// How many merges (`<<`) a text may have.
const MAX_MERGES: usize = 1_000;
/// How many nodes a text may have that has merges: each nested one copies what is below it.
const MAX_NODES_WITH_MERGES: usize = 20_000;
/// How deep a text may be that has merges: reading nested ones takes the cube of their number.
const MAX_DEPTH_WITH_MERGES: usize = 64;
/// How many nodes any other text may have.
const MAX_NODES: usize = 250_000;

/// Reads one document, in which a key occurs once in each map.
pub fn from_str(text: &str) -> Result<Value> {
    read_one(text, DuplicateKeyPolicy::Error)
}

/// Reads one document. The last of duplicate keys wins.
pub fn from_str_with_duplicate_keys(text: &str) -> Result<Value> {
    read_one(text, DuplicateKeyPolicy::LastWins)
}

/// Reads all documents; a key occurs once in each map.
pub fn from_documents(text: &str) -> Result<Vec<Value>> {
    read_all(text, || yaml_options(text, DuplicateKeyPolicy::Error))
}

/// Reads all documents of a file that the user of a command has named, however many they are. Only
/// the command itself takes its time and memory, which the length of the text bounds.
pub fn from_large_documents(text: &str) -> Result<Vec<Value>> {
    read_all(text, || {
        let mut options = yaml_options(text, DuplicateKeyPolicy::Error);
        if let Some(budget) = &mut options.budget {
            // Each takes a character, and a node has up to two events.
            for bound in [
                &mut budget.max_documents,
                &mut budget.max_nodes,
                &mut budget.max_anchors,
                &mut budget.max_aliases,
            ] {
                *bound = text.len().max(*bound);
            }
            budget.max_events = text.len().saturating_mul(4).max(budget.max_events);
        }
        options
    })
}

fn read_all(text: &str, options: impl FnOnce() -> Options + Send) -> Result<Vec<Value>> {
    on_sufficient_stack(text, || {
        let read: Vec<YamlValue> = serde_saphyr::from_multiple_with_options(text, options())?;
        Ok(read.into_iter().map(|document| document.0).collect())
    })
}

fn read_one(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value> {
    on_sufficient_stack(text, || {
        let options = yaml_options(text, duplicate_keys);
        serde_saphyr::from_str_with_options(text, options).map(|YamlValue(value)| value)
    })
}

/// Runs `read`, in a thread of its own if the text may be deep.
fn on_sufficient_stack<T: Send>(text: &str, read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    match max_depth(text) > MAX_CALLER_DEPTH {
        true => on_large_stack(read),
        false => read(),
    }
}

/// A bound of the depth of a text, found without reading it. A list or map in block style is within one
/// that begins further left, or within a map that begins in the same column; one in flow style has a
/// bracket, and a list in it may have a map without one in each item. An alias repeats at most all of this.
fn max_depth(text: &str) -> usize {
    let mut columns = BTreeSet::new();
    for line in text.split(['\n', '\r']) {
        for (column, byte) in line.bytes().enumerate() {
            match byte {
                b' ' | b'\t' => {}
                _ => _ = columns.insert(column),
            }
            if !matches!(byte, b' ' | b'\t' | b'-' | b'?' | b':') {
                break;
            }
        }
    }
    let count = |markers: &[u8]| text.bytes().filter(|byte| markers.contains(byte)).count();
    let depth = 2 * columns.len() + 2 * count(b"[") + count(b"{");
    depth.saturating_mul(1 + count(b"&"))
}

/// Runs `read` in a thread of its own, and waits for it.
fn on_large_stack<T: Send>(read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("yaml".into());
        let started = thread.stack_size(STACK_BYTES).spawn_scoped(scope, read);
        match started {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(Error::custom(format!("cannot start a thread: {error}"))),
        }
    })
}

fn yaml_options(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Options {
    let replays = max_yaml_replays(text.len());
    let (max_nodes, max_depth) = match text.contains("<<") {
        true => (MAX_NODES_WITH_MERGES, MAX_DEPTH_WITH_MERGES),
        // Higher than ours, so that the error is that of JSON; the scanner is 1,024 bytes ahead.
        false => (MAX_NODES, MAX_DEPTH + 1),
    };
    options! {
        budget: budget! {
            max_depth: max_depth,
            flow_nesting_limit: 2 * MAX_DEPTH,
            max_nodes: max_nodes,
            max_merge_keys: MAX_MERGES,
            max_recorded_anchor_events: 2 * replays,
            max_total_scalar_bytes: max_yaml_scalar_bytes(text.len()),
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: replays,
        },
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        // The lines around an error may have credentials.
        with_snippet: false,
    }
}

struct YamlValue(Value);

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        YamlValueSeed { depth: 0 }
            .deserialize(deserializer)
            .map(Self)
    }
}

/// Reads a value within `depth` maps and lists.
#[derive(Clone, Copy)]
struct YamlValueSeed {
    depth: usize,
}

impl YamlValueSeed {
    /// The seed of what a map or list contains.
    fn nested<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(E::custom(depth_error(MAX_DEPTH)));
        }
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for YamlValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor(self))
    }
}

impl<'de> CompoundReader<'de> for YamlValueSeed {
    const EXPECTED: &'static str = "any YAML value";

    fn read_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let seed = self.nested()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn read_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let seed = self.nested()?;
        let mut fields = Map::new();
        while let Some(YamlKey(key)) = map.next_key()? {
            fields.insert(key, map.next_value_seed(seed)?);
        }
        Ok(Value::Object(fields))
    }

    fn non_finite<E: Error>() -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// A key as JSON has it.
struct YamlKey(String);

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlKeyVisitor).map(Self)
    }
}

struct YamlKeyVisitor;

impl<'de> Visitor<'de> for YamlKeyVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a string, a number or a boolean")
    }

    fn visit_bool<E>(self, v: bool) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_i64<E>(self, v: i64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<String, E> {
        if i64::try_from(v).is_err() {
            let message = format!("unsupported map key of type: uint64, key: {v:#x}");
            return Err(E::custom(message));
        }
        Ok(v.to_string())
    }

    fn visit_f64<E>(self, v: f64) -> Result<String, E> {
        Ok(short_float(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<String, E> {
        Ok(v.to_owned())
    }

    fn visit_string<E>(self, v: String) -> Result<String, E> {
        Ok(v)
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Err(E::custom(
            "unsupported map key of type: %!s(<nil>), key: <nil>",
        ))
    }
}

/// A number as Go's `FormatFloat(v, 'g', -1, 32)` writes it.
fn short_float(v: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
    let v = v as f32;
    if v.is_infinite() {
        return if v > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{v:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return v.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The expected texts are those of kubectl 1.36.
    #[test]
    fn keys_become_strings_in_the_form_of_their_values() {
        for (key, expected) in [
            ("n", "false"),
            ("N", "false"),
            ("y", "true"),
            ("on", "true"),
            ("off", "false"),
            ("yes", "true"),
            ("True", "true"),
            ("TRUE", "true"),
            ("\"y\"", "y"),
            ("!!str n", "n"),
            ("1", "1"),
            ("+1", "1"),
            ("-0x1", "-1"),
            ("0x10", "16"),
            ("0b11", "3"),
            ("0o17", "15"),
            ("010", "8"),
            ("1_0", "10"),
            ("9223372036854775807", "9223372036854775807"),
            ("0.1", "0.1"),
            ("1.50", "1.5"),
            ("-.5", "-0.5"),
            ("1e3", "1000"),
            ("1e21", "1e+21"),
            ("123456789.125", "1.2345679e+08"),
            ("3.4028236e38", ".inf"),
            ("2001-01-01", "2001-01-01"),
            ("1:30", "1:30"),
            ("plain", "plain"),
        ] {
            let text = format!("? {key}\n: b\n");
            let mut expected_map = json!({});
            expected_map[expected] = json!("b");
            assert_eq!(from_str(&text).unwrap(), expected_map, "{key}");
        }
        for (key, message) in [
            ("~", "unsupported map key of type: %!s(<nil>)"),
            ("9223372036854775808", "unsupported map key of type: uint64"),
            ("[a]", ""),
            ("{a: b}", ""),
        ] {
            let error = from_str(&format!("? {key}\n: b\n")).unwrap_err();
            assert!(error.to_string().contains(message), "{key}: {error}");
        }
    }

    #[test]
    fn values_are_those_of_yaml_1_1() {
        for (text, expected) in [
            ("0644", json!(420)),
            ("0o17", json!(15)),
            ("1_000", json!(1000)),
            ("0b11", json!(3)),
            ("1:30", json!("1:30")),
            (".5", json!(0.5)),
            ("0x1F", json!(31)),
            ("2001-01-01", json!("2001-01-01")),
            ("!!str 1", json!("1")),
            ("\"1\"", json!("1")),
            ("N", json!(false)),
            ("y", json!(true)),
            ("~", json!(null)),
        ] {
            assert_eq!(from_str(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn the_depth_of_a_text_is_no_more_than_its_bound() {
        for text in [
            "a",
            "a: b",
            "- - - - a",
            "a:\n- b:\n  - c: {d: [e]}",
            "? a\n: - b\n  - ? c\n    : - - d",
            "---\n- - a",
            "a:\r- b:\r  - c",
            "[a: [a: [a: [a: b]]]]",
            "a: &x [[b]]\nb: &y [[*x]]\nc: [[*y]]",
            "a: &x\n  b: {c: d}\ne:\n  f:\n    <<: *x",
        ] {
            let depth = crate::json::depth(&from_str(text).unwrap());
            assert!(depth <= max_depth(text), "{text:?} is {depth} deep");
        }
        let manifest =
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    b: c\n";
        assert!(max_depth(manifest) <= MAX_CALLER_DEPTH);
        assert!(max_depth(&"[".repeat(MAX_CALLER_DEPTH)) > MAX_CALLER_DEPTH);
    }

    #[test]
    fn an_error_names_the_line_and_quotes_nothing() {
        for (text, line) in [
            ("data:\n  token: c2VjcmV0\n  token: c2VjcmV0\n", "line 3"),
            ("data:\n  token: c2VjcmV0\n  open: [\n", "line"),
            ("data:\n  token: \"c2VjcmV0\n", "line"),
            ("data:\n  token: c2VjcmV0\n bad: c2VjcmV0\n", "line 3"),
        ] {
            for error in [
                from_str(text).unwrap_err(),
                from_documents(text).unwrap_err(),
                from_large_documents(text).unwrap_err(),
            ] {
                let error = format!("{error} {error:?}");
                assert!(error.contains(line), "{error}");
                assert!(!error.contains("c2VjcmV0"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_of_a_command_may_have_many_documents_and_nodes() {
        let documents = "a: 1\n---\n".repeat(2_000);
        assert!(from_documents(&documents).is_err());
        assert_eq!(from_large_documents(&documents).unwrap().len(), 2_000);
        let list = format!("items:\n- <<: {{a: 1}}\n{}", "- a: 1\n".repeat(100_000));
        assert!(from_documents(&list).is_err());
        let read = from_large_documents(&list).unwrap();
        assert_eq!(read[0]["items"].as_array().unwrap().len(), 100_001);
    }

    #[test]
    fn merges_are_nested_within_a_limit() {
        let nested = |depth: usize| "{<<: ".repeat(depth) + "{a: 1}" + &"}".repeat(depth);
        assert_eq!(from_str(&nested(20)).unwrap(), json!({"a": 1}));
        assert!(from_str(&nested(MAX_DEPTH_WITH_MERGES)).is_err());
    }

    #[test]
    fn aliases_nest_no_deeper_than_the_limit() {
        let flow = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(from_str(&flow(MAX_DEPTH)).is_ok());
        let block: String = (0..MAX_DEPTH)
            .map(|depth| format!("{}a:\n", " ".repeat(depth)))
            .collect();
        assert!(from_str(&block).is_ok());
        let deeper_block = format!("b:\n{}", block.replace("a:", " a:"));
        let mut aliases = format!("a0: &a0 {}\n", flow(600));
        for i in 1..40 {
            let inner = format!("*a{} ", i - 1);
            aliases += &format!(
                "a{i}: &a{i} {}{inner}{}\n",
                "[".repeat(600),
                "]".repeat(600)
            );
        }
        for text in [flow(MAX_DEPTH + 1), flow(100_000), deeper_block, aliases] {
            let error = from_str(&text).unwrap_err().to_string();
            assert!(error.contains("exceeded max depth"), "{error}");
        }
    }
}
