//! Semantic versions (`k8s.io/apiserver/pkg/cel/library/semverlib.go`).

use std::cmp::Ordering;
use std::fmt;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::overloads::Declared;
use crate::value::{Opaque, Result, Value};

pub(super) const OVERLOADS: &[Declared] = &[
    (
        "string_to_semver",
        "semver(string) kubernetes.Semver",
        parse,
    ),
    (
        "string_bool_to_semver",
        "semver(string,bool) kubernetes.Semver",
        parse,
    ),
    ("is_semver_string", "isSemver(string) bool", is_semver),
    (
        "is_semver_string_bool",
        "isSemver(string,bool) bool",
        is_semver,
    ),
    (
        "semver_is_greater_than",
        "<kubernetes.Semver>.isGreaterThan(kubernetes.Semver) bool",
        is_greater_than,
    ),
    (
        "semver_is_less_than",
        "<kubernetes.Semver>.isLessThan(kubernetes.Semver) bool",
        is_less_than,
    ),
    (
        "semver_compare_to",
        "<kubernetes.Semver>.compareTo(kubernetes.Semver) int",
        compare_to,
    ),
    ("semver_major", "<kubernetes.Semver>.major() int", major),
    ("semver_minor", "<kubernetes.Semver>.minor() int", minor),
    ("semver_patch", "<kubernetes.Semver>.patch() int", patch),
];

/// A version of Semantic Versioning 2.0.0.
#[derive(Clone, Debug)]
pub(crate) struct Semver {
    numbers: [u64; 3],
    prerelease: Vec<PrereleasePart>,
    build: String,
}

/// Numbers come before texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrereleasePart {
    Number(u64),
    Text(String),
}

impl Semver {
    fn parse(text: &str) -> Option<Self> {
        let (rest, build) = match text.split_once('+') {
            Some((rest, build)) => (rest, build),
            None => (text, ""),
        };
        if text.contains('+') && !build.split('.').all(is_identifier) {
            return None;
        }
        let (core, prerelease) = match rest.split_once('-') {
            Some((core, prerelease)) => (core, Some(prerelease)),
            None => (rest, None),
        };
        let mut numbers = core.split('.').map(parse_number);
        let numbers = [numbers.next()??, numbers.next()??, numbers.next()??];
        if core.split('.').count() != 3 {
            return None;
        }
        let prerelease: Option<Vec<PrereleasePart>> = match prerelease {
            None => Some(Vec::new()),
            Some(parts) => parts.split('.').map(PrereleasePart::parse).collect(),
        };
        Some(Self {
            numbers,
            prerelease: prerelease?,
            build: build.to_owned(),
        })
    }

    /// Parses after filling up what is short: `v1.2` is 1.2.0, `01.2.3` is 1.2.3.
    fn parse_normalized(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
                let zero = if digit { "" } else { "0" };
                *part = format!("{zero}{trimmed}");
            }
        }
        if parts.len() < 3 && parts.last().is_some_and(|p| p.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn parse_number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (plain && (text == "0" || !text.starts_with('0')))
        .then(|| text.parse().ok())
        .flatten()
}

impl PrereleasePart {
    fn parse(text: &str) -> Option<Self> {
        if !is_identifier(text) {
            return None;
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return parse_number(text).map(Self::Number);
        }
        Some(Self::Text(text.to_owned()))
    }
}

impl fmt::Display for PrereleasePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (i, part) in self.prerelease.iter().enumerate() {
            write!(f, "{}{part}", if i == 0 { '-' } else { '.' })?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (&self.prerelease[..], &other.prerelease[..]) {
            ([], []) => Ordering::Equal,
            // A release comes after its prereleases.
            ([], _) => Ordering::Greater,
            (_, []) => Ordering::Less,
            (a, b) => a.cmp(b),
        })
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The build does not count.
impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Semver {}

fn parsed(arguments: &[Value<'_>]) -> std::result::Result<Option<Semver>, EvalError> {
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Semver::parse(text.as_str()))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_normalized(text.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    let version = parsed(arguments)?;
    let version = version.ok_or_else(|| EvalError::new("No Major.Minor.Patch elements found"))?;
    Ok(Value::opaque(Opaque::Semver(version)))
}

fn is_semver<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::Bool(parsed(arguments)?.is_some()))
}

fn version<'v>(value: &'v Value<'_>) -> std::result::Result<&'v Semver, EvalError> {
    match value {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Semver(version) => Ok(version),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn compare(arguments: &[Value<'_>]) -> std::result::Result<Ordering, EvalError> {
    match arguments {
        [a, b] => Ok(version(a)?.cmp(version(b)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_greater_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    compare(arguments).map(|order| Value::Bool(order.is_gt()))
}

fn is_less_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    compare(arguments).map(|order| Value::Bool(order.is_lt()))
}

fn compare_to<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    compare(arguments).map(|order| Value::Int(order as i64))
}

fn number<'a>(arguments: &[Value<'a>], at: usize) -> Result<'a> {
    let version = version(arguments.first().ok_or(EvalError::NoSuchOverload)?)?;
    let number = i64::try_from(version.numbers[at]).ok();
    number.map(Value::Int).ok_or_else(EvalError::overflow)
}

fn major<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    number(arguments, 0)
}

fn minor<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    number(arguments, 1)
}

fn patch<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    number(arguments, 2)
}
