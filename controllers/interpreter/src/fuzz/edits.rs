//! Random edits of JSON values.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

/// Strings that some rule parses or compares, and some that are nearly valid.
const STRINGS: [&str; 72] = [
    "",
    " ",
    "\0",
    "\u{1f}",
    "ü\u{10ffff}",
    "/",
    "~1",
    "True",
    "False",
    "Ready",
    "Failed",
    "Complete",
    "Completed",
    "Running",
    "Succeeded",
    "Pending",
    "LoadBalancer",
    "None",
    "Available",
    "Bound",
    "RUNNING",
    "FAILED",
    "READY",
    "STABLE",
    "CREATED",
    "ErrImagePull",
    "default",
    "true",
    "0",
    "-0",
    "1",
    "-1",
    "+1",
    "1.",
    ".5",
    "1.5",
    "1e3",
    "1E",
    "1e999999999",
    "-1e-999999999",
    "0x1F",
    "0x",
    "NaN",
    "inf",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999999999999999999999",
    "100m",
    "-100m",
    "1n",
    "1Ki",
    "1.5Gi",
    "8Ei",
    "9999999999Ei",
    "1g",
    "1.5g",
    "1K",
    "99999999999999999999pb",
    "0.0000001t",
    "1h3m",
    "1.5s",
    "99999999999999999999h",
    "0s",
    "2026-01-02T03:04:05Z",
    "9999-12-31T23:59:59Z",
    "-262144-01-01T00:00:00Z",
    "2026-01-02T03:04:05+99:99",
    "*/5 * * * *",
    "0 0 31 2 *",
    "@every 1s",
    "60 24 32 13 8",
];

/// Field names that rules read, besides those of the seeds.
const FIELD_NAMES: [&str; 20] = [
    "",
    "spec",
    "status",
    "metadata",
    "generation",
    "annotations",
    "labels",
    "template",
    "replicas",
    "conditions",
    "type",
    "name",
    "resources",
    "requests",
    "limits",
    "containers",
    "clusterIP",
    "matchLabels",
    "items",
    "\u{1f}",
];

/// An edit of one value inside a JSON value.
#[derive(Clone, Debug)]
enum JsonEdit {
    /// Replaces it.
    Replace(Value),
    Remove,
    /// Nests it in this many lists (`true`) or objects (`false`).
    Wrap(u8, bool),
    /// Adds an element to a list or a field to an object.
    Add(&'static str, Value),
    /// Repeats it this many times, in a list.
    Repeat(u8),
    /// Replaces it by a copy of another value.
    Copy(Index),
}

/// An unexpected value.
pub(crate) fn unexpected_values() -> impl Strategy<Value = Value> {
    let numbers = [
        json!(0),
        json!(1),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(i32::MAX),
        json!(9_007_199_254_740_993_i64),
        json!(-0.0),
        json!(0.5),
        json!(-2.5),
        json!(1e300),
        json!(-1e300),
        json!(f64::MAX),
        json!(f64::MIN_POSITIVE),
        json!(9.3e18),
        json!(4e15),
    ];
    let leaf = prop_oneof![
        2 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        4 => select(numbers.to_vec()),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        6 => select(&STRINGS[..]).prop_map(Value::from),
        1 => ".{0,12}".prop_map(Value::from),
        1 => (0..2000_usize).prop_map(|n| "9".repeat(n).into()),
        1 => Just(json!([])),
        1 => Just(json!({})),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let field = (select(&FIELD_NAMES[..]), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            vec(field, 0..4).prop_map(|fields| {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect())
            }),
        ]
    })
}

fn edit() -> impl Strategy<Value = JsonEdit> {
    prop_oneof![
        8 => unexpected_values().prop_map(JsonEdit::Replace),
        3 => Just(JsonEdit::Remove),
        1 => (1..100_u8, any::<bool>()).prop_map(|(times, list)| JsonEdit::Wrap(times, list)),
        3 => (select(&FIELD_NAMES[..]), unexpected_values()).prop_map(|(name, value)| JsonEdit::Add(name, value)),
        1 => (0..20_u8).prop_map(JsonEdit::Repeat),
        4 => any::<Index>().prop_map(JsonEdit::Copy),
    ]
}

/// A few edits, or none, and where they apply.
#[derive(Clone, Debug)]
pub(super) struct JsonEdits(Vec<(Index, JsonEdit)>);

impl JsonEdits {
    pub(super) fn apply(&self, tree: &Value) -> Value {
        let mut tree = tree.clone();
        for (position, edit) in &self.0 {
            edit.apply(&mut tree, position);
        }
        tree
    }
}

pub(super) fn edits() -> impl Strategy<Value = JsonEdits> {
    vec((any::<Index>(), edit()), 0..6).prop_map(JsonEdits)
}

impl JsonEdit {
    fn apply(&self, tree: &mut Value, position: &Index) {
        let size = value_count(tree);
        let copied = match self {
            Self::Copy(from) => nth_value(tree, &mut from.index(size)).cloned(),
            _ => None,
        };
        if matches!(self, Self::Remove) {
            return remove_nth(tree, &mut position.index(size));
        }
        let Some(at) = nth_value(tree, &mut position.index(size)) else {
            return;
        };
        match self {
            Self::Replace(value) => *at = value.clone(),
            Self::Remove => {}
            Self::Wrap(times, list) => {
                for _ in 0..*times {
                    let inner = at.take();
                    *at = if *list {
                        json!([inner])
                    } else {
                        json!({"a": inner})
                    };
                }
            }
            Self::Add(name, value) => match at {
                Value::Object(fields) => {
                    fields.insert((*name).to_owned(), value.clone());
                }
                Value::Array(items) => items.push(value.clone()),
                other => *other = value.clone(),
            },
            Self::Repeat(times) => {
                *at = match &*at {
                    Value::Array(items) => {
                        let again = items.iter().cycle().take(items.len() * usize::from(*times));
                        again.cloned().collect()
                    }
                    other => vec![other.clone(); usize::from(*times)].into(),
                }
            }
            Self::Copy(_) => *at = copied.unwrap_or_default(),
        }
    }
}

fn children(tree: &mut Value) -> impl Iterator<Item = &mut Value> {
    let (items, fields) = match tree {
        Value::Array(items) => (Some(items), None),
        Value::Object(fields) => (None, Some(fields)),
        _ => (None, None),
    };
    let fields = fields.into_iter().flat_map(Map::values_mut);
    items.into_iter().flatten().chain(fields)
}

/// The number of values in a JSON value, itself included.
fn value_count(tree: &Value) -> usize {
    match tree {
        Value::Array(items) => 1 + items.iter().map(value_count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(value_count).sum::<usize>(),
        _ => 1,
    }
}

/// The value with a number, counted depth-first from the root.
fn nth_value<'a>(tree: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(tree);
    }
    *left -= 1;
    children(tree).find_map(|child| nth_value(child, left))
}

/// Removes the value with a number; the root stays.
fn remove_nth(tree: &mut Value, left: &mut usize) {
    let mut gone = |child: &mut Value| {
        *left = left.wrapping_sub(1);
        let is_target = *left == 0;
        if !is_target && *left <= isize::MAX as usize {
            remove_nth(child, left);
        }
        is_target
    };
    match tree {
        Value::Array(items) => items.retain_mut(|item| !gone(item)),
        Value::Object(fields) => fields.retain(|_, value| !gone(value)),
        _ => {}
    }
}
