//! Regular expressions: `matches`, `find` and `findAll`
//! (`k8s.io/apiserver/pkg/cel/library/regex.go`).
//!
//! Patterns have Go's syntax, in which `\d`, `\w`, `\s` and `\b` know ASCII only.

use ::regex::{Regex, RegexBuilder};

use crate::error::EvalError;
use crate::meter::Meter;
use crate::overloads::Declared;
use crate::value::{Result, Value};

pub(super) const OVERLOADS: &[Declared] = &[
    ("matches", "matches(string,string) bool", matches),
    ("matches_string", "<string>.matches(string) bool", matches),
    ("string_find_string", "<string>.find(string) string", find),
    (
        "string_find_all_string",
        "<string>.findAll(string) list(string)",
        find_all,
    ),
    (
        "string_find_all_string_int",
        "<string>.findAll(string,int) list(string)",
        find_all,
    ),
];

/// How many bytes a compiled pattern may take.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles a pattern in Go's syntax.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    let compiled = RegexBuilder::new(&translate(pattern))
        .size_limit(MAX_COMPILED_BYTES)
        .nest_limit(100)
        .build();
    compiled.map_err(|why| {
        let why = why.to_string();
        let reason = why.lines().last().unwrap_or_default();
        format!(
            "error parsing regexp: {}: `{pattern}`",
            reason.trim_start_matches("error: ")
        )
    })
}

/// The pattern in the syntax of the crate `regex`.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => translate_escape(&mut out, &mut chars, class),
            '[' if class => {
                // A named class is the only bracket that is special within a class.
                let special = chars.peek() == Some(&':');
                out.push_str(if special { "[" } else { "\\[" });
                if special {
                    for c in chars.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
            }
            '[' => {
                class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

fn translate_escape(
    out: &mut String,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    class: bool,
) {
    let ascii = match chars.next() {
        Some('d') => "0-9",
        Some('D') => "^0-9",
        Some('w') => "0-9A-Za-z_",
        Some('W') => "^0-9A-Za-z_",
        Some('s') => "\\t\\n\\x0C\\r ",
        Some('S') => "^\\t\\n\\x0C\\r ",
        Some('b') if !class => return out.push_str("(?-u:\\b)"),
        Some('B') if !class => return out.push_str("(?-u:\\B)"),
        Some('Q') => {
            let mut rest = String::new();
            for c in chars.by_ref() {
                rest.push(c);
                if rest.ends_with("\\E") {
                    rest.truncate(rest.len() - 2);
                    break;
                }
            }
            return out.push_str(&::regex::escape(&rest));
        }
        other => {
            out.push('\\');
            out.extend(other);
            return;
        }
    };
    if class && !ascii.starts_with('^') {
        out.push_str(ascii);
    } else {
        out.push('[');
        out.push_str(ascii);
        out.push(']');
    }
}

fn matches<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> Result<'a> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = meter.regex(pattern.as_str())?;
            Ok(Value::Bool(regex.is_match(text.as_str())))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn find<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> Result<'a> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = meter.regex(pattern.as_str())?;
            let found = regex.find(text.as_str()).map_or("", |m| m.as_str());
            Ok(Value::string(found))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn find_all<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> Result<'a> {
    let (text, pattern, count) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [
            Value::String(text),
            Value::String(pattern),
            Value::Int(count),
        ] => (text, pattern, *count),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let regex = meter.regex(pattern.as_str())?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = regex.find_iter(text.as_str()).take(count);
    Ok(Value::list(
        found.map(|m| Value::string(m.as_str())).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_have_gos_meaning() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{664}", false),
            (r"^[\w.-]+$", "a_b.c-1", true),
            (r"^[\w]+$", "\u{e9}", false),
            (r"^[^\d]$", "x", true),
            (r"^[\D]$", "x", true),
            (r"^[[a]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]+$", "&a", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"\bcat\b", "a cat.", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^.$", "\u{e9}", true),
        ] {
            let regex = compile(pattern).unwrap();
            assert_eq!(regex.is_match(text), matches, "{pattern} {text}");
        }
        for pattern in ["(", "[", "(?=x)", r"\1", "a{1000}{1000}{1000}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
