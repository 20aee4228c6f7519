//! The subset of Kubernetes' JSONPath that printer columns and scale paths use
//! (`client-go/util/jsonpath`).
//!
//! A path is compiled once, as in `.status.conditions[?(@.type=="Ready")].status`. Its
//! steps: `.name`, `['name']`, `[n]`, `[-n]`, `[a:b]`, `[*]`, `.*`, `..name`,
//! `[?(@.path op literal)]`; a dot in a name is escaped as `\.`.

use serde_json::Value;

const MAX_STEPS: usize = 64;
const MAX_RESULTS: usize = 10_000;
const MAX_DESCENT_DEPTH: usize = machinery::json::MAX_DEPTH;

/// A compiled path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<JsonPathStep>);

#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Wildcard,
    RecursiveDescent(String),
    Filter(JsonPathFilter),
}

#[derive(Clone, Debug, PartialEq)]
struct JsonPathFilter {
    left: FilterOperand,
    /// `None`: tests whether the left side exists.
    comparison: Option<(ComparisonOperator, FilterOperand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum FilterOperand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Compiles a path; braces around it and a leading `$` are allowed. The error
    /// gives the byte at which it cannot be parsed.
    pub fn compile(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let inner = text
            .strip_prefix('{')
            .and_then(|t| t.strip_suffix('}'))
            .unwrap_or(text);
        let inner = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        let mut parser = JsonPathParser {
            text: inner,
            offset: 0,
            nested: 0,
        };
        let steps = parser.parse_steps()?;
        match parser.rest() {
            "" => Ok(Self(steps)),
            _ => Err(parser.syntax_error("unexpected text")),
        }
    }

    /// All values at the path, in document order; at most 10,000.
    pub fn find<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        let mut values = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in values {
                step.apply(value, &mut next);
                if next.len() >= MAX_RESULTS {
                    break;
                }
            }
            next.truncate(MAX_RESULTS);
            values = next;
        }
        values
    }

    /// The first value at the path.
    pub fn first<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.find(root).into_iter().next()
    }

    /// The field names of a path that consists of fields only.
    pub fn field_names(&self) -> Option<Vec<&str>> {
        self.0
            .iter()
            .map(|s| match s {
                JsonPathStep::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

impl JsonPathStep {
    fn apply<'v>(&self, value: &'v Value, results: &mut Vec<&'v Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => results.extend(map.get(name)),
            (Self::Index(n), Value::Array(items)) => {
                results.extend(resolve_index(*n, items.len()).and_then(|i| items.get(i)));
            }
            (Self::Slice(from, to), Value::Array(items)) => {
                let end = to.map_or(items.len(), |n| clamp_slice_bound(n, items.len()));
                let start = from.map_or(0, |n| clamp_slice_bound(n, items.len()));
                results.extend(items.get(start..end).unwrap_or_default());
            }
            (Self::Wildcard, Value::Array(items)) => results.extend(items),
            (Self::Wildcard, Value::Object(map)) => results.extend(map.values()),
            (Self::RecursiveDescent(name), _) => descend(value, name, results, 0),
            (Self::Filter(filter), Value::Array(items)) => {
                results.extend(items.iter().filter(|v| filter.matches(v)));
            }
            (Self::Filter(filter), Value::Object(map)) => {
                results.extend(map.values().filter(|v| filter.matches(v)));
            }
            _ => {}
        }
    }
}

fn resolve_index(n: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if n < 0 { n.checked_add(len)? } else { n };
    usize::try_from(index).ok().filter(|_| index < len)
}

fn clamp_slice_bound(n: i64, len: usize) -> usize {
    let signed = i64::try_from(len).unwrap_or(i64::MAX);
    let index = if n < 0 { n.saturating_add(signed) } else { n };
    usize::try_from(index.clamp(0, signed)).unwrap_or(len)
}

fn descend<'v>(value: &'v Value, name: &str, results: &mut Vec<&'v Value>, depth: usize) {
    if depth > MAX_DESCENT_DEPTH || results.len() >= MAX_RESULTS {
        return;
    }
    match value {
        Value::Object(map) => {
            results.extend(map.get(name));
            for child in map.values() {
                descend(child, name, results, depth + 1);
            }
        }
        Value::Array(items) => {
            for child in items {
                descend(child, name, results, depth + 1);
            }
        }
        _ => {}
    }
}

