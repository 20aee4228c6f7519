//! Parses the query syntax of `fieldSelector` and matches fields against it.
//!
//! Syntax and error texts are those of `apimachinery/pkg/fields/selector.go`.

use std::borrow::Cow;
use std::fmt;

use super::MAX_SELECTOR_BYTES;

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// A path as in `metadata.name`.
    pub field: String,
    pub value: String,
    /// `=` when true, `!=` otherwise.
    pub equal: bool,
}

/// Conditions on fields, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

impl FieldSelector {
    /// Parses `a.b=c,d!=e`; `,`, `=` and `\` in values are escaped by `\`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(format!(
                "the selector is longer than {MAX_SELECTOR_BYTES} bytes"
            ));
        }
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (field, equal, value) = split_term(term)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                value: unescape(value)?,
                equal,
            });
        }
        Ok(Self(requirements))
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether fields, looked up by `get`, satisfy every requirement. An absent
    /// field counts as empty.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0
            .iter()
            .all(|r| (get(&r.field).unwrap_or_default() == r.value) == r.equal)
    }

    /// The value that the selector requires of a field (`RequiresExactMatch`).
    pub fn exact_match(&self, field: &str) -> Option<&str> {
        let requirement = self.0.iter().find(|r| r.equal && r.field == field)?;
        Some(&requirement.value)
    }
}

/// The query syntax.
impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self
            .value
            .replace('\\', "\\\\")
            .replace(',', "\\,")
            .replace('=', "\\=");
        let sign = if self.equal { "=" } else { "!=" };
        write!(f, "{}{sign}{value}", self.field)
    }
}

/// The query syntax.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let index = term.find(['=', '!'])?;
    let (field, rest) = term.split_at(index);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {c}"
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn field_queries_select_fields() {
        let get = |field: &str| match field {
            "metadata.name" => Some(Cow::Borrowed("a,b")),
            "status.phase" => Some(Cow::Borrowed("Running")),
            _ => None,
        };
        let table = [
            ("", true),
            ("metadata.name=a\\,b", true),
            ("status.phase!=Running", false),
            ("status.phase==Running,spec.nodeName=", true),
        ];
        for (query, matches) in table {
            let selector = FieldSelector::parse(query).unwrap();
            assert_eq!(selector.matches(get), matches, "{query}");
        }
        assert_eq!(
            FieldSelector::parse("a=1,b").unwrap_err(),
            "invalid selector: 'a=1,b'; can't understand 'b'"
        );
        assert_eq!(
            FieldSelector::parse("a=\\x").unwrap_err(),
            "invalid field selector: invalid escape sequence: \\x"
        );
        let selector = FieldSelector::parse("metadata.name=x,a!=y").unwrap();
        assert_eq!(
            (
                selector.exact_match("metadata.name"),
                selector.exact_match("a")
            ),
            (Some("x"), None)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}", symbols in "[ab!=,\\\\]{0,40}") {
            for t in [&text, &symbols] {
                if let Ok(s) = FieldSelector::parse(t) {
                    prop_assert_eq!(&FieldSelector::parse(&s.to_string()).unwrap(), &s);
                }
            }
        }
    }
}
