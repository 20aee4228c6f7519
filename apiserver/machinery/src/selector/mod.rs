//! Label and field selectors: parses the query syntax of `labelSelector` and
//! `fieldSelector`, or a `metav1.LabelSelector`, and matches objects against them.
//!
//! Syntax and error texts are those of `apimachinery/pkg/labels/selector.go` and
//! `apimachinery/pkg/fields`.

mod field;

use std::fmt;

use serde_json::Value;

use crate::names::{validate_label_value, validate_qualified_name};

pub use field::{FieldRequirement, FieldSelector};

/// Longest selector that is parsed, in bytes.
const MAX_SELECTOR_BYTES: usize = 64 << 10;

/// How a requirement compares a label with its values (`selection.Operator`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label (`labels.Requirement`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: SelectorOperator,
    /// Sorted.
    pub values: Vec<String>,
}

/// Conditions on labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    selects_nothing: bool,
}

impl LabelRequirement {
    /// Validates key and values as Kubernetes does; the error is Kubernetes' text.
    pub fn new(
        key: &str,
        operator: SelectorOperator,
        mut values: Vec<String>,
    ) -> Result<Self, String> {
        validate_qualified_name(key).map_err(|e| format!("key: Invalid value: {key:?}: {e}"))?;
        let invalid = |message: &str| {
            Err(format!(
                "values: Invalid value: {}: {message}",
                Value::from(values.clone())
            ))
        };
        match operator {
            SelectorOperator::In | SelectorOperator::NotIn if values.is_empty() => {
                return invalid("for 'in', 'notin' operators, values set can't be empty");
            }
            SelectorOperator::Equals | SelectorOperator::NotEquals if values.len() != 1 => {
                return invalid("exact-match compatibility requires one single value");
            }
            SelectorOperator::Exists | SelectorOperator::DoesNotExist if !values.is_empty() => {
                return invalid("values set must be empty for exists and does not exist");
            }
            SelectorOperator::GreaterThan | SelectorOperator::LessThan => {
                if values.len() != 1 {
                    return invalid("for 'Gt', 'Lt' operators, exactly one value is required");
                }
                if values[0].parse::<i64>().is_err() {
                    return Err(format!(
                        "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                        values[0]
                    ));
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            validate_label_value(value)
                .map_err(|e| format!("values[{i}][{key}]: Invalid value: {value:?}: {e}"))?;
        }
        values.sort_unstable();
        values.dedup();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Whether a label with this value, or an absent label, meets the requirement.
    pub fn matches(&self, actual: Option<&str>) -> bool {
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        let bound = || self.values.first().and_then(|v| v.parse::<i64>().ok());
        let number = || actual.and_then(|v| v.parse::<i64>().ok());
        match self.operator {
            SelectorOperator::Equals | SelectorOperator::In => actual.is_some_and(listed),
            SelectorOperator::NotEquals | SelectorOperator::NotIn => !actual.is_some_and(listed),
            SelectorOperator::Exists => actual.is_some(),
            SelectorOperator::DoesNotExist => actual.is_none(),
            SelectorOperator::GreaterThan => number().zip(bound()).is_some_and(|(a, b)| a > b),
            SelectorOperator::LessThan => number().zip(bound()).is_some_and(|(a, b)| a < b),
        }
    }
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches no object (an absent `metav1.LabelSelector`).
    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            selects_nothing: true,
        }
    }

    /// Parses the query syntax: `a=b,c!=d,e in (f,g),h,!i,j>1`. Empty text matches
    /// everything.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(format!(
                "the selector is longer than {MAX_SELECTOR_BYTES} bytes"
            ));
        }
        let mut requirements = SelectorParser::new(text).parse_requirements()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            selects_nothing: false,
        })
    }

    /// Converts a `metav1.LabelSelector`. `null` matches nothing, `{}` everything.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let selector = match value {
            Value::Null => return Ok(Self::nothing()),
            Value::Object(o) => o,
            _ => return Err("a label selector must be an object".into()),
        };
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            let value = value
                .as_str()
                .ok_or_else(|| format!("matchLabels[{key}] must be a string"))?;
            requirements.push(LabelRequirement::new(
                key,
                SelectorOperator::Equals,
                vec![value.to_owned()],
            )?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(parse_match_expression(expression)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            selects_nothing: false,
        })
    }

    /// Matches objects that have all these labels (`labels.SelectorFromValidatedSet`).
    pub fn from_labels<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut requirements = labels
            .into_iter()
            .map(|(k, v)| LabelRequirement::new(k, SelectorOperator::Equals, vec![v.to_owned()]))
            .collect::<Result<Vec<_>, _>>()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements,
            selects_nothing: false,
        })
    }

    /// Whether labels, looked up by `get`, satisfy every requirement.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.selects_nothing && self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        !self.selects_nothing && self.requirements.is_empty()
    }

    /// Sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }
}

