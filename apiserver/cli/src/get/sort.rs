//! Sorts objects by the field of `--sort-by`, as kubectl does: numbers and quantities by value,
//! other texts by their characters, with runs of digits as numbers.

use std::cmp::Ordering;

use anyhow::{anyhow, bail, ensure};
use machinery::quantity::Quantity;
use serde_json::Value;

/// A JSONPath of fields and positions, such as `{.status.containerStatuses[0].restartCount}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortField {
    expression: String,
    steps: Vec<FieldStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldStep {
    Key(String),
    Index(usize),
}

/// The value of the field, in the order in which values of different types are sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SortKey {
    Missing,
    Bool(bool),
    /// A number, or a text that is a quantity.
    Number(Quantity),
    Text(String),
}

impl SortField {
    pub(super) fn parse(expression: &str) -> anyhow::Result<Self> {
        let path = expression.trim();
        let path = path
            .strip_prefix('{')
            .map_or(Some(path), |p| p.strip_suffix('}'));
        let path = path.ok_or_else(|| anyhow!("unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{{name1.name2}}' or '{{.name1.name2}}'"))?;
        let mut steps = Vec::new();
        let mut rest = path.strip_prefix('.').unwrap_or(path);
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('[') {
                Some(inner) => parse_subscript(inner, expression)?,
                None => parse_key(rest),
            };
            ensure!(
                step != FieldStep::Key(String::new()) && step != FieldStep::Key("*".to_owned()),
                "--sort-by takes a path of fields and positions, which {expression:?} is not"
            );
            steps.push(step);
            rest = after.strip_prefix('.').unwrap_or(after);
        }
        ensure!(!steps.is_empty(), "--sort-by needs the path of a field");
        Ok(Self {
            expression: path.to_owned(),
            steps,
        })
    }

    pub(super) fn key_of(&self, object: &Value) -> SortKey {
        let field = self
            .steps
            .iter()
            .try_fold(object, |value, step| match step {
                FieldStep::Key(key) => value.get(key),
                FieldStep::Index(index) => value.get(index),
            });
        match field {
            None | Some(Value::Null) => SortKey::Missing,
            Some(Value::Bool(value)) => SortKey::Bool(*value),
            Some(Value::String(text)) => match Quantity::parse(text) {
                Ok(quantity) => SortKey::Number(quantity),
                Err(_) => SortKey::Text(text.clone()),
            },
            Some(Value::Number(number)) => match Quantity::parse(&number.to_string()) {
                Ok(quantity) => SortKey::Number(quantity),
                Err(_) => SortKey::Text(number.to_string()),
            },
            Some(other) => SortKey::Text(other.to_string()),
        }
    }

    /// Refuses a field that none of the objects has.
    pub(super) fn ensure_found<'a>(
        &self,
        mut keys: impl Iterator<Item = &'a SortKey>,
    ) -> anyhow::Result<()> {
        let Some(first) = keys.next() else {
            return Ok(());
        };
        if *first == SortKey::Missing && keys.all(|key| *key == SortKey::Missing) {
            let path = self.expression.trim_start_matches('.');
            bail!("couldn't find any field with path \"{{.{path}}}\" in the list of objects");
        }
        Ok(())
    }
}

/// `0]`, `'key']` or `"key"]`, and what follows it.
fn parse_subscript<'a>(inner: &'a str, expression: &str) -> anyhow::Result<(FieldStep, &'a str)> {
    let unsupported =
        || anyhow!("--sort-by takes a path of fields and positions, which {expression:?} is not");
    let (subscript, after) = inner.split_once(']').ok_or_else(unsupported)?;
    let quoted = ['\'', '"'].into_iter().find_map(|quote| {
        let key = subscript.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(key.to_owned())
    });
    if let Some(key) = quoted {
        return Ok((FieldStep::Key(key), after));
    }
    let index = subscript.parse().map_err(|_| unsupported())?;
    Ok((FieldStep::Index(index), after))
}

/// A key up to the next dot or bracket, and what follows it; `\.` is a dot in the key.
fn parse_key(text: &str) -> (FieldStep, &str) {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (FieldStep::Key(key), &text[at..]),
            '\\' => key.extend(chars.next().map(|(_, escaped)| escaped)),
            c => key.push(c),
        }
    }
    (FieldStep::Key(key), "")
}

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => natural_order(a, b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl SortKey {
    fn rank(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
        }
    }
}

/// Compares texts by their characters, but runs of digits as numbers: `a2` is before `a10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
        let (m, n) = (digits(left), digits(right));
        if m > 0 && n > 0 {
            let significant =
                |text: &'_ [u8], end: usize| text[..end].iter().take_while(|c| **c == b'0').count();
            let (x, y) = (
                &left[significant(left, m)..m],
                &right[significant(right, n)..n],
            );
            let by_value = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            if by_value != Ordering::Equal {
                return by_value;
            }
            (left, right) = (&left[m..], &right[n..]);
            continue;
        }
        match (left.split_first(), right.split_first()) {
            (Some((x, after_x)), Some((y, after_y))) if x == y => {
                (left, right) = (after_x, after_y);
            }
            // Equal but for leading zeros.
            (None, None) => return a.cmp(b),
            (x, y) => return x.cmp(&y),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_fields_and_positions_are_read() {
        let object = json!({"metadata": {"name": "web", "annotations": {"a.b/c": "x"}},
            "items": [{"n": 3}, {"n": 4}]});
        let text = |text: &str| SortKey::Text(text.to_owned());
        for (expression, key) in [
            (".metadata.name", text("web")),
            ("{.metadata.name}", text("web")),
            ("metadata.name", text("web")),
            (r".metadata.annotations.a\.b/c", text("x")),
            (".metadata.annotations['a.b/c']", text("x")),
            ("{.items[1].n}", SortKey::Number(Quantity::from_units(4))),
            (".items[7].n", SortKey::Missing),
            (".metadata.uid", SortKey::Missing),
        ] {
            let field = SortField::parse(expression).unwrap();
            assert_eq!(field.key_of(&object), key, "{expression}");
        }
        for unsupported in ["", "{.a", ".a[*]", ".a[?(@.b)]", "..a", ".*"] {
            assert!(SortField::parse(unsupported).is_err(), "{unsupported}");
        }
        let missing = SortField::parse(".x.y").unwrap();
        let error = missing.ensure_found([SortKey::Missing].iter()).unwrap_err();
        let words = "couldn't find any field with path \"{.x.y}\" in the list of objects";
        assert_eq!(error.to_string(), words);
        assert!(missing.ensure_found([].iter()).is_ok());
    }

    #[test]
    fn values_are_sorted_by_their_meaning() {
        let field = SortField::parse("v").unwrap();
        let mut values = [
            json!("pod10"),
            json!("1Gi"),
            json!(true),
            json!("pod9"),
            json!(null),
            json!("pod"),
            json!(12),
            json!("500m"),
            json!("pod009"),
            json!("2024-01-02T00:00:00Z"),
        ];
        values.sort_by_cached_key(|v| field.key_of(&json!({"v": v})));
        let sorted = json!([
            null,
            true,
            "500m",
            12,
            "1Gi",
            "2024-01-02T00:00:00Z",
            "pod",
            "pod009",
            "pod9",
            "pod10"
        ]);
        assert_eq!(json!(values), sorted);
    }
}
