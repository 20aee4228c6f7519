//! Semantic versions: text, and their order.

use std::cmp::Ordering;
use std::fmt;

/// A version of Semantic Versioning 2.0.0.
#[derive(Clone, Debug)]
pub(crate) struct Semver {
    pub(crate) numbers: [u64; 3],
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
    pub(crate) fn parse(text: &str) -> Option<Self> {
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
    pub(crate) fn parse_normalized(text: &str) -> Option<Self> {
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
    let is_decimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_decimal && (text == "0" || !text.starts_with('0')))
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