fn parse_match_expression(expression: &Value) -> Result<LabelRequirement, String> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or("");
    let values = match expression.get("values") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => values
            .iter()
            .map(|v| v.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or("values of a label selector must be strings")?,
        Some(_) => return Err("values of a label selector must be a list".into()),
    };
    let operator = match text("operator") {
        "In" => SelectorOperator::In,
        "NotIn" => SelectorOperator::NotIn,
        "Exists" => SelectorOperator::Exists,
        "DoesNotExist" => SelectorOperator::DoesNotExist,
        other => return Err(format!("{other:?} is not a valid label selector operator")),
    };
    LabelRequirement::new(text("key"), operator, values)
}

/// The query syntax.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let values = r.values.join(",");
            match r.operator {
                SelectorOperator::Equals => write!(f, "{}={values}", r.key),
                SelectorOperator::NotEquals => write!(f, "{}!={values}", r.key),
                SelectorOperator::In => write!(f, "{} in ({values})", r.key),
                SelectorOperator::NotIn => write!(f, "{} notin ({values})", r.key),
                SelectorOperator::Exists => f.write_str(&r.key),
                SelectorOperator::DoesNotExist => write!(f, "!{}", r.key),
                SelectorOperator::GreaterThan => write!(f, "{}>{values}", r.key),
                SelectorOperator::LessThan => write!(f, "{}<{values}", r.key),
            }?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SelectorToken<'a> {
    End,
    Word(&'a str),
    Symbol(&'a str),
}

impl<'a> SelectorToken<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Word(s) | Self::Symbol(s) => s,
        }
    }
}

struct SelectorParser<'a> {
    rest: &'a str,
}