impl JsonPathFilter {
    fn matches(&self, item: &Value) -> bool {
        let Some(left) = self.left.value(item) else {
            return false;
        };
        let Some((comparison, right)) = &self.comparison else {
            return true;
        };
        right
            .value(item)
            .is_some_and(|right| comparison.compare(left, right))
    }
}

impl FilterOperand {
    fn value<'v>(&'v self, item: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Literal(value) => Some(value),
        }
    }
}

impl ComparisonOperator {
    fn compare(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match self {
            Self::Equal => left == right || order.is_some_and(|o| o.is_eq()),
            Self::NotEqual => left != right && order.is_none_or(|o| o.is_ne()),
            Self::Less => order.is_some_and(|o| o.is_lt()),
            Self::LessOrEqual => order.is_some_and(|o| o.is_le()),
            Self::Greater => order.is_some_and(|o| o.is_gt()),
            Self::GreaterOrEqual => order.is_some_and(|o| o.is_ge()),
        }
    }
}

struct JsonPathParser<'t> {
    text: &'t str,
    offset: usize,
    nested: usize,
}

impl<'t> JsonPathParser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn syntax_error(&self, message: &str) -> String {
        format!("{message} at byte {} of path {:?}", self.offset, self.text)
    }

    fn eat(&mut self, token: &str) -> bool {
        let matches = self.rest().starts_with(token);
        if matches {
            self.offset += token.len();
        }
        matches
    }

    fn skip_blanks(&mut self) {
        while self.eat(" ") {}
    }

    fn parse_steps(&mut self) -> Result<Vec<JsonPathStep>, String> {
        let mut steps = Vec::new();
        // The first dot is optional.
        if self.rest().starts_with(|c: char| c.is_alphanumeric()) {
            steps.push(JsonPathStep::Field(self.parse_name()?));
        }
        loop {
            if steps.len() > MAX_STEPS {
                return Err(self.syntax_error("too many steps"));
            }
            if self.eat("..") {
                steps.push(JsonPathStep::RecursiveDescent(self.parse_name()?));
            } else if self.eat(".*") {
                steps.push(JsonPathStep::Wildcard);
            } else if self.eat(".[") || self.eat("[") {
                steps.push(self.parse_bracket()?);
            } else if self.eat(".") {
                if self.rest().is_empty() && steps.is_empty() {
                    return Ok(steps);
                }
                steps.push(JsonPathStep::Field(self.parse_name()?));
            } else {
                return Ok(steps);
            }
        }
    }

    fn parse_name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        let mut chars = self.rest().chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some(escaped) => {
                        name.push(escaped);
                        self.offset += escaped.len_utf8();
                    }
                    None => return Err(self.syntax_error("nothing after the backslash")),
                },
                '.' | '[' | ']' | ' ' | '=' | '!' | '<' | '>' | '(' | ')' | '{' | '}' | '?' => {
                    break;
                }
                c => name.push(c),
            }
            self.offset += c.len_utf8();
        }
        if name.is_empty() {
            return Err(self.syntax_error("a field name is missing"));
        }
        Ok(name)
    }

    fn parse_bracket(&mut self) -> Result<JsonPathStep, String> {
        self.skip_blanks();
        let step = if self.eat("*") {
            JsonPathStep::Wildcard
        } else if self.eat("?(") {
            JsonPathStep::Filter(self.parse_filter()?)
        } else if self.rest().starts_with(['\'', '"']) {
            JsonPathStep::Field(self.parse_quoted()?)
        } else {
            self.parse_index_or_slice()?
        };
        self.skip_blanks();
        if self.eat("]") {
            Ok(step)
        } else {
            Err(self.syntax_error("a closing bracket is missing"))
        }
    }

    fn parse_index_or_slice(&mut self) -> Result<JsonPathStep, String> {
        let first = self.parse_integer()?;
        if !self.eat(":") {
            return match first {
                Some(n) => Ok(JsonPathStep::Index(n)),
                None => Err(self.syntax_error("an index is missing")),
            };
        }
        Ok(JsonPathStep::Slice(first, self.parse_integer()?))
    }

    fn parse_integer(&mut self) -> Result<Option<i64>, String> {
        let text = self.take_digits();
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| self.syntax_error("not an index"))
    }

    fn take_digits(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '-')
            .unwrap_or(rest.len());
        self.offset += end;
        &rest[..end]
    }

    fn parse_quoted(&mut self) -> Result<String, String> {
        let mut chars = self.rest().chars();
        let quote = chars.next();
        let mut used = 1;
        let mut text = String::new();
        while let Some(c) = chars.next() {
            used += c.len_utf8();
            if Some(c) == quote {
                self.offset += used;
                return Ok(text);
            }
            if c == '\\'
                && let Some(escaped) = chars.next()
            {
                used += escaped.len_utf8();
                text.push(escaped);
            } else {
                text.push(c);
            }
        }
        Err(self.syntax_error("a closing quote is missing"))
    }

    fn parse_filter(&mut self) -> Result<JsonPathFilter, String> {
        self.nested += 1;
        if self.nested > 4 {
            return Err(self.syntax_error("filters are nested too deeply"));
        }
        let left = self.parse_operand()?;
        let comparison = [
            ("==", ComparisonOperator::Equal),
            ("!=", ComparisonOperator::NotEqual),
            ("<=", ComparisonOperator::LessOrEqual),
            (">=", ComparisonOperator::GreaterOrEqual),
            ("<", ComparisonOperator::Less),
            (">", ComparisonOperator::Greater),
        ]
        .into_iter()
        .find(|(token, _)| self.eat(token));
        let test = match comparison {
            Some((_, comparison)) => Some((comparison, self.parse_operand()?)),
            None => None,
        };
        self.nested -= 1;
        if self.eat(")") {
            Ok(JsonPathFilter {
                left,
                comparison: test,
            })
        } else {
            Err(self.syntax_error("a closing parenthesis is missing"))
        }
    }

    fn parse_operand(&mut self) -> Result<FilterOperand, String> {
        self.skip_blanks();
        let operand = if self.eat("@") || self.eat("$") {
            FilterOperand::Path(JsonPath(self.parse_steps()?))
        } else if self.rest().starts_with(['\'', '"']) {
            FilterOperand::Literal(Value::String(self.parse_quoted()?))
        } else {
            let rest = self.rest();
            let end = rest
                .find([')', ' ', '=', '!', '<', '>'])
                .unwrap_or(rest.len());
            let literal = machinery::json::from_str(&rest[..end])
                .map_err(|_| self.syntax_error("not a literal"))?;
            self.offset += end;
            FilterOperand::Literal(literal)
        };
        self.skip_blanks();
        Ok(operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_kubectl_finds() {
        let doc = json!({
            "spec": {"a": 1, "list": [{"k": "x"}, {"k": "y", "n": 3}], "x.y/z": "dotted"},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Other", "status": "False"}]},
        });
        let table = [
            (".spec.a", json!([1])),
            ("{.spec.a}", json!([1])),
            ("$.spec.a", json!([1])),
            ("spec.a", json!([1])),
            (".spec.list[*].k", json!(["x", "y"])),
            (".spec.list[0].k", json!(["x"])),
            (".spec.list[-1].k", json!(["y"])),
            (".spec.list[5].k", json!([])),
            (".spec.list[0:1].k", json!(["x"])),
            (".spec.list[:].k", json!(["x", "y"])),
            (".spec.x\\.y/z", json!(["dotted"])),
            (".spec['x.y/z']", json!(["dotted"])),
            ("..k", json!(["x", "y"])),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type == 'Ready')].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type!='Ready')].status",
                json!(["False"]),
            ),
            (".spec.list[?(@.n>2)].k", json!(["y"])),
            (".spec.list[?(@.n)].k", json!(["y"])),
            (".spec.missing.deeper", json!([])),
        ];
        for (path, expect) in table {
            let compiled = JsonPath::compile(path).unwrap();
            let values: Vec<_> = compiled.find(&doc).into_iter().cloned().collect();
            assert_eq!(Value::Array(values), expect, "{path}");
        }
    }

    #[test]
    fn malformed_paths_are_rejected() {
        for path in [
            ".a[",
            ".a[?(@.b==)]",
            "a b",
            ".a[x]",
            ".a['b]",
            ".a..",
            ".a\\",
        ] {
            assert!(JsonPath::compile(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[.\\[\\]a-c*?@()='\"0-9:\\\\ {}-]{0,24}") {
            if let Ok(path) = JsonPath::compile(&text) {
                path.find(&json!({"a": [{"b": 1}], "c": {"a": "x"}}));
            }
        }
    }
}