impl<'a> SelectorParser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn next(&mut self) -> SelectorToken<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let special = |c: char| "=!(),<>".contains(c);
        let word = |c: char| special(c) || " \t\r\n".contains(c);
        let symbol = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];
        if let Some(s) = symbol.iter().find(|s| self.rest.starts_with(**s)) {
            let (symbol, rest) = self.rest.split_at(s.len());
            self.rest = rest;
            return SelectorToken::Symbol(symbol);
        }
        let (text, rest) = self
            .rest
            .split_at(self.rest.find(word).unwrap_or(self.rest.len()));
        self.rest = rest;
        if text.is_empty() {
            SelectorToken::End
        } else {
            SelectorToken::Word(text)
        }
    }

    fn peek(&self) -> SelectorToken<'a> {
        SelectorParser { rest: self.rest }.next()
    }

    fn parse_requirements(&mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                SelectorToken::End => return Ok(requirements),
                SelectorToken::Word(_) | SelectorToken::Symbol("!") => {}
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
            let requirement = self
                .parse_requirement()
                .map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next() {
                SelectorToken::End => return Ok(requirements),
                SelectorToken::Symbol(",") => match self.peek() {
                    SelectorToken::Word(_) | SelectorToken::Symbol("!") => {}
                    other => {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            other.text()
                        ));
                    }
                },
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn parse_requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut first = self.next();
        let absent = first == SelectorToken::Symbol("!");
        if absent {
            first = self.next();
        }
        let SelectorToken::Word(key) = first else {
            return Err(format!("found '{}', expected: identifier", first.text()));
        };
        if absent {
            return LabelRequirement::new(key, SelectorOperator::DoesNotExist, Vec::new());
        }
        // Kubernetes' parser reports the key without a path.
        validate_qualified_name(key).map_err(|e| format!("<nil>: Invalid value: {key:?}: {e}"))?;
        if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            return LabelRequirement::new(key, SelectorOperator::Exists, Vec::new());
        }
        let operator = match self.next() {
            SelectorToken::Symbol("=" | "==") => SelectorOperator::Equals,
            SelectorToken::Symbol("!=") => SelectorOperator::NotEquals,
            SelectorToken::Symbol(">") => SelectorOperator::GreaterThan,
            SelectorToken::Symbol("<") => SelectorOperator::LessThan,
            SelectorToken::Word("in") => SelectorOperator::In,
            SelectorToken::Word("notin") => SelectorOperator::NotIn,
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        let values = match operator {
            SelectorOperator::In | SelectorOperator::NotIn => self.parse_value_set()?,
            _ => vec![self.parse_exact_value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    fn parse_exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            // `a=` requires the empty value.
            SelectorToken::End | SelectorToken::Symbol(",") => Ok(String::new()),
            SelectorToken::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            other @ SelectorToken::Symbol(_) => {
                Err(format!("found '{}', expected: identifier", other.text()))
            }
        }
    }

    fn parse_value_set(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != SelectorToken::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                SelectorToken::Word(value) => {
                    self.next();
                    values.push(value.to_owned());
                }
                SelectorToken::Symbol("," | ")") => values.push(String::new()),
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
            match self.next() {
                SelectorToken::Symbol(")") => return Ok(values),
                SelectorToken::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn lookup<'a>(labels: &'a [(&'a str, &'a str)], key: &str) -> Option<&'a str> {
        labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    #[test]
    fn queries_select_labels() {
        let labels = [("a", "1"), ("tier", "web"), ("empty", "")];
        let table = [
            ("", true),
            ("a", true),
            ("b", false),
            ("!b", true),
            ("!a", false),
            ("a=1", true),
            ("a==1", true),
            ("a != 1", false),
            ("b!=1", true),
            ("tier in (web, db)", true),
            ("tier notin (web)", false),
            ("b notin (web)", true),
            ("a>0,a<2", true),
            ("tier>0", false),
            ("empty=", true),
            ("empty in ()", true),
            (" a = 1 , tier ", true),
            ("in in (x)", false),
        ];
        for (query, matches) in table {
            let selector = LabelSelector::parse(query).unwrap();
            assert_eq!(selector.matches(|k| lookup(&labels, k)), matches, "{query}");
        }
    }

    #[test]
    fn bad_queries_are_explained() {
        let table = [
            (
                "=a",
                "found '=', expected: !, identifier, or 'end of string'",
            ),
            ("a=b,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
        ];
        for (query, text) in table {
            assert_eq!(LabelSelector::parse(query).unwrap_err(), text, "{query}");
        }
        let key = LabelSelector::parse("a/b/c=1").unwrap_err();
        assert!(key.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"
        ));
        assert!(LabelSelector::parse(&"a,".repeat(MAX_SELECTOR_BYTES)).is_err());
    }

    #[test]
    fn selectors_are_read_from_objects() {
        let labels = [("app", "x"), ("tier", "web")];
        let table = [
            (json!(null), Ok(false)),
            (json!({}), Ok(true)),
            (json!({"matchLabels": {"app": "x"}}), Ok(true)),
            (json!({"matchLabels": {"app": "y"}}), Ok(false)),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]}),
                Ok(true),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
                Ok(false),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "Near"}]}),
                Err(()),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In"}]}),
                Err(()),
            ),
            (json!([]), Err(())),
        ];
        for (value, expect) in table {
            let actual = LabelSelector::from_value(&value)
                .map(|s| s.matches(|k| lookup(&labels, k)))
                .map_err(|_| ());
            assert_eq!(actual, expect, "{value}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}", symbols in "[ab!=,()<> in\\\\]{0,40}") {
            for t in [&text, &symbols] {
                if let Ok(s) = LabelSelector::parse(t) {
                    prop_assert_eq!(&LabelSelector::parse(&s.to_string()).unwrap(), &s);
                }
            }
        }
    }
}
